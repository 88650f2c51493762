"""The texts of an alert: title, subject, evidence and page."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django.urls import reverse
from django.utils.translation import gettext as _, ngettext

from console.observe.alerts.models import Rule
from console.observe.alerts.observing import QUERY
from console.observe.alerts.series import SERIES
from console.observe.history.places import place_of
from console.observe.verdicts.judge import Verdict
from console.observe.verdicts.words import shown
from console.ui.templatetags.ui import grouped

if TYPE_CHECKING:
    from console.observe.alerts.models import Alert


class Words(NamedTuple):
    """An alert's texts; `url` is the path of its subject's page, or ""."""

    title: str
    subject: str
    evidence: str
    step: str
    url: str


def number(value: float) -> str:
    if abs(value) >= 100 or value == round(value):
        return grouped(round(value))
    return f"{value:.2f}".rstrip("0").rstrip(".")


def words_of(alert: Alert) -> Words:
    """Return an alert's texts in the active language."""
    if alert.kind == QUERY:
        return of_query(alert)
    subject, url = place_of(alert.kind, alert.broker, alert.name)
    series = SERIES.get(alert.what)
    if series is not None:
        return Words(series.title, subject, threshold_text(alert), "", url)
    verdict = Verdict(
        alert.what,
        alert.severity,
        alert.kind,
        alert.broker,
        alert.name,
        alert.began_ms,
        alert.began_ms,
        {name: each for name, each in alert.evidence.items() if not isinstance(each, str)},
        {name: each for name, each in alert.evidence.items() if isinstance(each, str)},
    )
    issue = shown(verdict)
    if issue is None:
        return Words(alert.what, subject, "", "", url)
    return Words(issue.title, issue.subject, issue.evidence, issue.step, issue.url)


def of_query(alert: Alert) -> Words:
    """Return the texts for a scheduled query's result; its page has the rows."""
    number_of_query = alert.what.partition(" ")[2]
    address = reverse("sql:schedule", args=[int(number_of_query)])
    count = round(float(alert.evidence.get("rows", 0)))
    rows = ngettext(
        "The query returned %(count)s row.", "The query returned %(count)s rows.", count
    )
    return Words(
        _("a scheduled query returns rows"),
        alert.name,
        rows % {"count": grouped(count)},
        _("Check the rows of its last run."),
        address,
    )


def threshold_text(alert: Alert) -> str:
    """Return the value that fired; the rule may have a different threshold by now."""
    unit = f" {SERIES[alert.what].unit}" if SERIES[alert.what].unit else ""
    level, value = alert.evidence.get("level"), alert.evidence.get("value")
    compare = alert.evidence.get("compare")
    if compare == Rule.Compare.MISSING:
        return _("The metric had a value within the last hour but doesn't now.")
    if value is None or level is None:
        return _("The value is unknown.")
    values = {"value": f"{number(value)}{unit}", "level": f"{number(level)}{unit}"}
    if compare == Rule.Compare.BELOW:
        return _("%(value)s, below %(level)s.") % values
    return _("%(value)s, above %(level)s.") % values
