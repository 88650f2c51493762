"""Looks up messages by ID, key or location, in one topic or in all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext_lazy

from broker_core.message import names
from broker_core.message.ids import parse_offset_msg_id
from console.accounts.permissions import page
from console.accounts.rights import rights_on
from console.gateway.access import gateway
from console.gateway.answers import TopicKind
from console.gateway.errors import (
    GatewayError,
    NotFoundError,
    RequestFailedError,
    UnknownStoreError,
)
from console.lib.moment import now_ms
from console.lib.recognition import location_in, named_in, words_of
from console.lib.stored import COMMITTED, BrokerQueue
from console.lib.tables import COLUMNS as COLUMNS_FIELD, Table
from console.messages.browse.columns import (
    ALL_TOPICS_COLUMNS,
    COLUMNS,
    NAMES_OFFERED_MAX,
    message_url,
    rows_of,
)
from console.messages.browse.everywhere import search_topics
from console.messages.browse.hits import hits_of
from console.observe.history.range import requested_range, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.http import HttpRequest, HttpResponse

    from console.gateway.answers import Topic
    from console.lib.stored import KeyFound, StoredMessage
    from console.messages.browse.hits import Hits
    from console.observe.history.range import TimeRange

RANGE, SHORTEST_MS = "30d", 1
TEXT_CHARACTERS_MAX = 512
WAYS = {
    "any": gettext_lazy("Search everything"),
    "id": gettext_lazy("By ID"),
    "key": gettext_lazy("By key"),
    "place": gettext_lazy("By queue and offset"),
}


class Lookup(NamedTuple):
    """A lookup: the value to search for, and how."""

    by: str
    topic: str
    text: str
    queue: str
    offset: str
    span: TimeRange

    @property
    def fields(self) -> dict[str, str]:
        """The query parameters except the time."""
        named = {
            "by": self.by,
            "topic": self.topic,
            "text": self.text,
            "queue": self.queue,
            "offset": self.offset,
        }
        return {name: value for name, value in named.items() if value}

    @property
    def is_whole(self) -> bool:
        """Return whether the lookup has all values it needs."""
        if self.by == "place":
            return bool(self.topic and self.queue and self.offset)
        return bool(self.text)


def lookup_of(request: HttpRequest) -> Lookup:
    by = request.GET.get("by", "id")
    texts = [
        request.GET.get(name, "").strip()[:TEXT_CHARACTERS_MAX]
        for name in ("topic", "text", "queue", "offset")
    ]
    span = requested_range(request.GET, now_ms(), RANGE, SHORTEST_MS)
    topic, text, queue, offset = texts
    return Lookup(by if by in WAYS else "id", topic, text, queue, offset, span)


@page
def find(request: HttpRequest) -> HttpResponse:
    """Show the message with an ID or location, or the messages with a key."""
    lookup = lookup_of(request)
    topics = gateway().topics.all()
    offered = [name for name, each in topics.items() if each.kind is not TopicKind.SYSTEM]
    is_unknown = bool(lookup.topic) and lookup.topic not in topics
    context: dict[str, Any] = {
        "criteria": lookup,
        "ways": WAYS.items(),
        "names": offered[:NAMES_OFFERED_MAX],
        "is_unknown": is_unknown,
        "time_range": lookup.span,
        "range_kept": f"{urlencode(lookup.fields)}&",
        "range_fields": lookup.fields.items(),
        "table": Table(request, COLUMNS),
        "read_at_ms": now_ms(),
    }
    if not lookup.is_whole or is_unknown or lookup.span.problem:
        return render(request, "browse/find.html", context)
    if lookup.by == "place":
        return at_place(request, lookup, context)
    after = request.GET.get("after", "")[:TEXT_CHARACTERS_MAX]
    if after and not lookup.topic:
        return in_all_topics(request, lookup, context, topics, after)
    if lookup.by == "any" and not lookup.topic:
        location = location_in(lookup.text, topics)
        if location is not None and location.topic:
            query = {"by": "place"} | location._asdict()
            return redirect(f"{reverse('browse:find')}?{urlencode(query)}")
        context |= {"hits": hits_of(lookup.text), "location": location}
        named, others = named_in(words_of(lookup.text), topics)
        if len(others) == 1 and len(named) == 1:
            lookup = lookup._replace(topic=named[0], text=others[0])
        elif len(others) + len(named) != 1 or location is not None:
            return render(request, "browse/find.html", context)
    refusal = None
    if lookup.by != "key":
        found, refusal = by_id(lookup.text)
        if found is not None:
            return redirect(message_url(found))
    if lookup.topic:
        return with_key(request, lookup, context)
    if len(lookup.text.split()) != 1:
        # Keys can't contain spaces.
        return render(request, "browse/find.html", context)
    return in_all_topics(request, lookup, context | {"refusal": refusal}, topics)


def by_id(text: str) -> tuple[StoredMessage | None, GatewayError | None]:
    """Return the message of an offset message ID, if the text is one, and why the lookup failed.

    A unique key has the same format, so a failure doesn't matter if an index finds the text.

    Raises:
        GatewayError: a broker didn't respond.
    """
    place = parse_offset_msg_id(text)
    if place is None:
        return None, None
    try:
        return gateway().browse.by_id(place), None
    except (UnknownStoreError, RequestFailedError) as error:
        return None, error


def keyed(lookup: Lookup) -> KeyFound:
    """Return a topic's messages with a key, and uncommitted half messages for it."""
    span = lookup.span.low_ms, lookup.span.high_ms
    found = gateway().browse.by_key(lookup.topic, lookup.text, *span)
    try:
        halves = (
            gateway().browse.by_key(names.RMQ_SYS_TRANS_HALF_TOPIC, lookup.text, *span).messages
        )
    except GatewayError:
        # A broker's access control may restrict half messages to administrators.
        halves = ()
    whole_from = min((each.store_ms for each in found.messages), default=0) * found.has_more
    # Checks leave several copies of a half message; the newest comes first.
    last = {
        (each.broker_name, each.uniq_key or each.queue_offset): each
        for each in reversed(halves)
        if each.subject == lookup.topic
        and each.outcome != COMMITTED
        and each.store_ms >= whole_from
    }
    messages = sorted((*found.messages, *last.values()), key=lambda each: -each.store_ms)
    return replace(found, messages=tuple(messages))


