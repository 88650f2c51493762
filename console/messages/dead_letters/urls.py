"""URL patterns of the dead letter pages."""

from __future__ import annotations

from django.urls import path

from console.messages.dead_letters import action_views, run_views, views

app_name = "dead_letters"
urlpatterns = [
    path("", views.listing, name="list"),
    path("runs/<int:run>/", run_views.detail, name="run"),
    path("runs/<int:run>/progress/", run_views.progress, name="progress"),
    path("runs/<int:run>/cancel/", run_views.cancel, name="cancel"),
    path("runs/<int:run>/resume/", run_views.resume, name="resume"),
    path("runs/<int:run>/receipt.csv", run_views.receipt, name="receipt"),
    path("g/<path:group>/preview/", action_views.preview, name="preview"),
    path("g/<path:group>/start/", action_views.start, name="start"),
    path("g/<path:group>/discard/", action_views.discard, name="discard"),
    path("g/<path:group>/export/<str:kind>/", action_views.export, name="export"),
    path("g/<path:group>/", views.group, name="group"),
]
