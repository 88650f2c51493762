"""URL patterns of the API page, its tokens and its operations."""

from __future__ import annotations

from django.urls import include, path

from console.api import views
from console.api.schema import addresses

app_name = "api"
urlpatterns = [
    path("", views.index, name="index"),
    path("tokens/new/", views.create_token, name="token-create"),
    path("tokens/<int:pk>/delete/", views.delete_token, name="token-delete"),
    path("v1/openapi.json", views.schema, name="openapi"),
    path("v1/", include((addresses(), "v1"))),
]
