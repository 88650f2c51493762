"""Addresses of brokers."""

from __future__ import annotations

from django.urls import path

from console.brokers import views

app_name = "brokers"
urlpatterns = [
    path("b/<str:broker_name>/<int:broker_id>/", views.detail, name="detail"),
    path("b/<str:broker_name>/<int:broker_id>/promote/", views.promote, name="promote"),
]
