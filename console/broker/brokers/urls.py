"""URL patterns of the broker pages."""

from __future__ import annotations

from django.urls import path

from console.broker.brokers import (
    configuration_views,
    delay_views,
    internals_views,
    kv_views,
    naming_views,
    transaction_views,
    views,
)

app_name = "brokers"
urlpatterns = [
    path("", views.listing, name="list"),
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
    path("b/<str:broker_name>/<int:broker_id>/inside/", internals_views.inside, name="inside"),
    path("b/<str:broker_name>/<int:broker_id>/delays/", delay_views.delays, name="delays"),
    path("name-servers/", naming_views.name_servers, name="name-servers"),
    path("name-servers/put/", kv_views.put, name="kv-put"),
    path(
        "name-servers/kv/<str:namespace>/<path:key>/delete/",
        kv_views.remove,
        name="kv-delete",
    ),
    path("name-servers/undo/<int:entry>/", kv_views.undo, name="kv-undo"),
    path("name-servers/write/<str:broker_name>/", naming_views.writable, name="write-perm"),
    path("name-servers/write-undo/<int:entry>/", naming_views.write_undo, name="write-undo"),
    path("undo/<int:entry>/", configuration_views.undo, name="undo"),
]
