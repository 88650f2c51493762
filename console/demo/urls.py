"""URL patterns that start and stop the demo traffic."""

from __future__ import annotations

from django.urls import path

from console.demo import views

app_name = "demo"
urlpatterns = [
    path("start/", views.start, name="start"),
    path("stop/", views.stop, name="stop"),
]
