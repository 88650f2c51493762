"""Addresses of the overview pages."""

from __future__ import annotations

from django.urls import path

from console.overview import views

app_name = "overview"
urlpatterns = [
    path("", views.index, name="index"),
]
