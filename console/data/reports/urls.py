"""URLs of the report pages."""

from __future__ import annotations

from django.urls import path

from console.data.reports import schedule_views, views

app_name = "reports"
urlpatterns = [
    path("", views.report_list, name="list"),
    path("runs/", views.runs, name="runs"),
    path("health/", views.health_banners, name="health"),
    path("start/", views.start, name="start"),
    path("runs/<int:run_id>/", views.run_page, name="run"),
    path("runs/<int:run_id>/progress/", views.run_progress, name="progress"),
    path("runs/<int:run_id>/chart/", views.run_chart, name="chart"),
    path("runs/<int:run_id>/csv/", views.run_csv, name="csv"),
    path("runs/<int:run_id>/png/", views.run_picture, name="png"),
    path("runs/<int:run_id>/parquet/", views.run_parquet, name="parquet"),
    path("runs/<int:run_id>/cancel/", views.cancel, name="cancel"),
    path("schedules/new/<str:report>/", schedule_views.create, name="schedule-new"),
    path("schedules/<int:schedule_id>/", schedule_views.edit, name="schedule"),
    path("schedules/<int:schedule_id>/switch/", schedule_views.switch, name="schedule-switch"),
    path("schedules/<int:schedule_id>/delete/", schedule_views.delete, name="schedule-delete"),
]
