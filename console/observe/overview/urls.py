"""URLs of the overview."""

from __future__ import annotations

from django.urls import path

from console.observe.overview import views

app_name = "overview"
urlpatterns = [
    path("", views.index, name="index"),
    path("overview/summary/", views.summary, name="summary"),
    path("overview/confirm/", views.confirm, name="confirm"),
]
