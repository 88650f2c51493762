"""URLs of the masking rules."""

from __future__ import annotations

from django.urls import path

from console.people.masking import views

app_name = "masking"
urlpatterns = [
    path("", views.listing, name="list"),
    path("new/", views.create, name="create"),
    path("<int:rule>/", views.edit, name="edit"),
    path("<int:rule>/delete/", views.delete, name="delete"),
]
