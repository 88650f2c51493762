"""Addresses of the topics pages."""

from __future__ import annotations

from django.urls import path

from console.topics import views

app_name = "topics"
urlpatterns = [
    path("", views.listing, name="list"),
]
