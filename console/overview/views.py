"""Views of the overview."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib import messages
from django.http import JsonResponse
from django.shortcuts import redirect, render
from django.utils.safestring import SafeString
from django.utils.translation import get_language, gettext as _

from console.accounts.permissions import administrators_action, page
from console.audit.record import change
from console.demo.process import demo_process
from console.flow.pages import shared_flow
from console.gateway.access import gateway
from console.gateway.answers import RuntimeInfo
from console.gateway.errors import GatewayError, UnconfirmedBrokerError
from console.gateway.known import known_addresses
from console.gateway.moment import now_ms
from console.history.reading import collector_state
from console.overview.history import Sample, history
from console.overview.shared import Shared
from console.overview.states import Finding, State
from console.overview.summary import BrokerRow, Summary, summarize, total
from console.verdicts.reading import current_verdicts

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

SINCE_DIGITS_MAX = 16
SUMMARY_KEPT_MS = 4_000

shared_summary: Shared[Summary] = Shared(SUMMARY_KEPT_MS)


@page
def index(request: HttpRequest) -> HttpResponse:
    """Show the whole page, with the current state in it."""
    context = {
        "summary": summarize_now(),
        "demo": demo_process.state(),
        "flow": SafeString(shared_flow.html(now_ms())),
        "name_server_first": settings.TREBUCHET_NAMESRV[0],
    }
    return render(request, "overview/index.html", context)


@page
def summary(request: HttpRequest) -> HttpResponse:
    """Show the part that refreshes itself; all who watch share what brokers are asked."""
    now = shared_summary.get(get_language() or "", now_ms(), summarize_now)
    return render(request, "overview/_summary.html", {"summary": now, "is_refresh": True})


@page
def rates(request: HttpRequest) -> HttpResponse:
    """Answer the samples after `since` (ms): [[ms, put a second, get a second], ..]."""
    since = request.GET.get("since", "0")
    after_ms = (
        int(since) if since.isascii() and since.isdigit() and len(since) < SINCE_DIGITS_MAX else 0
    )
    problem = ""
    try:
        history.sample(now_ms(), take_sample)
    except GatewayError as error:
        problem = error.what
    return JsonResponse(
        {"samples": history.since(after_ms), "problem": problem, "readAtMs": now_ms()}
    )


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
        with change(request, "broker.confirm", f"{broker_name} {address}"):
            known_addresses().confirm(address)
        messages.success(request, _("Broker %(broker)s at %(address)s is confirmed.") % said)
    return redirect("overview:index")


def summarize_now() -> Summary:
    brokers = gateway()
    summary = summarize(brokers.cluster, brokers.topics, brokers.groups)
    findings = summary.findings
    collector = collector_state(now_ms())
    if not collector.is_alive:
        # Nobody looks at trends: what is read now may be good, and worsen.
        what = _("The collector does not sample, so nobody sees what worsens.")
        findings = (*findings, Finding(State.WARN, what))
    return replace(summary, findings=findings, verdicts=tuple(current_verdicts()))


def take_sample() -> Sample:
    answers = gateway().cluster.runtime()
    rows = [
        BrokerRow(info.node, info, None)
        for info in answers.values()
        if isinstance(info, RuntimeInfo)
    ]
    for answer in answers.values():
        # Figures of brokers that are not confirmed are nobody's business.
        if isinstance(answer, GatewayError) and not (
            rows and isinstance(answer, UnconfirmedBrokerError)
        ):
            raise answer
    masters = [row for row in rows if row.node.is_master]
    return Sample(now_ms(), total(masters, "put_tps").value, total(rows, "get_tps").value)
