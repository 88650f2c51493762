"""URL of the palette's entries."""

from __future__ import annotations

from django.urls import path

from console.palette import views

app_name = "palette"
urlpatterns = [path("", views.entries, name="entries")]
