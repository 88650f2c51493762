"""URL patterns of the message pages."""

from __future__ import annotations

from django.urls import path

from console.messages.browse import lookups, search_views, views

app_name = "browse"
urlpatterns = [
    path("", search_views.search, name="search"),
    path("scan/", search_views.scan, name="scan"),
    path("distribution/", search_views.distribution, name="distribution"),
    path("export/<str:kind>/", search_views.export, name="export"),
    path("find/", lookups.find, name="find"),
    path("of-group/<path:group>/", search_views.of_group, name="of-group"),
    path(
        "unmask/<str:broker_name>/<int:queue_id>/<int:offset>/<path:topic>/",
        views.unmask,
        name="unmask",
    ),
    path(
        "m/<str:broker_name>/<int:queue_id>/<int:offset>/<path:topic>/",
        views.message,
        name="message",
    ),
]
