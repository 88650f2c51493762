"""A broker's write permission in the routes of name servers: taken, given back, each undone.

Taking it away wipes the write bit of each route; giving it back sets reading and writing in each,
whatever it was before. So an undo of the one is the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _, ngettext

from console.audit.models import Entry
from console.audit.record import change
from console.gateway.access import gateway
from console.gateway.naming import ORDER_TOPIC_CONFIG, NameServerView
from console.ui.danger import Danger, Effect
from console.ui.lists import shortened

if TYPE_CHECKING:
    from django.http import HttpRequest

GIVEN, TAKEN = "name-server.add-write", "name-server.wipe-write"
UNDONE = (GIVEN, TAKEN)
ROUTES_ASKED_MAX = 5
"""Of so many topics the routes are looked at: name servers have no request for all."""


def danger_of(broker_name: str, *, is_writable: bool, undoes: Entry | None = None) -> Danger:
    """Return the question before it is given or taken; asks brokers, and name servers to undo."""
    values = {"broker": broker_name}
    if is_writable:
        title = _("Give %(broker)s its write permission back?") % values
        text = _("Name servers name it to producers again, in the routes of all its topics.")
        action = _("Add write permission")
    else:
        title = _("Take %(broker)s out of the routes of producers?") % values
        text = _(
            "Name servers no longer name it to producers; they send elsewhere within half a "
            "minute, where another broker has the topic. Consumers read on."
        )
        action = _("Wipe write permission")
    address = reverse("brokers:write-perm", args=[broker_name])
    if undoes is not None:
        address = reverse("brokers:write-undo", args=[undoes.pk])
    return Danger(
        title=title,
        text=text,
        effects=effects_of(broker_name) if is_writable else (),
        undo=_(
            "It can be undone: by the notice afterwards, or by the audit. A broker's restart or "
            "changed topic gives write permission back, too."
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
    """Return what giving it back does besides: routes of topics nobody may write name it, too."""
    kept = [name for name, is_writable in topics_on(broker_name).items() if not is_writable]
    if not kept:
        return ()
    note = _("%(names)s: named to producers as well, and refused by the broker")
    effect = Effect(
        _("Topics without write permission of their own"),
        len(kept),
        note % {"names": shortened(kept)},
        is_bad=True,
    )
    return (effect,)


def topics_on(broker_name: str) -> dict[str, bool]:
    """Return whether each topic of a broker may be written by its own configuration, by name."""
    found = gateway().topics.all()
    return {
        name: found[name].configs[broker_name].is_writable
        for name in sorted(found)
        if broker_name in found[name].configs
    }


def refusal_of(broker_name: str, *, is_writable: bool) -> str:
    """Return why there is nothing to undo: routes are so already, at every name server."""
    asked = [name for name, may in topics_on(broker_name).items() if may][:ROUTES_ASKED_MAX]
    is_so = [
        each.may_write == is_writable
        for topic in asked
        for view in gateway().naming.views(topic, ORDER_TOPIC_CONFIG).values()
        # Of a name server that does not answer, nothing is known.
        for each in (view.route or () if isinstance(view, NameServerView) else ())
        if each.broker_name == broker_name
    ]
    if not is_so or not all(is_so):
        return ""
    said = (
        _("Producers find %(broker)s already: nothing to undo.")
        if is_writable
        else _("Producers do not find %(broker)s any more: nothing to undo.")
    )
    return said % {"broker": broker_name}


def made_writable(
    request: HttpRequest, broker_name: str, *, is_writable: bool, undoes: Entry | None = None
) -> Entry:
    """Give or take it at every name server, and return the entry of the audit, with the topics.

    Raises:
        GatewayError: a name server did not take it; others may have.
    """
    with change(request, GIVEN if is_writable else TAKEN, broker_name) as entry:
        if undoes is not None:
            entry.remark = _("Undoes entry %(entry)d.") % {"entry": undoes.pk}
        count = gateway().naming.set_writable(broker_name, is_writable=is_writable)
        entry.after = {"topics": count}
    return entry


def said(entry: Entry) -> str:
    """Return what is said once it is given or taken."""
    count = entry.after["topics"]
    if entry.action == GIVEN:
        sentence = ngettext(
            "Producers are sent to %(broker)s again: %(count)d topic.",
            "Producers are sent to %(broker)s again: %(count)d topics.",
            count,
        )
    else:
        sentence = ngettext(
            "Producers leave %(broker)s: %(count)d topic.",
            "Producers leave %(broker)s: %(count)d topics.",
            count,
        )
    return sentence % {"broker": entry.subject, "count": count}


def undoable(pk: int) -> Entry:
    """Return the entry that gave or took it, or the 404 page.

    One that failed may have reached some name servers.
    """
    ended = (Entry.Outcome.DONE, Entry.Outcome.FAILED)
    found: Entry = get_object_or_404(Entry, pk=pk, action__in=UNDONE, outcome__in=ended)
    return found
