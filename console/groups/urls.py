"""Addresses of the subscription group pages."""

from __future__ import annotations

from django.urls import path

from console.groups import views

app_name = "groups"
urlpatterns = [
    path("", views.listing, name="list"),
    path("new/", views.create, name="create"),
    path("g/<str:group>/edit/", views.edit, name="edit"),
    path("g/<str:group>/delete/", views.delete, name="delete"),
    path("g/<str:group>/progress/", views.progress, name="progress"),
    path("g/<str:group>/", views.detail, name="detail"),
]
