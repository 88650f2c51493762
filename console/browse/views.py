"""Views of messages: those of a topic and a time, those of a group's topic, one by itself."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy

from console.accounts.permissions import page
from console.accounts.roles import may_administer
from console.browse.bodies import Body, body_of
from console.browse.columns import COLUMNS, NAMES_OFFERED_MAX
from console.browse.readers import Readers, readers_of
from console.gateway.access import gateway
from console.gateway.answers import BrokerQueue, TopicKind
from console.gateway.errors import GatewayError, NotFoundError
from console.gateway.moment import now_ms
from console.history.range import asked_range
from console.ui.copies import CopyText, mqadmin, mqadmin_text
from console.ui.missing import MissingError
from console.ui.tables import Table

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.gateway.stored import Found, StoredMessage
    from console.history.range import TimeRange

RANGE, SHORTEST_MS = "15m", 1
MESSAGES_A_PAGE = 100
NAME_CHARACTERS_MAX = 255
BODY_FORMS = {
    "json": "JSON",
    "tree": gettext_lazy("Tree"),
    "text": gettext_lazy("Text"),
    "bytes": gettext_lazy("Bytes"),
}


class Asked(NamedTuple):
    """What a search is for; `queue` None: all of the topic."""

    topic: str
    queue: BrokerQueue | None
    span: TimeRange

    @property
    def query(self) -> str:
        """The subject as it stands in addresses, without the time."""
        return urlencode(subject_query(self.topic, self.queue))


def subject_query(topic: str, queue: BrokerQueue | None) -> dict[str, str]:
    return {"topic": topic} | ({"queue": str(queue)} if queue is not None else {})


def asked_of(request: HttpRequest) -> Asked:
    queue: BrokerQueue | None = None
    with suppress(ValueError):
        queue = BrokerQueue.parse(request.GET.get("queue", ""))
    topic = request.GET.get("topic", "").strip()[:NAME_CHARACTERS_MAX]
    return Asked(topic, queue, asked_range(request.GET, now_ms(), RANGE, SHORTEST_MS))


@page
def search(request: HttpRequest) -> HttpResponse:
    """Show the messages of a topic that were stored in a time, in the order of their storing."""
    asked = asked_of(request)
    topics = gateway().topics.all()
    names = [name for name, each in topics.items() if each.kind is not TopicKind.SYSTEM]
    context: dict[str, Any] = {
        "asked": asked,
        "time_range": asked.span,
        "range_kept": f"{asked.query}&" if asked.topic else "",
        "all_queues": urlencode(subject_query(asked.topic, None)) + f"&{asked.span.query}",
        "range_fields": subject_query(asked.topic, asked.queue).items() if asked.topic else (),
        "names": names[:NAMES_OFFERED_MAX],
        "is_unknown": bool(asked.topic) and asked.topic not in topics,
        "table": Table(request, COLUMNS),
        "read_at_ms": now_ms(),
    }
    if asked.topic in topics:
        found = gateway().browse.between(
            asked.topic, asked.span.low_ms, asked.span.high_ms, asked.queue, MESSAGES_A_PAGE
        )
        context |= {"found": found, "more": more_of(asked, found), "rows": found.messages}
    return render(request, "browse/search.html", context)


def more_of(asked: Asked, found: Found) -> str:
    """Return the query that goes on where the page ends; empty where it holds all."""
    if not found.has_more:
        return ""
    first, last = found.messages[0].store_ms, found.messages[-1].store_ms
    # Messages of one millisecond stand on both pages, unless the page is full of them.
    low_ms = last if last > first else last + 1
    span = {"from": str(low_ms), "to": str(asked.span.high_ms)}
    return urlencode(subject_query(asked.topic, asked.queue) | span)


@page
def of_group(request: HttpRequest, group: str) -> HttpResponse:
    """Lead to the messages of a time in the topic where a group is furthest behind."""
    lags: dict[str, int] = {}
    for row in gateway().groups.progress(group).queues:
        lags[row.topic] = lags.get(row.topic, 0) + (row.lag or 0)
    if not lags:
        raise MissingError(_("Group %(name)s has read no topic yet.") % {"name": group})
    topic = max(lags, key=lambda name: (lags[name], name))
    span = asked_range(request.GET, now_ms(), RANGE, SHORTEST_MS)
    return redirect(f"{reverse('browse:search')}?{urlencode({'topic': topic})}&{span.query}")


@page
def message(
    request: HttpRequest, broker_name: str, queue_id: int, offset: int, topic: str
) -> HttpResponse:
    """Show one message; its body to administrators."""
    queue = BrokerQueue(broker_name, queue_id)
    try:
        found = gateway().browse.at(topic, queue, offset)
    except NotFoundError:
        found = None
    if found is None:
        raise MissingError(
            _(
                "Queue %(queue)s of %(topic)s has no message at offset %(offset)d: it is expired, "
                "or not stored yet."
            )
            % {"queue": queue, "topic": topic, "offset": offset}
        )
    readers, readers_problem = asked_readers(found)
    context = {
        "message": found,
        "body": (
            shown_body(found, request.GET.get("as", "")) if may_administer(request.user) else None
        ),
        "body_forms": BODY_FORMS,
        "readers": readers,
        "readers_problem": readers_problem,
        "copies": copies_of(found),
        "near": urlencode(
            subject_query(topic, None)
            | {"from": str(found.store_ms - 30_000), "to": str(found.store_ms + 30_000)}
        ),
        "read_at_ms": now_ms(),
    }
    return render(request, "browse/message.html", context)


def shown_body(found: StoredMessage, form: str) -> Body | None:
    return None if found.body is None else body_of(found.body, is_cut=found.is_cut, form=form)


def asked_readers(found: StoredMessage) -> tuple[Readers | None, GatewayError | None]:
    """Return who consumed a message, or why nobody can say; the message itself is shown anyway."""
    try:
        return readers_of(found), None
    except GatewayError as error:
        return None, error


def copies_of(found: StoredMessage) -> list[CopyText]:
    """Return what finds the message elsewhere."""
    asked = [
        mqadmin("queryMsgById", {"i": found.offset_msg_id}),
        mqadmin(
            "queryMsgByOffset",
            {
                "t": found.topic,
                "b": found.broker_name,
                "i": found.queue_id,
                "o": found.queue_offset,
            },
        ),
    ]
    copies = [mqadmin_text(asked), CopyText(_("Id of its place"), found.offset_msg_id)]
    if found.uniq_key:
        copies.append(CopyText(_("Unique key"), found.uniq_key))
    return copies
