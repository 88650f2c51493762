"""Views of the overview."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.safestring import SafeString
from django.utils.translation import get_language, gettext as _

from console.accounts.permissions import administrators_action, page
from console.audit.record import change
from console.demo.process import demo_process
from console.flow.pages import shared_flow
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.gateway.known import known_addresses
from console.gateway.moment import now_ms
from console.history.charts import CLUSTER_CHART
from console.history.metrics import GROUP, LAG, PUT, TOPIC
from console.history.pages import chart_row
from console.history.range import asked_range
from console.history.reading import collector_state, sparks
from console.history.series import How, Line
from console.overview.shared import Shared
from console.overview.sparks import broker_sparks, sparks_now
from console.overview.states import Finding, State
from console.overview.summary import Summary, summarize
from console.verdicts.reading import current_verdicts

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

SUMMARY_KEPT_MS = 4_000
RANGE = "15m"

shared_summary: Shared[Summary] = Shared(SUMMARY_KEPT_MS)


@page
def index(request: HttpRequest) -> HttpResponse:
    """Show the whole page, with the current state in it; without one what the history has."""
    asked = asked_range(request.GET, now_ms(), RANGE)
    context: dict[str, Any] = {
        "time_range": asked,
        "chart": chart_row(CLUSTER_CHART, "all", asked.query),
        "flow": SafeString(shared_flow.html(now_ms())),
    }
    try:
        summary = summary_kept()
    except GatewayError as error:
        context |= {
            "problem": error,
            "name": _("Overview"),
            "collector": collector_state(now_ms()),
        }
        return render(request, "overview/gone.html", context, status=503)
    context |= {
        "summary": summary,
        "demo": demo_process.state(),
        "name_server_first": settings.TREBUCHET_NAMESRV[0],
    }
    return render(request, "overview/index.html", context)


@page
def summary(request: HttpRequest) -> HttpResponse:
    """Show the part that refreshes itself; all who watch share what brokers are asked."""
    summary = summary_kept()
    was_empty = request.GET.get("was") == "empty"
    context = {
        "summary": summary,
        "is_refresh": True,
        "was_empty": was_empty,
        "demo": demo_process.state(),
    }
    response = render(request, "overview/_summary.html", context)
    if was_empty and not summary.is_empty:
        # The page says that nothing was sent: it is another one from now on.
        response["HX-Refresh"] = "true"
    return response


@administrators_action
def confirm(request: HttpRequest) -> HttpResponse:
    """Let the console ask a broker that is registered with the name and the address as shown."""
    broker_name, address = request.POST.get("broker_name", ""), request.POST.get("address", "")
    said = {"broker": broker_name, "address": address}
    nodes = gateway().cluster.registered().nodes
    if not any((node.broker_name, node.address) == (broker_name, address) for node in nodes):
        messages.error(
            request,
            _("Broker %(broker)s is not registered at %(address)s any more; nothing is confirmed.")
            % said,
        )
    else:
        confirmed(request, broker_name, address)
        messages.success(request, _("Broker %(broker)s at %(address)s is confirmed.") % said)
    return redirect("overview:index")


def confirmed(request: HttpRequest, broker_name: str, address: str) -> None:
    """Let the console ask the broker at an address from now on, under an audit entry."""
    with change(request, "broker.confirm", f"{broker_name} {address}"):
        known_addresses().confirm(address)
    shared_summary.forget()


def summary_kept() -> Summary:
    """Return the summary that all who look at nearly the same time share.

    Raises:
        GatewayError: no name server answers.
    """
    return shared_summary.get(get_language() or "", now_ms(), summarize_now)


def summarize_now() -> Summary:
    brokers = gateway()
    summary = summarize(brokers.cluster, brokers.topics, brokers.groups)
    findings = summary.findings
    collector = collector_state(now_ms())
    if not collector.is_alive:
        # Nobody looks at trends: what is read now may be good, and worsen.
        what = _("The collector does not sample, so nobody sees what worsens.")
        findings = (*findings, Finding(State.WARN, what))
    verdicts = tuple(current_verdicts())
    known = with_pasts(summary, now_ms())
    return replace(known, findings=findings, verdicts=verdicts, sparks=sparks_now(now_ms()))


def with_pasts(summary: Summary, at_ms: int) -> Summary:
    """Return the same summary, each row with its last hour."""
    topics = sparks(TOPIC, [row.topic.name for row in summary.topics], Line("", PUT), at_ms)
    lag = Line("", LAG, How.PEAK)
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
