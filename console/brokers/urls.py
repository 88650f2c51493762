"""Addresses of brokers."""

from __future__ import annotations

from django.urls import path

from console.brokers import configuration_views, delay_views, transaction_views, views

app_name = "brokers"
urlpatterns = [
    path("b/<str:broker_name>/<int:broker_id>/", views.detail, name="detail"),
    path("b/<str:broker_name>/<int:broker_id>/promote/", views.promote, name="promote"),
    path(
        "b/<str:broker_name>/<int:broker_id>/configuration/",
        configuration_views.listing,
        name="configuration",
    ),
    path(
        "b/<str:broker_name>/<int:broker_id>/configuration/<str:key>/",
        configuration_views.edit,
        name="key",
    ),
    path(
        "b/<str:broker_name>/<int:broker_id>/transactions/",
        transaction_views.transactions,
        name="transactions",
    ),
    path(
        "b/<str:broker_name>/<int:broker_id>/transactions/<int:offset>/",
        transaction_views.decide,
        name="decide",
    ),
    path("b/<str:broker_name>/<int:broker_id>/delays/", delay_views.delays, name="delays"),
    path("undo/<int:entry>/", configuration_views.undo, name="undo"),
]
