"""Connected clients: list producers and disconnect a client."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema

from console.accounts.actions import Action
from console.api.operations import operation
from console.api.requestbody import valid_form
from console.api.schemas import (
    LIMIT,
    Cursor,
    Done,
    DryRun,
    Limit,
    Listed,
    PlanOut,
    Text,
    by_name,
    plan_of,
)
from console.broker.clients.disconnecting import close_connections, danger_of, found_connections
from console.broker.clients.forms import DisconnectForm
from console.broker.clients.producers import words_of
from console.gateway.access import gateway
from console.gateway.connections import every_group


class ProducerOut(Schema):
    """A client in a producer group."""

    group: str
    client_id: str
    client_addr: str
    language: str
    version_name: str
    last_heartbeat_ms: int
    broker_names: list[str]


@operation(
    "GET",
    "/producers",
    area="groups",
    pages=("clients:producers",),
    response=Listed[ProducerOut],
)
def producers(
    request: HttpRequest, q: Text = "", cursor: Cursor = "", limit: Limit = LIMIT
) -> dict[str, Any]:
    """List producer clients; every Java client is also in CLIENT_INNER_PRODUCER."""
    matching = [each for each in gateway().groups.producers() if q.lower() in words_of(each)]
    page, following = by_name(
        matching, lambda each: f"{each.group}\n{each.client_id}", cursor, limit
    )
    return {"items": page, "next": following}


@operation(
    "POST",
    "/clients/{path:group}/disconnect",
    area="groups",
    need=Action.DISCONNECT,
    named="group",
    pages=("clients:disconnect",),
    form=DisconnectForm,
    response=Done | PlanOut,
)
def client_disconnect(request: HttpRequest, group: Text, dry_run: DryRun = False) -> Done | PlanOut:
    """Close a group client's connections; the client usually reconnects automatically."""
    form = valid_form(request, DisconnectForm)
    client_id = form.cleaned_data["client_id"]
    if dry_run:
        return plan_of(danger_of(group, client_id))
    groups = every_group(found_connections(group, client_id))
    entry, _closed = close_connections(
        request, group, client_id, groups, form.cleaned_data["reason"]
    )
    sentence = _("%(client)s was disconnected. It reconnects automatically.")
    return Done(detail=sentence % {"client": client_id}, entry=entry)
