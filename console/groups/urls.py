"""Addresses of the groups pages."""

from __future__ import annotations

from django.urls import path

from console.groups import views

app_name = "groups"
urlpatterns = [
    path("", views.listing, name="list"),
]
