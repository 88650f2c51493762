"""URLs of the consumer offset pages."""

from __future__ import annotations

from django.urls import path

from console.broker.offsets import views

app_name = "offsets"
urlpatterns = [
    path("", views.index, name="index"),
    path("preview/", views.preview, name="preview"),
    path("restore/<int:entry>/", views.restore, name="restore"),
    path("following/<int:entry>/", views.following, name="following"),
    path("apply/", views.apply, name="apply"),
]
