"""The page of delayed messages: the pending messages of each delay level of a master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import render
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import page
from console.accounts.rights import rights_on
from console.broker.brokers.configuration_views import broker_node
from console.broker.brokers.delays import levels_of, next_in, with_key
from console.gateway.access import gateway
from console.lib.lists import search_text
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.observe.history.range import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest, HttpResponse

    from console.broker.brokers.delays import Level, Waiting
    from console.gateway.answers import BrokerNode


def master(broker_name: str, broker_id: int) -> BrokerNode:
    node = broker_node(broker_name, broker_id)
    if not node.is_master:
        raise MissingError(
            _(
                "This broker is a slave and doesn't deliver delayed messages. Open its master "
                "instead."
            )
        )
    return node


def level_in(levels: Sequence[Level], number: int) -> Level:
    """Return a delay level by number.

    Raises:
        MissingError: the broker has no such level.
    """
    level = next((each for each in levels if each.number == number), None)
    if level is None:
        raise MissingError(_("The broker doesn't have this delay level."))
    return level


@page
def delays(request: HttpRequest, broker_name: str, broker_id: int) -> HttpResponse:
    """Show delay levels and timer messages; with a level or a key, list its messages in order."""
    node = master(broker_name, broker_id)
    levels = levels_of(node)
    asked = whole(request.GET.get("level", ""))
    level = next((each for each in levels if each.number == asked), None)
    key = search_text(request)
    offset = whole(request.GET.get("from", "")) or 0
    waiting: list[Waiting] = []
    more: int | None = None
    if key:
        waiting = with_key(node, levels, key)
    elif level is not None and level.count:
        waiting, more = next_in(node, level, offset)
    timers = gateway().sending.timers(broker_name, key)
    rights = rights_on(request)
    timers_shown = [
        each for each in (timers.timers if timers else ()) if rights.may(Action.SEE, each.topic)
    ]
    shown = [each for each in waiting if rights.may(Action.SEE, each.topic)]
    context = {
        "node": node,
        "levels": levels,
        "count": sum(each.count for each in levels) + (timers.total if timers else 0),
        "level": level,
        "query": key,
        "waiting": shown,
        "hidden": len(waiting) - len(shown),
        "next": more,
        "timers": timers,
        "timers_shown": timers_shown,
        "timers_hidden": len(timers.timers) - len(timers_shown) if timers else 0,
        "read_at_ms": now_ms(),
    }
    return render(request, "brokers/delays.html", context)
