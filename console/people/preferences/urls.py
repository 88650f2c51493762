"""URLs of a person's settings and places."""

from __future__ import annotations

from django.urls import path

from console.people.preferences import views

app_name = "preferences"
urlpatterns = [
    path("", views.own, name="own"),
    path("theme/", views.theme, name="theme"),
    path("language/", views.language, name="language"),
    path("place/", views.place, name="place"),
]
