"""URLs of the Live page."""

from __future__ import annotations

from django.urls import path

from console.tracing import recorded_views, views

app_name = "tracing"
urlpatterns = [
    path("", views.river, name="river"),
    path("recorded/", recorded_views.recorded, name="recorded"),
    path("level/", recorded_views.level, name="level"),
    path("topics/", views.topics, name="topics"),
]
