"""URLs of sending."""

from __future__ import annotations

from django.urls import path

from console.messages.sending import views

app_name = "sending"
urlpatterns = [
    path("", views.send, name="send"),
    path("transactions/<int:pk>/", views.end, name="end"),
    path("transactions/<int:pk>/forget/", views.forget, name="forget"),
    path(
        "to-member/<str:broker_name>/<int:queue_id>/<int:offset>/<path:topic>/",
        views.deliver,
        name="deliver",
    ),
]
