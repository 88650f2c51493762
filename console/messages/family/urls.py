"""URL patterns of the message history pages."""

from __future__ import annotations

from django.urls import path

from console.messages.family import views

app_name = "family"
urlpatterns = [
    path(
        "export/<str:kind>/<str:broker_name>/<int:queue_id>/<int:offset>/<path:topic>/",
        views.export,
        name="export",
    ),
    path(
        "<str:broker_name>/<int:queue_id>/<int:offset>/<path:topic>/", views.family, name="message"
    ),
]
