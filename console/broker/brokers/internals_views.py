"""The page of broker internals: threads, latencies, disk reads and damaged ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import render
from django.utils.translation import gettext as _

from console.accounts.permissions import page
from console.broker.brokers.internals_display import histograms_of, threads_of
from console.broker.brokers.services import broker_node
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@page
def inside(request: HttpRequest, broker_name: str, broker_id: int) -> HttpResponse:
    """Show a broker's internals, or why the broker doesn't report them."""
    node = broker_node(broker_name, broker_id)
    context: dict[str, object] = {"node": node, "read_at_ms": now_ms()}
    try:
        internals = gateway().cluster.internals(node)
    except GatewayError as error:
        return render(request, "brokers/inside.html", context | {"problem": error})
    words = {"put": _("Sends"), "get": _("Pulls"), "flush": _("Flushes")}
    uptime_ms = max(1, now_ms() - internals.boot_timestamp)
    context |= {
        "inside": internals,
        "histograms": [(words[each.name], each) for each in histograms_of(internals)],
        "threads": threads_of(internals),
        "busy": internals.cpu_ms / uptime_ms,
    }
    return render(request, "brokers/inside.html", context)
