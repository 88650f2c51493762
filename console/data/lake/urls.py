"""URLs of the lake's page."""

from __future__ import annotations

from django.urls import path

from console.data.lake import views

app_name = "lake"
urlpatterns = [
    path("", views.index, name="index"),
    path("state/", views.state, name="state"),
]
