"""The root URL patterns: one line per part of the console."""

from __future__ import annotations

from django.urls import include, path

from console.scraping import views as scraping
from console.ui import gallery, health, words

urlpatterns = [
    path("", include("console.overview.urls")),
    path("live/", include("console.tracing.urls")),
    path("brokers/accounts/", include("console.broker_accounts.urls")),
    path("brokers/", include("console.brokers.urls")),
    path("history/", include("console.history.urls")),
    path("marks/", include("console.marks.urls")),
    path("topics/", include("console.topics.urls")),
    path("groups/", include("console.groups.urls")),
    path("producers/", include("console.clients.urls")),
    path("offsets/", include("console.offsets.urls")),
    path("files/", include("console.files.urls")),
    path("messages/send/", include("console.sending.urls")),
    path("messages/family/", include("console.family.urls")),
    path("messages/", include("console.browse.urls")),
    path("dead-letters/", include("console.dead_letters.urls")),
    path("reports/", include("console.reports.urls")),
    path("lake/", include("console.lake.urls")),
    path("sql/", include("console.sql.urls")),
    path("demo/", include("console.demo.urls")),
    path("alerts/", include("console.alerts.urls")),
    path("audit/", include("console.audit.urls")),
    path("accounts/", include("console.accounts.urls")),
    path("people/", include("console.accounts.people_urls")),
    path("api/", include("console.api.urls")),
    path("masking/", include("console.masking.urls")),
    path("ui/", gallery.gallery, name="gallery"),
    path("palette/", include("console.palette.urls")),
    path("settings/", include("console.preferences.urls")),
    path("words/<str:language>.js", words.words, name="words"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", scraping.metrics, name="metrics"),
]

handler400 = "console.ui.views.bad_request"
handler403 = "console.ui.views.permission_denied"
handler404 = "console.ui.views.not_found"
handler500 = "console.ui.views.server_error"
