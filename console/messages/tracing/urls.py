"""URLs of the Live page."""

from __future__ import annotations

from django.urls import path

from console.messages.tracing import recorder_views, views

app_name = "tracing"
urlpatterns = [
    path("", views.river, name="river"),
    path("recorded/", recorder_views.recorded, name="recorded"),
    path("level/", recorder_views.level, name="level"),
    path("topics/", views.topics, name="topics"),
]
