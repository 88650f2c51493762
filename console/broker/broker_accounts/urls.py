"""URL patterns of the broker account pages."""

from __future__ import annotations

from django.urls import path

from console.broker.broker_accounts import views

app_name = "broker_accounts"
urlpatterns = [
    path("", views.listing, name="list"),
    path("may/", views.may, name="may"),
    path("new/", views.create, name="create"),
    path("white/", views.white, name="white"),
    path("undo/<int:entry>/", views.undo, name="undo"),
    path("a/<path:access_key>/edit/", views.edit, name="edit"),
    path("a/<path:access_key>/secret/", views.renew, name="renew"),
    path("a/<path:access_key>/delete/", views.delete, name="delete"),
]
