"""URL patterns of the alert pages."""

from __future__ import annotations

from django.urls import path

from console.observe.alerts import channel_views, rule_views, silencing, views, window_views

app_name = "alerts"
urlpatterns = [
    path("", views.current, name="list"),
    path("history/", views.history, name="history"),
    path("a/<int:pk>/silence/", views.silence_alert, name="silence"),
    path("silences/<int:pk>/end/", views.end_silence, name="silence-end"),
    path("silence/<str:token>/", silencing.by_link, name="silence-link"),
    path("rules/", rule_views.listing, name="rules"),
    path("rules/new/", rule_views.create, name="rule-create"),
    path("rules/preview/", rule_views.show_preview, name="rule-preview"),
    path("rules/<int:pk>/", rule_views.edit, name="rule-edit"),
    path("rules/<int:pk>/switch/", rule_views.switch, name="rule-switch"),
    path("rules/<int:pk>/delete/", rule_views.delete, name="rule-delete"),
    path("channels/", channel_views.listing, name="channels"),
    path("channels/new/", channel_views.create, name="channel-create"),
    path("channels/preferences/", channel_views.preferences_form, name="preferences"),
    path("channels/<int:pk>/", channel_views.edit, name="channel-edit"),
    path("channels/<int:pk>/log/", channel_views.log, name="channel-log"),
    path("channels/<int:pk>/test/", channel_views.test, name="channel-test"),
    path("channels/<int:pk>/delete/", channel_views.delete, name="channel-delete"),
    path("maintenance/", window_views.listing, name="windows"),
    path("maintenance/new/", window_views.create, name="window-create"),
    path("maintenance/<int:pk>/", window_views.edit, name="window-edit"),
    path("maintenance/<int:pk>/delete/", window_views.delete, name="window-delete"),
]
