"""Disconnecting a client: what that means for its groups, and doing it under an audit entry."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _

from console.audit.record import change
from console.gateway.access import gateway
from console.gateway.connected import consumer_groups_of, every_group, producer_groups_of
from console.gateway.errors import RequestFailedError
from console.ui.danger import Danger, Effect
from console.ui.lists import shortened
from console.ui.missing import MissingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest

    from console.gateway.connected import Connected

GROUPS_COUNTED_MAX = 20
"""Consumer groups whose other members are counted; each is a request to every broker."""
GROUPS = "groups"
"""The hidden field with the groups that were shown, one a line: a client may join others since."""


def found_connections(group: str, client_id: str) -> tuple[Connected, ...]:
    """Return a client's connections, or the 404 page."""
    found = gateway().groups.connected(group, client_id)
    if not found:
        raise MissingError(
            _("No client %(client)s is connected in group %(group)s now.")
            % {"client": client_id or "?", "group": group}
        )
    return found


def danger_of(group: str, client_id: str) -> Danger:
    """Return the question before a client is disconnected, with what it means for its groups."""
    refusal = ""
    connections: tuple[Connected, ...] = ()
    try:
        connections = found_connections(group, client_id)
    except RequestFailedError as error:
        refusal = _(
            "A broker here cannot disconnect clients; RocketMQ's own do not. It says: %(why)s"
        ) % {"why": error.what}
    consumed = consumer_groups_of(connections)
    query = urlencode({"client": client_id})
    return Danger(
        title=_("Disconnect %(client)s") % {"client": client_id},
        text=_(
            "The brokers close its connections. Other members take over its queues; messages that "
            "it has and has not acknowledged come to them again. Half messages of a producer wait "
            "until it is asked again."
        ),
        undo=_(
            "This keeps nobody out: clients connect again by themselves, and are members again "
            "with their next heartbeat, half a minute later at most. To keep one out, stop it, or "
            "take its account's permissions."
        ),
        action=_("Disconnect"),
        keep=_("Leave it"),
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
    effects = [Effect(_("Connections"), len(connections), shortened(places))]
    if produced:
        effects.append(Effect(_("Producer groups"), len(produced), shortened(produced)))
    return tuple(effects)


def effects_on(groups: Sequence[str]) -> tuple[Effect, ...]:
    """Return the consumer groups that the client leaves, and those that are left with nobody."""
    if not groups:
        return ()
    connections = gateway().groups.connections_of(groups[:GROUPS_COUNTED_MAX])
    alone = [name for name, each in connections.items() if len(each.members) <= 1]
    effects = [Effect(_("Consumer groups"), len(groups), shortened(groups))]
    if alone:
        note = _("nobody else reads: %(names)s") % {"names": shortened(alone)}
        effects.append(Effect(_("Groups without a member until then"), len(alone), note, True))
    return tuple(effects)


def place_of(group: str, connections: Sequence[Connected]) -> str:
    """Return the page that lists the client."""
    if group in consumer_groups_of(connections):
        return reverse("groups:detail", args=[group])
    return reverse("clients:producers")


def disconnected(
    request: HttpRequest, group: str, client_id: str, groups: Sequence[str], reason: str
) -> tuple[int, tuple[Connected, ...]]:
    """Close a client's connections; return the audit's entry of it, and what was closed.

    Raises:
        RequestFailedError: the client is in a group that is not among `groups`.
        MissingError: it has gone by itself.
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
                _("%(client)s had left before; nothing was disconnected.") % {"client": client_id}
            )
    return entry.pk, closed
