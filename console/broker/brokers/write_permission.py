"""Grants and revokes a broker's write permission in name server routes, with undo.

Revoking clears the write bit of each route. Granting sets read and write in each, whatever it was
before. Each one therefore undoes the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _, ngettext

from console.gateway.access import gateway
from console.gateway.naming import ORDER_TOPIC_CONFIG, NameServerView
from console.lib.lists import shorten
from console.people.audit.models import Entry
from console.people.audit.record import change
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from django.http import HttpRequest

GRANTED, REVOKED = "name-server.add-write", "name-server.wipe-write"
UNDONE = (GRANTED, REVOKED)
ROUTES_QUERIED_MAX = 5
"""Check routes of this many topics only, because name servers have no request for all routes."""


def danger_of(broker_name: str, *, is_writable: bool, undoes: Entry | None = None) -> Danger:
    """Return the confirmation for a change; asks brokers, and for an undo also name servers."""
    values = {"broker": broker_name}
    if is_writable:
        title = _("Restore write permission for %(broker)s?") % values
        text = _(
            "Name servers include the broker in the routes of all its topics again, so "
            "producers can send to it."
        )
        action = _("Restore write permission")
    else:
        title = _("Remove write permission for %(broker)s?") % values
        text = _(
            "Name servers stop listing the broker for producers. Within 30 seconds, producers "
            "send to another broker that has the topic. Consumers aren't affected."
        )
        action = _("Remove write permission")
    address = reverse("brokers:write-perm", args=[broker_name])
    if undoes is not None:
        address = reverse("brokers:write-undo", args=[undoes.pk])
    return Danger(
        title=title,
        text=text,
        effects=effects_of(broker_name) if is_writable else (),
        undo=_(
            "You can undo this from the notification or the audit log. Restarting the broker "
            "or changing a topic on it also restores write permission."
        ),
        action=action,
        keep=_("Cancel"),
        address=address,
        back=reverse("brokers:name-servers"),
        icon="git-branch",
        hidden={"do": "add" if is_writable else "wipe"},
        refusal="" if undoes is None else refusal_of(broker_name, is_writable=is_writable),
    )


def effects_of(broker_name: str) -> tuple[Effect, ...]:
    """Return side effects of granting: the routes of read-only topics become writable too."""
    kept = [name for name, is_writable in topics_on(broker_name).items() if not is_writable]
    if not kept:
        return ()
    note = _("%(names)s: producers are routed to them, but the broker rejects their messages")
    effect = Effect(
        _("Topics without write permission"),
        len(kept),
        note % {"names": shorten(kept)},
        is_bad=True,
    )
    return (effect,)


def topics_on(broker_name: str) -> dict[str, bool]:
    """Return for each topic of a broker whether its own configuration allows writing."""
    found = gateway().topics.all()
    return {
        name: found[name].configs[broker_name].is_writable
        for name in sorted(found)
        if broker_name in found[name].configs
    }


def refusal_of(broker_name: str, *, is_writable: bool) -> str:
    """Return why there is nothing to undo: all name servers already have these permissions."""
    asked = [name for name, may in topics_on(broker_name).items() if may][:ROUTES_QUERIED_MAX]
    is_so = [
        each.may_write == is_writable
        for topic in asked
        for view in gateway().naming.views(topic, ORDER_TOPIC_CONFIG).values()
        # Skip name servers that don't respond, because their routes are unknown.
        for each in (view.route or () if isinstance(view, NameServerView) else ())
        if each.broker_name == broker_name
    ]
    if not is_so or not all(is_so):
        return ""
    text = (
        _("%(broker)s already has write permission, so there's nothing to undo.")
        if is_writable
        else _("%(broker)s already lacks write permission, so there's nothing to undo.")
    )
    return text % {"broker": broker_name}


def set_writable(
    request: HttpRequest, broker_name: str, *, is_writable: bool, undoes: Entry | None = None
) -> Entry:
    """Change the permission on every name server; return the audit log entry with the topics.

    Raises:
        GatewayError: a name server failed; others may have applied the change.
    """
    with change(request, GRANTED if is_writable else REVOKED, broker_name) as entry:
        if undoes is not None:
            entry.remark = _("Undoes entry %(entry)d.") % {"entry": undoes.pk}
        count = gateway().naming.set_writable(broker_name, is_writable=is_writable)
        entry.after = {"topics": count}
    return entry


def done_message(entry: Entry) -> str:
    """Return the message after a change."""
    count = entry.after["topics"]
    if entry.action == GRANTED:
        sentence = ngettext(
            "Write permission restored on %(broker)s for %(count)d topic.",
            "Write permission restored on %(broker)s for %(count)d topics.",
            count,
        )
    else:
        sentence = ngettext(
            "Write permission removed on %(broker)s for %(count)d topic.",
            "Write permission removed on %(broker)s for %(count)d topics.",
            count,
        )
    return sentence % {"broker": entry.subject, "count": count}


def undoable(pk: int) -> Entry:
    """Return the entry of a grant or revocation, or raise the 404 page.

    A failed change may have reached some name servers.
    """
    ended = (Entry.Outcome.DONE, Entry.Outcome.FAILED)
    found: Entry = get_object_or_404(Entry, pk=pk, action__in=UNDONE, outcome__in=ended)
    return found
