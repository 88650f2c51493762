"""The overview's summary, shared between viewers, and its issues, for pages and the API."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from django.utils.translation import get_language, gettext as _

from console.gateway.access import gateway
from console.gateway.known_addresses import known_addresses
from console.gateway.shared import Shared
from console.lib.moment import now_ms
from console.observe.history.metrics import GROUP, LAG, PROCESS, PUT, TOPIC
from console.observe.history.reading import collector_state, sparks
from console.observe.history.series import Aspect, Line
from console.observe.overview.issues import Issues
from console.observe.overview.sparks import broker_sparks, sparks_now
from console.observe.overview.states import Finding, State
from console.observe.overview.summary import Summary, summarize
from console.observe.verdicts.judge import HELD_MS
from console.observe.verdicts.reading import current_verdicts, judged_ms
from console.people.audit.record import change

if TYPE_CHECKING:
    from django.http import HttpRequest

SUMMARY_KEPT_MS = 4_000
ISSUES_KEPT_MS = 30_000

shared_summary: Shared[Summary] = Shared(SUMMARY_KEPT_MS)


def confirm_broker(request: HttpRequest, broker_name: str, address: str) -> None:
    """Allow requests to the broker at an address, with an audit entry."""
    with change(request, "broker.confirm", f"{broker_name} {address}"):
        known_addresses().confirm(address)
    shared_summary.forget()


def current_summary() -> Summary:
    """Return the summary, shared between viewers for a short time.

    Raises:
        GatewayError: no name server responds.
    """
    return shared_summary.get(get_language() or "", now_ms(), summarize_now)


def known_issues() -> Issues:
    """Return the issues for the frame of a page, without asking a broker.

    These come from a recent overview. Without one, only the verdicts of the rules are returned.
    """
    known = shared_summary.peek(get_language() or "", now_ms(), ISSUES_KEPT_MS)
    if known is not None:
        return known.issues
    return Issues.of([], current_verdicts(), is_judged=True)


def summarize_now() -> Summary:
    brokers = gateway()
    verdicts = current_verdicts()
    summary = summarize(brokers.cluster, brokers.topics, brokers.groups, verdicts)
    judged = judged_ms()
    findings = (*summary.findings, *unchecked(judged, now_ms()))
    return replace(
        with_sparks(summary, now_ms()),
        findings=findings,
        is_judged=judged > 0,
        sparks=sparks_now(now_ms()),
    )


def unchecked(judged_at_ms: int, at_ms: int) -> list[Finding]:
    """Return why trends aren't being checked: current readings can be good but getting worse."""
    what = ""
    if not collector_state(at_ms).is_alive:
        what = _("The collector isn't sampling, so new issues aren't detected.")
    elif judged_at_ms and at_ms - judged_at_ms >= HELD_MS:
        what = _("The rules haven't run for over 2 minutes, so new issues aren't detected.")
    return [Finding(State.WARN, what, PROCESS)] if what else []


def with_sparks(summary: Summary, at_ms: int) -> Summary:
    """Return the summary with the last hour in each row."""
    topics = sparks(TOPIC, [row.topic.name for row in summary.topics], Line("", PUT), at_ms)
    lag = Line("", LAG, Aspect.PEAK)
    groups = sparks(GROUP, [row.progress.group for row in summary.groups], lag, at_ms)
    brokers = broker_sparks(at_ms)
    return replace(
        summary,
        topics=tuple(replace(row, spark=topics.get(row.topic.name)) for row in summary.topics),
        groups=tuple(replace(row, spark=groups.get(row.progress.group)) for row in summary.groups),
        brokers=tuple(
            replace(row, spark=brokers.get((row.node.broker_name, row.node.broker_id)))
            for row in summary.brokers
        ),
    )
