"""Views of the overview."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_action, page
from console.demo.process import demo_process
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.lib.moment import now_ms
from console.observe.flow.pages import shared_flow
from console.observe.history.charts import CLUSTER_CHART
from console.observe.history.pages import chart_row
from console.observe.history.range import requested_range
from console.observe.history.reading import collector_state
from console.observe.overview.issues import Issues
from console.observe.overview.services import confirm_broker, current_summary
from console.observe.overview.states import Finding, State
from console.observe.verdicts.reading import current_verdicts

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

RANGE = "15m"


@page
def index(request: HttpRequest) -> HttpResponse:
    """Show the whole page with the current state, or the history if brokers don't respond."""
    asked = requested_range(request.GET, now_ms(), RANGE)
    context: dict[str, Any] = {
        "time_range": asked,
        "chart": chart_row(CLUSTER_CHART, "all", asked.query),
        "flow": SafeString(shared_flow.html(now_ms())),
    }
    try:
        summary = current_summary()
    except GatewayError as error:
        context |= {
            "problem": error,
            "name": _("Overview"),
            "collector": collector_state(now_ms()),
            "issues": issues_without_brokers(error),
        }
        return render(request, "overview/gone.html", context, status=503)
    context |= {
        "summary": summary,
        "demo": demo_process.state(),
    }
    return render(request, "overview/index.html", context)


def issues_without_brokers(error: GatewayError) -> Issues:
    """Return the issues while no name server responds: that, and the rules' last verdicts."""
    return Issues.of([Finding(State.BAD, error.what)], current_verdicts(), is_judged=True)


@page
def summary(request: HttpRequest) -> HttpResponse:
    """Show the part that refreshes itself; all viewers share the broker requests."""
    summary = current_summary()
    was_empty = request.GET.get("was") == "empty"
    context = {
        "summary": summary,
        "is_refresh": True,
        "was_empty": was_empty,
        "demo": demo_process.state(),
    }
    response = render(request, "overview/_summary.html", context)
    if was_empty and not summary.is_empty:
        # The page for an empty cluster differs, so reload it entirely.
        response["HX-Refresh"] = "true"
    return response


@administrators_action
def confirm(request: HttpRequest) -> HttpResponse:
    """Allow requests to a registered broker, if its name and address are as shown."""
    broker_name, address = request.POST.get("broker_name", ""), request.POST.get("address", "")
    names = {"broker": broker_name, "address": address}
    nodes = gateway().cluster.registered().nodes
    if not any((node.broker_name, node.address) == (broker_name, address) for node in nodes):
        messages.error(
            request,
            _("Broker %(broker)s is no longer registered at %(address)s, so it wasn't confirmed.")
            % names,
        )
    else:
        confirm_broker(request, broker_name, address)
        messages.success(request, _("Broker %(broker)s at %(address)s was confirmed.") % names)
    return redirect("overview:index")