def with_key(request: HttpRequest, lookup: Lookup, context: dict[str, Any]) -> HttpResponse:
    found = keyed(lookup)
    if lookup.by != "key" and len(found.messages) == 1 and not found.has_more:
        return redirect(message_url(found.messages[0]))
    context |= {
        "rows": rows_of(found.messages),
        "is_missing": not found.messages,
        "more": older_of(lookup, found),
        "without_index": found.without_index,
    }
    return render(request, "browse/find.html", context)


def in_all_topics(
    request: HttpRequest,
    lookup: Lookup,
    context: dict[str, Any],
    topics: Mapping[str, Topic],
    after: str = "",
) -> HttpResponse:
    """Show one step of a search through all topics; a link continues it after that topic."""
    is_next = bool(after) and request.headers.get("HX-Request") == "true"
    context |= {"table": Table(request, ALL_TOPICS_COLUMNS)}
    columns = [(COLUMNS_FIELD, each) for each in request.GET.getlist(COLUMNS_FIELD)]
    span = {"from": lookup.span.low_ms, "to": lookup.span.high_ms}
    kept = [*lookup.fields.items(), *span.items(), *columns]
    try:
        step = search_topics(lookup.text, lookup.span, topics, rights_on(request), after)
    except GatewayError as error:
        if not is_next:
            raise
        context |= {"step_problem": error, "next_step": urlencode([*kept, ("after", after)])}
        return render(request, "browse/_topic_step.html", context)
    is_only = len(step.messages) == 1 and step.is_whole and not after
    hits: Hits | None = context.get("hits")
    if is_only and lookup.by != "key" and not (hits and hits.entries):
        return redirect(message_url(step.messages[0]))
    context |= {
        "topic_step": step,
        "is_continued": bool(after),
        "rows": rows_of(step.messages),
        "next_step": urlencode([*kept, ("after", step.following)]),
    }
    return render(request, "browse/_topic_step.html" if is_next else "browse/find.html", context)


def older_of(lookup: Lookup, found: KeyFound) -> str:
    """Return the query for messages older than a page, or ""."""
    if not found.has_more:
        return ""
    if not found.messages:
        return urlencode(lookup.fields | {"from": lookup.span.low_ms, "to": lookup.span.high_ms})
    newest, oldest = found.messages[0].store_ms, found.messages[-1].store_ms
    # Both pages include the messages of this millisecond, unless they fill a page.
    high_ms = oldest + 1 if oldest < newest else oldest
    return urlencode(lookup.fields | {"from": lookup.span.low_ms, "to": high_ms})


def at_place(request: HttpRequest, lookup: Lookup, context: dict[str, Any]) -> HttpResponse:
    offset = whole(lookup.offset)
    try:
        queue = BrokerQueue.parse(lookup.queue)
    except ValueError:
        queue = None
    status = gateway().topics.status(lookup.topic)
    ends = next((each for each in status if each.queue == queue), None)
    if queue is None or offset is None or ends is None:
        return render(request, "browse/find.html", context | {"bad_place": status})
    try:
        found = gateway().browse.at(lookup.topic, queue, offset)
    except NotFoundError:
        found = None
    if found is not None:
        return redirect(message_url(found))
    context |= {"is_missing": True, "ends": ends, "is_beyond_end": offset >= ends.max_offset}
    return render(request, "browse/find.html", context)
