"""Brokers: registration, state, configuration and issues."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema

from console.api.operations import Need, operation
from console.api.plans import changes_of, overtaken, unchanged
from console.api.problems import ProblemError
from console.api.requestbody import json_object, valid_form
from console.api.schemas import Done, DryRun, Number, PlanOut, Text, plan_of
from console.broker.brokers.configuring import (
    KIND,
    configure,
    done_message,
    key_of,
    name_of,
    state,
    undoing,
)
from console.broker.brokers.forms import KeyForm
from console.broker.brokers.services import (
    apply_promotion,
    broker_node,
    danger_of,
    promotion_message,
    set_of,
)
from console.broker.configs.plan import Plan
from console.gateway.access import gateway
from console.gateway.answers import BrokerNode, RuntimeInfo
from console.gateway.errors import GatewayError
from console.lib.moment import now_ms
from console.observe.history.reading import collector_state
from console.observe.overview.replication import BrokerSet
from console.observe.overview.services import confirm_broker, current_summary
from console.observe.verdicts.reading import current_verdicts
from console.observe.verdicts.words import Shown
from console.people.audit.models import Entry


class BrokerOut(Schema):
    """A broker that is registered with a name server."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str
    is_master: bool


class ClusterOut(Schema):
    """A cluster and its brokers, as the name server reports them."""

    name_server: str
    read_at_ms: int
    nodes: list[BrokerOut]


class RuntimeOut(Schema):
    """A broker's own metrics; null means unknown."""

    read_at_ms: int
    version: str | None
    boot_timestamp_ms: int | None
    put_tps: float | None
    get_tps: float | None
    put_today: int | None
    get_today: int | None
    commit_log_disk_ratio: float | None
    commit_log_min_offset: int | None
    commit_log_max_offset: int | None
    earliest_message_ms: int | None
    flush_behind_bytes: int | None
    store_refuses: str | None
    damaged_ranges: int | None
    unreachable_messages: int | None
    unreachable_topics: list[str]


class SlaveOut(Schema):
    """A slave as its master reports it."""

    address: str
    behind_bytes: int
    behind_ms: int | None
    is_in_sync: bool


class BrokerDetailOut(BrokerOut):
    """A broker with its metrics, or the reason they are missing."""

    runtime: RuntimeOut | None
    problem: str
    slaves: list[SlaveOut]


class KeyOut(Schema):
    """A broker configuration key; `is_live` means it can change while the broker runs."""

    key: str
    value: str
    default: str | None
    is_live: bool
    is_changed: bool
    is_effective: bool
    is_secret: bool
    kind: str
    unit: str
    choices: list[str]


class VerdictOut(Schema):
    """An issue: its evidence, a likely cause and the next step."""

    rule: str
    severity: str
    kind: str
    broker: str
    name: str
    since_ms: int
    subject: str
    title: str
    evidence: str
    cause: str
    step: str


class FindingOut(Schema):
    """A finding on the overview."""

    state: str
    text: str


class OverviewOut(Schema):
    """The state of all brokers; a metric is null if any broker didn't report it."""

    read_at_ms: int
    is_complete: bool
    put_tps: float | None
    get_tps: float | None
    put_today: float | None
    get_today: float | None
    topic_count: int
    group_count: int
    lag: int
    findings: list[FindingOut]
    verdicts: list[VerdictOut]
    collector_is_alive: bool


@operation(
    "GET",
    "/overview",
    area="brokers",
    pages=("overview:index", "overview:summary"),
    response=OverviewOut,
)
def overview(request: HttpRequest) -> dict[str, Any]:
    """Get a summary of all brokers: metrics, findings and issues."""
    summary = current_summary()
    return {
        "read_at_ms": summary.read_at_ms,
        "is_complete": summary.is_complete,
        "put_tps": summary.put_tps.value,
        "get_tps": summary.get_tps.value,
        "put_today": summary.put_today.value,
        "get_today": summary.get_today.value,
        "topic_count": summary.topic_count,
        "group_count": summary.group_count,
        "lag": summary.lag,
        "findings": [{"state": str(each.state), "text": each.text} for each in summary.findings],
        "verdicts": [verdict_out(each) for each in summary.verdicts],
        "collector_is_alive": collector_state(now_ms()).is_alive,
    }


@operation("GET", "/verdicts", area="brokers", pages=("overview:index",), response=list[VerdictOut])
def verdicts(request: HttpRequest) -> list[VerdictOut]:
    """List current issues, most urgent first."""
    return [verdict_out(each) for each in current_verdicts()]


def verdict_out(shown: Shown) -> VerdictOut:
    verdict = shown.verdict
    return VerdictOut(
        rule=verdict.rule,
        severity=verdict.severity,
        kind=verdict.kind,
        broker=verdict.broker,
        name=verdict.name,
        since_ms=verdict.since_ms,
        subject=shown.subject,
        title=str(shown.title),
        evidence=shown.evidence,
        cause=str(shown.cause),
        step=str(shown.step),
    )


@operation(
    "GET",
    "/clusters",
    area="brokers",
    pages=("overview:index", "brokers:list"),
    response=ClusterOut,
)
def clusters(request: HttpRequest) -> Any:
    """List the brokers that are registered with the name server."""
    return gateway().cluster.registered()


