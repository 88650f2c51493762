"""Name servers: who is registered, where a topic is, their key-value table."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema

from console.api.operations import Need, operation
from console.api.requestbody import filled, given
from console.api.schemas import Done, DryRun, PlanOut, Text, plan_of
from console.brokers.naming_views import (
    KvForm,
    danger_of,
    danger_of_writing,
    kept,
    made_writable,
    removed,
    told,
    value_of,
)
from console.gateway.naming import ORDER_TOPIC_CONFIG


class RegisteredOut(Schema):
    """A broker; `missing` are the name servers that do not know it."""

    broker_name: str
    broker_id: int
    address: str
    missing: list[str]


class RouteOut(Schema):
    """A topic's queues at one broker, as one name server tells them."""

    name_server: str
    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int


class NamesOut(Schema):
    """What the name servers say; `entries` has a value for each that differs, with who has it."""

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
    """Say what name servers know: brokers, a topic's route, a namespace's entries."""
    found = told(topic, namespace)
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
def name_server_put(request: HttpRequest, dry_run: DryRun = False) -> Done | PlanOut:
    """Keep an entry at every name server."""
    data = filled(request, KvForm).cleaned_data
    namespace, key, value = data["namespace"], data["key"], data["value"]
    if dry_run:
        changes = {"now": value_of(namespace, key), "wanted": value}
        return PlanOut(title=f"name-server.put {namespace} {key}", changes=changes)
    kept(request, namespace, key, value)
    return Done(detail=_("%(key)s is kept at every name server.") % {"key": key})


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
    """Delete an entry at every name server."""
    if dry_run:
        return plan_of(danger_of(namespace, key), {"now": value_of(namespace, key)})
    removed(request, namespace, key)
    return Done(detail=_("%(key)s is deleted.") % {"key": key})


WRITABLE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["is_writable"],
    "properties": {"is_writable": {"type": "boolean", "description": "Whether producers find it."}},
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
    """Give or take a broker's write permission in the routes of all its topics."""
    is_writable = given(request, ("is_writable",)).get("is_writable") is True
    if dry_run:
        return plan_of(danger_of_writing(broker_name, is_writable=is_writable))
    count = made_writable(request, broker_name, is_writable=is_writable)
    said = (
        _("Producers are sent to %(broker)s again: %(count)d topics.")
        if is_writable
        else _("Producers leave %(broker)s: %(count)d topics.")
    )
    return Done(detail=said % {"broker": broker_name, "count": count})
