"""Addresses of the pages about dead letters."""

from __future__ import annotations

from django.urls import path

from console.dead_letters import acting_views, run_views, views

app_name = "dead_letters"
urlpatterns = [
    path("", views.listing, name="list"),
    path("runs/<int:run>/", run_views.detail, name="run"),
    path("runs/<int:run>/progress/", run_views.progress, name="progress"),
    path("runs/<int:run>/cancel/", run_views.cancel, name="cancel"),
    path("runs/<int:run>/resume/", run_views.resume, name="resume"),
    path("runs/<int:run>/receipt.csv", run_views.receipt, name="receipt"),
    path("g/<path:group>/preview/", acting_views.preview, name="preview"),
    path("g/<path:group>/start/", acting_views.start, name="start"),
    path("g/<path:group>/discard/", acting_views.discard, name="discard"),
    path("g/<path:group>/export/<str:kind>/", acting_views.export, name="export"),
    path("g/<path:group>/", views.group, name="group"),
]
