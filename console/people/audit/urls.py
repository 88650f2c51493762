"""URL patterns of the audit log pages."""

from __future__ import annotations

from django.urls import path

from console.people.audit import views

app_name = "audit"
urlpatterns = [
    path("", views.listing, name="list"),
    path("export/<str:kind>/", views.export, name="export"),
]
