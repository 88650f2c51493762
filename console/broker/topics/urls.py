"""URLs of the topic pages."""

from __future__ import annotations

from django.urls import path

from console.broker.topics import views

app_name = "topics"
urlpatterns = [
    path("", views.listing, name="list"),
    path("new/", views.create, name="create"),
    path("undo/<int:entry>/", views.undo, name="undo"),
    path("label/undo/<int:entry>/", views.label_undo, name="label-undo"),
    path("t/<path:topic>/label/", views.label, name="label"),
    path("t/<path:topic>/edit/", views.edit, name="edit"),
    path("t/<path:topic>/delete/", views.delete, name="delete"),
    path("t/<path:topic>/purge/", views.purge, name="purge"),
    path("t/<path:topic>/queues/", views.queues, name="queues"),
    path("t/<path:topic>/", views.detail, name="detail"),
]
