"""URLs of the consumer group pages."""

from __future__ import annotations

from django.urls import path

from console.broker.groups import member_views, queue_views, views

app_name = "groups"
urlpatterns = [
    path("", views.listing, name="list"),
    path("new/", views.create, name="create"),
    path("undo/<int:entry>/", views.undo, name="undo"),
    path("label/undo/<int:entry>/", views.label_undo, name="label-undo"),
    path("g/<path:group>/label/", views.label, name="label"),
    path("g/<path:group>/edit/", views.edit, name="edit"),
    path("g/<path:group>/delete/", views.delete, name="delete"),
    path("g/<path:group>/subscriptions/", member_views.subscriptions, name="subscriptions"),
    path("g/<path:group>/member/", member_views.member, name="member"),
    path("g/<path:group>/progress/", views.progress, name="progress"),
    path(
        "g/<path:group>/queues/<str:broker_name>/<int:queue_id>/<path:topic>/",
        queue_views.queue,
        name="queue",
    ),
    path("g/<path:group>/", views.detail, name="detail"),
]
