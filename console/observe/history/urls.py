"""URLs of chart data."""

from __future__ import annotations

from django.urls import path

from console.observe.history import views

app_name = "history"
urlpatterns = [
    path("<str:kind>/<str:slug>/<path:name>/points.json", views.points, name="points"),
    path("<str:kind>/<str:slug>/<path:name>/points.csv", views.table, name="csv"),
]
