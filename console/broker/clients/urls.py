"""URL patterns of the client pages."""

from __future__ import annotations

from django.urls import path

from console.broker.clients import views

app_name = "clients"
urlpatterns = [
    path("", views.producers, name="producers"),
    path("g/<path:group>/disconnect/", views.disconnect, name="disconnect"),
]
