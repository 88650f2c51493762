"""The page of a group's progress in one queue: its offset and lag history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import render

from console.accounts.permissions import page
from console.broker.groups.services import get_place
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue
from console.observe.history.metrics import QUEUE, QueuePlace
from console.observe.history.pages import history_context
from console.observe.history.reading import lag_sparks
from console.observe.history.without_brokers import with_history_fallback

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


def kept_name(*, group: str, broker_name: str, queue_id: int, topic: str) -> str:
    """Return the name in the history for a URL's parameters."""
    return str(QueuePlace(group, topic, broker_name, queue_id))


@page
@with_history_fallback(QUEUE, kept_name)
def queue(
    request: HttpRequest, group: str, broker_name: str, queue_id: int, topic: str
) -> HttpResponse:
    """Show a group's progress in a queue, and its lag over time."""
    row = get_place(group, topic, BrokerQueue(broker_name, queue_id))
    place = QueuePlace(group, topic, broker_name, queue_id)
    context = history_context(request, QUEUE, str(place)) | {
        "row": row,
        "place": place,
        "spark": lag_sparks(group, topic, now_ms())(broker_name, queue_id),
        "read_at_ms": now_ms(),
    }
    return render(request, "groups/queue.html", context)
