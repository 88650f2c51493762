"""Disconnects a client under an audit log entry, and shows the effects on its groups first."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _

from console.gateway.access import gateway
from console.gateway.connections import consumer_groups_of, every_group, producer_groups_of
from console.gateway.errors import RequestFailedError
from console.lib.lists import shorten
from console.lib.missing import MissingError
from console.people.audit.record import change
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest

    from console.gateway.connections import Connected

GROUPS_COUNTED_MAX = 20
"""The number of groups whose other consumers are counted; each is a request to every broker."""
GROUPS = "groups"
"""The hidden field with the groups that were shown, one per line, to detect later changes."""


def found_connections(group: str, client_id: str) -> tuple[Connected, ...]:
    """Return a client's connections, or raise the 404 page."""
    found = gateway().groups.connected(group, client_id)
    if not found:
        raise MissingError(
            _("Client %(client)s isn't connected in group %(group)s.")
            % {"client": client_id or "?", "group": group}
        )
    return found


def danger_of(group: str, client_id: str) -> Danger:
    """Return the confirmation for disconnecting a client, with the effects on its groups."""
    refusal = ""
    connections: tuple[Connected, ...] = ()
    try:
        connections = found_connections(group, client_id)
    except RequestFailedError as error:
        refusal = _(
            "A broker can't disconnect clients, which Apache RocketMQ brokers don't support. The "
            "broker responded: %(why)s"
        ) % {"why": error.what}
    consumed = consumer_groups_of(connections)
    query = urlencode({"client": client_id})
    return Danger(
        title=_("Disconnect %(client)s") % {"client": client_id},
        text=_(
            "The brokers close this client's connections. Other consumers take over its "
            "queues, and messages it received but didn't acknowledge are redelivered. A "
            "producer's half messages wait until it can be checked again."
        ),
        undo=_(
            "This doesn't block the client. It reconnects automatically, usually within 30 "
            "seconds. To keep it out, stop the client or revoke its account's permissions."
        ),
        action=_("Disconnect"),
        keep=_("Keep connected"),
        address=f"{reverse('clients:disconnect', args=[group])}?{query}",
        back=place_of(group, connections),
        icon="unplug",
        effects=(*effects_of(connections), *effects_on(consumed)),
        hidden={GROUPS: "\n".join(every_group(connections))},
        refusal=refusal,
        wants_reason=True,
    )


def effects_of(connections: Sequence[Connected]) -> tuple[Effect, ...]:
    if not connections:
        return ()
    places = [f"{each.broker_name} ← {each.client_addr}" for each in connections]
    produced = producer_groups_of(connections)
    effects = [Effect(_("Connections"), len(connections), shorten(places))]
    if produced:
        effects.append(Effect(_("Producer groups"), len(produced), shorten(produced)))
    return tuple(effects)


def effects_on(groups: Sequence[str]) -> tuple[Effect, ...]:
    """Return the client's consumer groups, and which of them would have no consumers left."""
    if not groups:
        return ()
    connections = gateway().groups.connections_of(groups[:GROUPS_COUNTED_MAX])
    alone = [name for name, each in connections.items() if len(each.members) <= 1]
    effects = [Effect(_("Consumer groups"), len(groups), shorten(groups))]
    if alone:
        note = _("no other consumers: %(names)s") % {"names": shorten(alone)}
        effects.append(
            Effect(_("Groups left without consumers until it reconnects"), len(alone), note, True)
        )
    return tuple(effects)


def place_of(group: str, connections: Sequence[Connected]) -> str:
    """Return the page that lists the client."""
    if group in consumer_groups_of(connections):
        return reverse("groups:detail", args=[group])
    return reverse("clients:producers")


def close_connections(
    request: HttpRequest, group: str, client_id: str, groups: Sequence[str], reason: str
) -> tuple[int, tuple[Connected, ...]]:
    """Close a client's connections; return the audit log entry and the closed connections.

    Raises:
        RequestFailedError: the client is in a group that is not in `groups`.
        MissingError: the client has disconnected on its own.
    """
    before = {"group": group, "groups": list(groups)}
    after = {"reason": reason}
    with change(request, "client.disconnect", client_id, before=before, after=after) as entry:
        closed = gateway().groups.disconnect(group, client_id, groups)
        entry.after = {
            **after,
            "connections": [f"{each.broker_name} {each.client_addr}" for each in closed],
        }
        if not closed:
            raise MissingError(
                _("%(client)s had already disconnected, so there was nothing to do.")
                % {"client": client_id}
            )
    return entry.pk, closed
