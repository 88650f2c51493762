"""URLs of the report pages."""

from __future__ import annotations

from django.urls import path

from console.reports import views

app_name = "reports"
urlpatterns = [
    path("", views.report_list, name="list"),
]
