"""The forms of the report pages: start a run, edit a schedule."""

from __future__ import annotations

from typing import Any

from celery.schedules import ParseException, crontab_parser
from django import forms
from django.utils.translation import gettext_lazy as _

from console.reports import catalog

TOPIC_CHARS_MAX = 255
EVERY_MAX = 999
# Field by field: what a cron expression counts, from where.
CRON_FIELDS = (
    (_("minute"), 60, 0),
    (_("hour"), 24, 0),
    (_("day of month"), 31, 1),
    (_("month"), 12, 1),
    (_("day of week"), 7, 0),
)
CRON_CHARS_MAX = 200

RANGES = [
    ("1", _("Last hour")),
    ("6", _("Last 6 hours")),
    ("24", _("Last 24 hours")),
    ("168", _("Last 7 days")),
    ("720", _("Last 30 days")),
    ("", _("Everything in the log")),
]


class ParametersForm(forms.Form):
    """What a run counts: the time range, perhaps one topic."""

    hours = forms.ChoiceField(label=_("Time range"), choices=RANGES, initial="24", required=False)
    topic = forms.CharField(
        label=_("Topic"),
        required=False,
        max_length=TOPIC_CHARS_MAX,
        help_text=_("Empty: all topics."),
        widget=forms.TextInput(attrs={"list": "report-topics", "autocomplete": "off"}),
    )

    def parameters(self) -> dict[str, Any]:
        """Return the run's parameters, without those left open."""
        hours, topic = self.cleaned_data["hours"], self.cleaned_data["topic"].strip()
        return {
            **({"hours": int(hours)} if hours else {}),
            **({"topic": topic} if topic else {}),
        }


class StartForm(ParametersForm):
    """A run by hand."""

    report = forms.ChoiceField(
        label=_("Report"),
        choices=[(report.name, report.title) for report in catalog.REPORTS.values()],
        initial="traffic",
    )
    field_order = ["report", "hours", "topic"]


class ScheduleForm(ParametersForm):
    """When a schedule runs, and what it counts."""

    KINDS = [("interval", _("Every so often")), ("cron", _("At set times"))]
    PERIODS = [("minutes", _("minutes")), ("hours", _("hours")), ("days", _("days"))]

    enabled = forms.BooleanField(label=_("Runs by itself"), required=False)
    kind = forms.ChoiceField(label=_("Repeats"), choices=KINDS)
    every = forms.IntegerField(
        label=_("Every"), min_value=1, max_value=EVERY_MAX, initial=1, required=False
    )
    period = forms.ChoiceField(label=_("Unit"), choices=PERIODS, initial="hours", required=False)
    cron = forms.CharField(
        label=_("Times (cron, UTC)"),
        required=False,
        max_length=CRON_CHARS_MAX,
        help_text=_(
            "Minute, hour, day of month, month, day of week: “0 * * * *” is every hour, "
            "“30 6 * * 1-5” is 06:30 on working days."
        ),
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off"}),
    )
    field_order = ["enabled", "kind", "every", "period", "cron", "hours", "topic"]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("kind") == "interval":
            if not cleaned.get("every") and "every" not in self.errors:
                self.add_error("every", _("Say how often."))
            if not cleaned.get("period"):
                self.add_error("period", _("Say which unit."))
        elif cleaned.get("kind") == "cron" and "cron" not in self.errors:
            try:
                cleaned["cron"] = checked_cron(cleaned.get("cron") or "")
            except ValueError as error:
                self.add_error("cron", str(error))
        return cleaned


def checked_cron(text: str) -> str:
    """Return five cron fields, one blank apart.

    Raises:
        ValueError: which field is wrong.
    """
    fields = text.split()
    if len(fields) != len(CRON_FIELDS):
        raise ValueError("Five fields are needed: minute, hour, day of month, month, day of week.")
    for field, (name, count, first) in zip(fields, CRON_FIELDS, strict=True):
        try:
            crontab_parser(count, first).parse(field)
        except (ParseException, ValueError) as error:
            raise ValueError(f"The field {name} cannot be {field!r}.") from error
    return " ".join(fields)