@operation(
    "GET",
    "/brokers/{broker_name}/{broker_id}",
    area="brokers",
    pages=("brokers:detail",),
    response=BrokerDetailOut,
)
def broker(request: HttpRequest, broker_name: Text, broker_id: Number) -> dict[str, Any]:
    """Get a broker's metrics and its slaves."""
    node = broker_node(broker_name, broker_id)
    answer = gateway().cluster.runtime().get(node.address)
    sets = set_of(gateway().cluster.registered(), broker_name)
    return {
        **BrokerOut.from_orm(node).dict(),
        "runtime": answer if isinstance(answer, RuntimeInfo) else None,
        "problem": answer.what if isinstance(answer, GatewayError) else "",
        "slaves": [link for each in sets for link in links_of(each)],
    }


def links_of(each: BrokerSet) -> list[SlaveOut]:
    report = each.report
    return [] if report is None else [SlaveOut.from_orm(link) for link in report.links]


@operation(
    "GET",
    "/brokers/{broker_name}/{broker_id}/internals",
    area="brokers",
    pages=("brokers:inside",),
    response=dict[str, Any],
)
def broker_internals(request: HttpRequest, broker_name: Text, broker_id: Number) -> Any:
    """Get broker internals: threads, latency histograms, disk reads and damaged ranges."""
    return msgspec.to_builtins(gateway().cluster.internals(broker_node(broker_name, broker_id)))


@operation(
    "GET",
    "/brokers/{broker_name}/{broker_id}/configuration",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("brokers:configuration",),
    response=list[KeyOut],
)
def broker_configuration(request: HttpRequest, broker_name: Text, broker_id: Number) -> Any:
    """List configuration keys with value, default, and how to change them."""
    return gateway().cluster.configuration(broker_node(broker_name, broker_id))


VALUE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["value"],
    "properties": {"value": {"type": ["string", "integer"], "description": "The new value."}},
}
ADDRESS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["broker_name", "address"],
    "properties": {"broker_name": {"type": "string"}, "address": {"type": "string"}},
}


@operation(
    "PATCH",
    "/brokers/{broker_name}/{broker_id}/configuration/{key}",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("brokers:key",),
    body=VALUE,
    response=Done | PlanOut,
)
def broker_configure(
    request: HttpRequest, broker_name: Text, broker_id: Number, key: Text, dry_run: DryRun = False
) -> Done | PlanOut:
    """Change a configuration key that can change while the broker runs."""
    node = broker_node(broker_name, broker_id)
    now = key_of(node, key)
    form = valid_form(request, lambda data: KeyForm(now, data))
    was = state(node, key, now.value)
    wanted = state(node, key, str(form.cleaned_data["value"]))
    plan = Plan(name_of(node), was, was, wanted, kind=KIND)
    return preview_or_apply_key(request, node, key, plan, dry_run=dry_run)


def preview_or_apply_key(
    request: HttpRequest, node: BrokerNode, key: str, plan: Plan, *, dry_run: bool
) -> Done | PlanOut:
    """Preview a change of a key, or apply it."""
    changes = changes_of(plan)
    if dry_run:
        return PlanOut(title=f"broker.configure {plan.name} {key}", changes=changes)
    if plan.is_idle:
        return unchanged()
    if plan.is_overtaken:
        raise overtaken(changes)
    return Done(detail=done_message(key, plan), entry=configure(request, node, key, plan).pk)


def undo_key_change(request: HttpRequest, done: Entry, *, dry_run: bool) -> Done | PlanOut:
    """Undo a change of a key."""
    Need.ADMINISTER.require(request)
    if done.outcome != Entry.Outcome.DONE:
        detail = _("The change in this entry was never applied.")
        raise ProblemError(HTTPStatus.CONFLICT, detail)
    node, key, plan = undoing(done)
    return preview_or_apply_key(request, node, key, plan, dry_run=dry_run)


@operation(
    "POST",
    "/brokers/{broker_name}/{broker_id}/promote",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("brokers:promote",),
    response=Done | PlanOut,
)
def broker_promote(
    request: HttpRequest,
    broker_name: Text,
    broker_id: Number,
    force: bool = False,
    dry_run: DryRun = False,
) -> Done | PlanOut:
    """Promote a slave to master of its set; `force` if the old master may still be running."""
    node = broker_node(broker_name, broker_id)
    danger = danger_of(node)
    if dry_run:
        return plan_of(danger)
    if danger.refusal:
        raise ProblemError(HTTPStatus.CONFLICT, danger.refusal)
    done = apply_promotion(request, node, is_forced=force)
    return Done(detail=promotion_message(node, done))


@operation(
    "POST",
    "/brokers/confirm",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("overview:confirm",),
    body=ADDRESS,
    response=Done,
)
def broker_confirm(request: HttpRequest) -> Done:
    """Allow the console to connect to a broker registered with this name and address."""
    asked = json_object(request, ("broker_name", "address"))
    name, address = asked.get("broker_name"), asked.get("address")
    nodes = gateway().cluster.registered().nodes
    known = next((e for e in nodes if (e.broker_name, e.address) == (name, address)), None)
    if known is None:
        detail = _(
            "No broker with this name is registered at this address, so nothing was confirmed."
        )
        raise ProblemError(HTTPStatus.CONFLICT, detail)
    confirm_broker(request, known.broker_name, known.address)
    values = {"broker": known.broker_name, "address": known.address}
    return Done(detail=_("Broker %(broker)s at %(address)s was confirmed.") % values)
