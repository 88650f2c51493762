"""Pages of brokers: the list; a broker's metrics and history; promotion of a slave."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from django.contrib import messages
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _, gettext_lazy

from console.accounts.permissions import administrators_form, page
from console.broker.brokers.services import apply_promotion, danger_of, promotion_message, set_of
from console.gateway import listeners
from console.gateway.access import gateway
from console.gateway.answers import MASTER_ID, RuntimeInfo
from console.gateway.errors import GatewayError
from console.lib.moment import now_ms
from console.observe.history import metrics
from console.observe.history.charts import LAG_CHARTS, MIB, SLAVES_CHARTS
from console.observe.history.metrics import BROKER
from console.observe.history.pages import history_context
from console.observe.history.reading import Spark, is_kept, subject_sparks
from console.observe.history.series import Line
from console.observe.overview.services import current_summary
from console.ui.copies import CopyText, json_text, mqadmin, mqadmin_text
from console.ui.danger import ask, is_confirmed

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.gateway.answers import BrokerNode
    from console.gateway.listeners import Listener
    from console.observe.history.charts import Chart
    from console.observe.overview.replication import BrokerSet

LABELS = {
    listeners.REMOTING: gettext_lazy("Remoting clients"),
    listeners.GRPC: gettext_lazy("gRPC clients"),
    listeners.REPLICATION: gettext_lazy("Slaves"),
    listeners.METRICS: "Prometheus",
}
TLS = {
    listeners.ENFORCING: gettext_lazy("TLS only"),
    listeners.PERMISSIVE: gettext_lazy("TLS or cleartext"),
    listeners.DISABLED: gettext_lazy("Cleartext only"),
}


@page
def listing(request: HttpRequest) -> HttpResponse:
    """List the brokers, as the overview does, and how their slaves follow."""
    return render(request, "brokers/list.html", {"summary": current_summary()})


@page
def detail(request: HttpRequest, broker_name: str, broker_id: int) -> HttpResponse:
    """Show a broker, or only its history if the broker doesn't respond."""
    name = f"{broker_name}:{broker_id}"
    node: BrokerNode | None = None
    answer: RuntimeInfo | GatewayError | None
    sets: tuple[BrokerSet, ...] = ()
    ports: tuple[Listener, ...] = ()
    try:
        cluster = gateway().cluster.registered()
        node = next((e for e in cluster.nodes if is_called(e, broker_name, broker_id)), None)
        sets = set_of(cluster, broker_name)
        answer = gateway().cluster.runtime().get(node.address) if node is not None else None
        # A broker that didn't report its figures wouldn't report its ports, either.
        ports = ports_of(node) if node is not None and isinstance(answer, RuntimeInfo) else ()
    except GatewayError as error:
        answer = error
    if node is None and not is_kept(BROKER, name):
        if isinstance(answer, GatewayError):
            raise answer
        raise Http404
    # These charts are empty without slaves; an unreachable broker may have had some.
    more: tuple[Chart, ...] = LAG_CHARTS if sets or node is None else ()
    if more and broker_id == MASTER_ID:
        more += SLAVES_CHARTS
    context = history_context(request, BROKER, name, more) | {
        "broker_name": broker_name,
        "node": node,
        "info": answer if isinstance(answer, RuntimeInfo) else None,
        "problem": answer if isinstance(answer, GatewayError) else None,
        "sets": sets,
        "listeners": [(port, LABELS[port.kind], TLS.get(port.tls, "")) for port in ports],
        "copies": copies_of(node) if node is not None else [],
        "sparks": sparks_of(name, now_ms()),
        "read_at_ms": sets[0].read_at_ms if sets else None,
    }
    return render(request, "brokers/detail.html", context)


def ports_of(node: BrokerNode) -> tuple[Listener, ...]:
    """Return a broker's ports, or nothing if it doesn't respond."""
    try:
        return listeners.listeners_of(node, gateway().cluster.configuration(node))
    except GatewayError:
        return ()


def sparks_of(name: str, at_ms: int) -> dict[str, Spark]:
    """Return the last hour of the metrics on the tiles, if they are stored."""
    lines = {
        "put": Line("", metrics.PUT),
        "got": Line("", metrics.GOT),
        "log": Line("", metrics.LOG_BYTES, scale=MIB),
        "disk": Line("", metrics.DISK_USED, scale=MIB),
    }
    return subject_sparks(BROKER, name, lines, at_ms)


def copies_of(node: BrokerNode) -> list[CopyText]:
    """Return commands that query the broker from elsewhere."""
    asked = [
        mqadmin("brokerStatus", {"b": node.address}),
        mqadmin("getBrokerConfig", {"b": node.address}),
        mqadmin("clusterList", {"m": None}),
    ]
    return [
        mqadmin_text(asked),
        json_text(asdict(node)),
        CopyText(_("Address"), node.address),
    ]


def is_called(node: BrokerNode, broker_name: str, broker_id: int) -> bool:
    return (node.broker_name, node.broker_id) == (broker_name, broker_id)


@administrators_form
def promote(request: HttpRequest, broker_name: str, broker_id: int) -> HttpResponse:
    """Promote a slave to master if its address was typed."""
    cluster = gateway().cluster.registered()
    node = next((each for each in cluster.nodes if is_called(each, broker_name, broker_id)), None)
    if node is None:
        raise Http404
    danger = danger_of(node)
    if request.method != "POST":
        return ask(request, danger)
    if danger.refusal or not is_confirmed(request, danger):
        problem = _("Nothing was promoted. Type the slave's address exactly as shown.")
        return ask(request, replace(danger, problem=danger.refusal or problem))
    try:
        done = apply_promotion(request, node, is_forced=request.POST.get("force") == "on")
    except GatewayError as error:
        return ask(request, replace(danger, problem=error.what))
    messages.success(request, promotion_message(node, done))
    return redirect("overview:index")
