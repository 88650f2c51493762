"""The page of delayed messages: what waits in each level of a master, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import render
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import page
from console.accounts.rights import rights_on
from console.brokers.configuration_views import found
from console.brokers.delays import levels_of, next_in, with_key
from console.gateway.moment import now_ms
from console.history.range import whole
from console.ui.lists import asked_text
from console.ui.missing import MissingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest, HttpResponse

    from console.brokers.delays import Level, Waiting
    from console.gateway.answers import BrokerNode


def master(broker_name: str, broker_id: int) -> BrokerNode:
    node = found(broker_name, broker_id)
    if not node.is_master:
        raise MissingError(_("A slave delivers nothing; look at its master."))
    return node


def level_in(levels: Sequence[Level], number: int) -> Level:
    """Return one of the levels.

    Raises:
        MissingError: the broker has no such level.
    """
    level = next((each for each in levels if each.number == number), None)
    if level is None:
        raise MissingError(_("The broker has no such delay level."))
    return level


@page
def delays(request: HttpRequest, broker_name: str, broker_id: int) -> HttpResponse:
    """Show the levels; the messages of one, or those with a key, in the order of delivery."""
    node = master(broker_name, broker_id)
    levels = levels_of(node)
    asked = whole(request.GET.get("level", ""))
    level = next((each for each in levels if each.number == asked), None)
    key = asked_text(request)
    offset = whole(request.GET.get("from", "")) or 0
    waiting: list[Waiting] = []
    more: int | None = None
    if key:
        waiting = with_key(node, levels, key)
    elif level is not None and level.count:
        waiting, more = next_in(node, level, offset)
    rights = rights_on(request)
    shown = [each for each in waiting if rights.may(Action.SEE, each.topic)]
    context = {
        "node": node,
        "levels": levels,
        "count": sum(each.count for each in levels),
        "level": level,
        "query": key,
        "waiting": shown,
        "hidden": len(waiting) - len(shown),
        "next": more,
        "read_at_ms": now_ms(),
    }
    return render(request, "brokers/delays.html", context)
