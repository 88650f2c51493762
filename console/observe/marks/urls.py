"""URLs of marks."""

from __future__ import annotations

from django.urls import path

from console.observe.marks import views

app_name = "marks"
urlpatterns = [
    path("", views.listing, name="list"),
    path("add/", views.add, name="add"),
    path("api/", views.api, name="api"),
    path("<int:pk>/delete/", views.delete, name="delete"),
    path("tokens/new/", views.create_token, name="token-create"),
    path("tokens/<int:pk>/delete/", views.delete_token, name="token-delete"),
]
