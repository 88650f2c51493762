"""Name servers: registered brokers, topic routes and the key-value table."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.http import HttpRequest
from ninja import Schema

from console.api.operations import Need, operation
from console.api.plans import changes_of, overtaken, unchanged
from console.api.problems import ProblemError
from console.api.requestbody import json_object, valid_form
from console.api.schemas import Done, DryRun, PlanOut, Text, plan_of
from console.api.v1.configuring import Accept
from console.broker.brokers import kv_changing, write_permission
from console.broker.brokers.forms import KvForm
from console.broker.brokers.kv_changing import danger_of, entry_of, undoable
from console.broker.brokers.name_server_reports import name_server_reports
from console.broker.configs.plan import Plan
from console.gateway.naming import ORDER_TOPIC_CONFIG
from console.people.audit.models import Entry


class RegisteredOut(Schema):
    """A broker; `missing` lists the name servers where it isn't registered."""

    broker_name: str
    broker_id: int
    address: str
    missing: list[str]


class RouteOut(Schema):
    """A topic's queues on one broker, as one name server reports them."""

    name_server: str
    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int


class NamesOut(Schema):
    """Reports of the name servers; `entries` maps each value to the servers that have it."""

    name_servers: list[str]
    silent: dict[str, str]
    brokers: list[RegisteredOut]
    routes: list[RouteOut]
    entries: dict[str, dict[str, list[str]]]


@operation(
    "GET",
    "/name-servers",
    area="brokers",
    pages=("brokers:name-servers",),
    response=NamesOut,
)
def name_servers(
    request: HttpRequest, topic: Text = "", namespace: Text = ORDER_TOPIC_CONFIG
) -> dict[str, Any]:
    """Get the registered brokers, a topic's route and a namespace's entries."""
    found = name_server_reports(topic, namespace)
    return {
        "name_servers": list(found.servers),
        "silent": {address: error.what for address, error in found.silent.items()},
        "brokers": [RegisteredOut.from_orm(each) for each in found.brokers],
        "routes": [
            {
                "name_server": address,
                "broker_name": each.broker_name,
                "read_queue_nums": each.read_queue_nums,
                "write_queue_nums": each.write_queue_nums,
                "perm": each.perm,
            }
            for address, route in found.routes
            for each in route or ()
        ],
        "entries": {
            each.key: {value: list(servers) for value, servers in each.values}
            for each in found.entries
        },
    }


@operation(
    "PUT",
    "/name-servers/entries",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("brokers:kv-put",),
    form=KvForm,
    response=Done | PlanOut,
)
def name_server_put(
    request: HttpRequest, dry_run: DryRun = False, accept: Accept = False
) -> Done | PlanOut:
    """Store an entry on every name server."""
    data = valid_form(request, KvForm).cleaned_data
    plan = entry_of(data["namespace"], data["key"]).plan(data["value"])
    return preview_or_apply_entry(request, plan, dry_run=dry_run, accept=accept)


def preview_or_apply_entry(
    request: HttpRequest, plan: Plan, *, dry_run: bool, accept: bool
) -> Done | PlanOut:
    """Preview a change of an entry, or apply it."""
    changes = changes_of(plan)
    objection = kv_changing.objection_to(plan)
    if dry_run:
        title = f"{kv_changing.action_of(plan)} {plan.name}"
        return PlanOut(title=title, objection=objection, changes=changes)
    if plan.is_idle:
        return unchanged()
    if plan.is_overtaken:
        raise overtaken(changes)
    if objection and not accept:
        raise ProblemError(HTTPStatus.CONFLICT, objection, more={"objection": objection})
    outcome = kv_changing.apply_plan(request, plan)
    if outcome.problem:
        raise ProblemError(HTTPStatus.BAD_GATEWAY, outcome.problem)
    return Done(detail=kv_changing.done_message(plan), entry=outcome.entry.pk)


def undo_entry_change(
    request: HttpRequest, done: Entry, *, dry_run: bool, accept: bool
) -> Done | PlanOut:
    """Undo a put or delete of an entry."""
    Need.ADMINISTER.require(request)
    plan = kv_changing.undoing(undoable(done.pk))
    return preview_or_apply_entry(request, plan, dry_run=dry_run, accept=accept)


@operation(
    "DELETE",
    "/name-servers/entries/{namespace}/{path:key}",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("brokers:kv-delete",),
    response=Done | PlanOut,
)
def name_server_delete(
    request: HttpRequest, namespace: Text, key: Text, dry_run: DryRun = False
) -> Done | PlanOut:
    """Delete an entry from every name server."""
    found = entry_of(namespace, key)
    danger = danger_of(found)
    if dry_run:
        return plan_of(danger, {"now": found.state})
    return preview_or_apply_entry(request, found.plan(None), dry_run=False, accept=True)


WRITABLE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["is_writable"],
    "properties": {
        "is_writable": {
            "type": "boolean",
            "description": "Allow producers to write.",
        }
    },
}


@operation(
    "POST",
    "/name-servers/write-permission/{broker_name}",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("brokers:write-perm",),
    body=WRITABLE,
    response=Done | PlanOut,
)
def name_server_write(
    request: HttpRequest, broker_name: Text, dry_run: DryRun = False
) -> Done | PlanOut:
    """Grant or revoke a broker's write permission in the routes of all its topics."""
    is_writable = json_object(request, ("is_writable",)).get("is_writable") is True
    if dry_run:
        return plan_of(write_permission.danger_of(broker_name, is_writable=is_writable))
    entry = write_permission.set_writable(request, broker_name, is_writable=is_writable)
    return Done(detail=write_permission.done_message(entry), entry=entry.pk)


def undo_write_permission(request: HttpRequest, done: Entry, *, dry_run: bool) -> Done | PlanOut:
    """Undo a grant or revocation of write permission."""
    Need.ADMINISTER.require(request)
    changed = write_permission.undoable(done.pk)
    is_writable = changed.action == write_permission.REVOKED
    danger = write_permission.danger_of(changed.subject, is_writable=is_writable, undoes=changed)
    if dry_run:
        return plan_of(danger)
    if danger.refusal:
        return Done(detail=danger.refusal)
    entry = write_permission.set_writable(
        request, changed.subject, is_writable=is_writable, undoes=changed
    )
    return Done(detail=write_permission.done_message(entry), entry=entry.pk)
