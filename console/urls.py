"""The root URL patterns: one line per part of the console."""

from __future__ import annotations

from django.urls import include, path

from console import gallery
from console.observe.scraping import views as scraping
from console.ui import health, words

urlpatterns = [
    path("", include("console.observe.overview.urls")),
    path("live/", include("console.messages.tracing.urls")),
    path("brokers/accounts/", include("console.broker.broker_accounts.urls")),
    path("brokers/", include("console.broker.brokers.urls")),
    path("history/", include("console.observe.history.urls")),
    path("marks/", include("console.observe.marks.urls")),
    path("topics/", include("console.broker.topics.urls")),
    path("groups/", include("console.broker.groups.urls")),
    path("producers/", include("console.broker.clients.urls")),
    path("offsets/", include("console.broker.offsets.urls")),
    path("files/", include("console.broker.files.urls")),
    path("messages/send/", include("console.messages.sending.urls")),
    path("messages/family/", include("console.messages.family.urls")),
    path("messages/", include("console.messages.browse.urls")),
    path("dead-letters/", include("console.messages.dead_letters.urls")),
    path("reports/", include("console.data.reports.urls")),
    path("lake/", include("console.data.lake.urls")),
    path("sql/", include("console.data.sql.urls")),
    path("demo/", include("console.demo.urls")),
    path("alerts/", include("console.observe.alerts.urls")),
    path("audit/", include("console.people.audit.urls")),
    path("accounts/", include("console.people.accounts.urls")),
    path("people/", include("console.people.accounts.people_urls")),
    path("api/", include("console.api.urls")),
    path("masking/", include("console.people.masking.urls")),
    path("ui/", gallery.gallery, name="gallery"),
    path("palette/", include("console.palette.urls")),
    path("settings/", include("console.people.preferences.urls")),
    path("words/<str:language>.js", words.words, name="words"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", scraping.metrics, name="metrics"),
]

handler400 = "console.error_pages.bad_request"
handler403 = "console.error_pages.permission_denied"
handler404 = "console.error_pages.not_found"
handler500 = "console.error_pages.server_error"
