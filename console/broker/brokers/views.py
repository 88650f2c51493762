"""Pages of brokers: the list; a broker's metrics and history; promotion of a slave."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from django.contrib import messages
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy

from console.accounts.permissions import administrators_form, page
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
from console.observe.overview.replication import sets_of
from console.observe.overview.views import current_summary
from console.people.audit.record import change
from console.ui.copies import CopyText, json_text, mqadmin, mqadmin_text
from console.ui.danger import Choice, Danger, Effect, ask, is_confirmed

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.gateway.answers import BrokerNode, Cluster, Promoted
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


def set_of(cluster: Cluster, broker_name: str) -> tuple[BrokerSet, ...]:
    """Return a broker's set if it has a slave."""
    if all(each.broker_name != broker_name for each in cluster.in_sets):
        return ()
    found = sets_of(cluster, gateway().cluster.replication())
    return tuple(each for each in found if each.broker_name == broker_name)


def is_called(node: BrokerNode, broker_name: str, broker_id: int) -> bool:
    return (node.broker_name, node.broker_id) == (broker_name, broker_id)


def danger_of(node: BrokerNode) -> Danger:
    """Return the confirmation for a promotion, with the amount of data only the old master has."""
    ends = {
        each.node.broker_id: each.max_offset
        for each in gateway().cluster.replication().values()
        if not isinstance(each, GatewayError) and each.node.broker_name == node.broker_name
    }
    master, own = ends.get(MASTER_ID), ends.get(node.broker_id)
    return Danger(
        title=_("Promote %(address)s to master of %(name)s?")
        % {"address": node.address, "name": node.broker_name},
        text=_(
            "The slave starts accepting messages. When the old master returns, it becomes the "
            "slave. Messages that exist only on the old master are saved separately there and are "
            "no longer visible to consumers."
        ),
        effects=(
            Effect(
                _("CommitLog bytes that only the master has"),
                None if master is None or own is None else max(0, master - own),
                _("as both currently report"),
                is_bad=True,
            ),
        ),
        choices=(
            Choice(
                "force",
                _(
                    "Promote even if the old master may still be running. Consumers won't receive "
                    "messages that it accepts from now on."
                ),
            ),
        ),
        undo=_(
            "You can't undo this directly, but you can promote the old master again once it's "
            "in sync."
        ),
        action=_("Promote"),
        keep=_("Cancel"),
        address=reverse("brokers:promote", args=[node.broker_name, node.broker_id]),
        back=reverse("brokers:detail", args=[node.broker_name, node.broker_id]),
        name=node.address,
        icon="triangle-alert",
        refusal=_("This broker is already the master.") if node.is_master else "",
    )


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
    messages.success(
        request,
        _("%(address)s is now the master of %(name)s, in epoch %(epoch)d.")
        % {"address": node.address, "name": broker_name, "epoch": done.epoch},
    )
    return redirect("overview:index")


def apply_promotion(request: HttpRequest, node: BrokerNode, *, is_forced: bool) -> Promoted:
    """Promote a slave to master under an audit log entry.

    Raises:
        GatewayError: the slave rejected it.
    """
    subject = f"{node.broker_name}:{node.broker_id} {node.address}"
    with change(request, "broker.promote", subject, before={"force": is_forced}) as entry:
        done = gateway().cluster.promote(node, force=is_forced)
        entry.after = {
            "epoch": done.epoch,
            "start_offset": str(done.start_offset),
            "broker_role": done.broker_role,
        }
    return done
