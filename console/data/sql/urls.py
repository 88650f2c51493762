"""URLs of the SQL page."""

from __future__ import annotations

from django.urls import path

from console.data.sql import right_views, schedule_views, views

app_name = "sql"
urlpatterns = [
    path("", views.editor, name="editor"),
    path("rights/", right_views.rights, name="rights"),
    path("rights/take/", right_views.revoke, name="right-take"),
    path("run/", views.run, name="run"),
    path("save/", views.save, name="save"),
    path("saved/<int:pk>/delete/", views.delete, name="delete"),
    path("saved/<int:pk>/schedule/", schedule_views.schedule, name="schedule"),
    path("saved/<int:pk>/schedule/end/", schedule_views.end_schedule, name="schedule-end"),
    path("runs/<uuid:run_id>/", views.run_page, name="result"),
    path("runs/<uuid:run_id>/progress/", views.progress, name="progress"),
    path("runs/<uuid:run_id>/chart/", views.chart, name="chart"),
    path("runs/<uuid:run_id>/cancel/", views.cancel, name="cancel"),
    path("runs/<uuid:run_id>/export/<str:kind>/", views.export, name="export"),
]
