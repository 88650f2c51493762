"""URLs of the Live page."""

from __future__ import annotations

from django.urls import path

from console.tracing import views

app_name = "tracing"
urlpatterns = [
    path("", views.river, name="river"),
    path("topics/", views.topics, name="topics"),
]
