"""Addresses of the offsets pages."""

from __future__ import annotations

from django.urls import path

from console.offsets import views

app_name = "offsets"
urlpatterns = [
    path("", views.index, name="index"),
]
