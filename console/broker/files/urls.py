"""URL patterns of the configuration file pages."""

from __future__ import annotations

from django.urls import path

from console.broker.files import import_export_views, views

app_name = "files"
urlpatterns = [
    path("", views.index, name="index"),
    path("import/", import_export_views.import_, name="import"),
    path("export/", import_export_views.export, name="export"),
    path("drift/", import_export_views.drift, name="drift"),
    path("drift/<str:broker_name>/<str:file>/", import_export_views.match_others, name="alike"),
    path("schema/<str:file>/", views.schema, name="schema"),
    path("b/<str:broker_name>/<str:file>/", views.show, name="show"),
    path("b/<str:broker_name>/<str:file>/download/", views.download, name="download"),
    path("b/<str:broker_name>/<str:file>/edit/", views.edit, name="edit"),
    path("b/<str:broker_name>/<str:file>/history/", views.history, name="history"),
    path("version/<int:pk>/restore/", views.restore, name="restore"),
    path("undo/<int:entry>/", views.undo, name="undo"),
]
