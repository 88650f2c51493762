"""The page of delayed messages: the pending messages of each delay level of a master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import render

from console.accounts.permissions import page
from console.broker.brokers.delays import levels_of, master, next_in, with_key
from console.broker.brokers.services import visible
from console.gateway.access import gateway
from console.lib.lists import search_text
from console.lib.moment import now_ms
from console.observe.history.range import whole

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.broker.brokers.delays import Waiting


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
    timers_shown, timers_hidden = visible(request, timers.timers if timers else ())
    shown, hidden = visible(request, waiting)
    context = {
        "node": node,
        "levels": levels,
        "count": sum(each.count for each in levels) + (timers.total if timers else 0),
        "level": level,
        "query": key,
        "waiting": shown,
        "hidden": hidden,
        "next": more,
        "timers": timers,
        "timers_shown": timers_shown,
        "timers_hidden": timers_hidden,
        "read_at_ms": now_ms(),
    }
    return render(request, "brokers/delays.html", context)
