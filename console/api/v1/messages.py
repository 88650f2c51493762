"""Messages: search by time and content, look up by ID or key, and see who consumed one."""

from __future__ import annotations

import base64
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _
from ninja import Query, Schema
from pydantic import Field

from console.accounts.actions import Action
from console.accounts.rights import rights_on
from console.api.frame import omit_stored_body
from console.api.operations import operation
from console.api.problems import ProblemError
from console.api.schemas import Cursor, Number, Text, cursor_of, place_of
from console.gateway.access import gateway
from console.lib.stored import BrokerQueue, Place, StoredMessage
from console.messages.browse import lookups, searching
from console.messages.browse.distribution import distribution_of
from console.messages.browse.everywhere import search_topics
from console.messages.browse.readers import readers_of
from console.messages.browse.scanning import Progress, step
from console.messages.browse.services import stored_at, unmasked_message
from console.messages.family.services import family_of

if TYPE_CHECKING:
    from console.messages.family.steps import Step

SEARCH_PAGES = ("browse:search", "browse:scan")


class MessageOut(Schema):
    """A message with its location, without its body.

    Clients skip `other_properties`: empty values, and earlier values of a repeated name.
    """

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    offset_msg_id: str
    uniq_key: str
    keys: str
    tags: str
    store_ms: int
    born_ms: int
    born_host: str
    reconsume_times: int
    body_bytes: int
    properties: dict[str, str]
    other_properties: list[tuple[str, str]] = []


class SearchOut(Schema):
    """The result of one search step. Send `next` to continue; it is null at the end."""

    items: list[MessageOut]
    next: str | None
    searched: int
    total: int
    unread_bodies: int


class BarOut(Schema):
    """A value and how many messages have it."""

    text: str
    times: int


class SpreadOut(Schema):
    """The most frequent values of a property, and how many other values exist."""

    label: str
    bars: list[BarOut]
    others: int


class DistributionOut(Schema):
    """The distribution of a search's messages: `found` of `looked_at` read, of `total`."""

    spreads: list[SpreadOut]
    found: int
    looked_at: int
    total: int
    is_whole: bool


class FoundOut(Schema):
    """Messages found by a lookup; `without_index` lists brokers that couldn't search.

    Without a topic, all topics are searched in steps: send `next` as `cursor` to continue; it is
    null at the end. `problems` say what couldn't be searched.
    """

    items: list[MessageOut]
    has_more: bool = False
    without_index: list[str] = []
    next: str | None = None
    searched_topics: int | None = None
    total_topics: int | None = None
    problems: list[str] = []


class ReaderOut(Schema):
    """A group's state for a message, with the evidence."""

    group: str
    state: str
    how: str


class MessageDetailOut(MessageOut):
    """A message with its body, if the caller may read it; `body_encoding` is the format."""

    body: str | None
    body_encoding: str
    body_is_cut: bool
    readers: list[ReaderOut]


class Search(Schema):
    """A search: a topic, a time (`range`, or `from` and `to` in ms) and conditions."""

    topic: Text
    queue: Text = ""
    range: Text = "15m"
    from_: Annotated[Text, Field(alias="from")] = ""
    to: Text = ""
    text: Annotated[Text, Field(description="Text in the body.")] = ""
    path: Annotated[Text, Field(description="JSON path.")] = ""
    value: Text = ""
    name: Annotated[Text, Field(description="Name of a property.")] = ""
    equals: Text = ""
    tag: Text = ""
    key: Text = ""
    client: Text = ""


def criteria_of(request: HttpRequest) -> searching.MessageSearch:
    """Return the search in the query string, parsed as its page does."""
    criteria = searching.criteria_of(request)
    if criteria.problem:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, criteria.problem)
    if criteria.topic not in gateway().topics.all():
        raise ProblemError(
            HTTPStatus.NOT_FOUND,
            _("No broker has a topic named %(name)s.") % {"name": criteria.topic},
        )
    return criteria


@operation(
    "GET", "/messages", area="messages", need=Action.SEE, pages=SEARCH_PAGES, response=SearchOut
)
def messages(request: HttpRequest, search: Query[Search], cursor: Cursor = "") -> dict[str, Any]:
    """Search a topic's messages, newest first; each step takes at most two seconds."""
    criteria = criteria_of(request)
    place = place_of(cursor, (int, int, str, int, int, int))
    before = Progress()
    wanted = criteria.wanted
    if place is not None:
        at_ms, offset, queue, total, low_ms, high_ms = place
        before = Progress(Place(at_ms, queue_of(queue), offset), total)
        # Keep the time range of the first step, so that new messages don't change the search.
        wanted = wanted._replace(low_ms=low_ms, high_ms=high_ms)
    done = step(wanted, criteria.condition, before)
    progress = done.progress
    following = None
    if not progress.is_done and progress.before is not None:
        store_ms, last_queue, last_offset = progress.before
        following = cursor_of(
            store_ms, last_offset, str(last_queue), progress.total, wanted.low_ms, wanted.high_ms
        )
    return {
        "items": done.messages,
        "next": following,
        "searched": progress.searched,
        "total": progress.total,
        "unread_bodies": done.unread_bodies,
    }


def queue_of(text: str) -> BrokerQueue:
    try:
        return BrokerQueue.parse(text)
    except ValueError as error:
        detail = _("Enter a queue as broker:number, for example broker-a:0.")
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from error


@operation(
    "GET",
    "/messages/distribution",
    area="messages",
    need=Action.SEE,
    pages=("browse:distribution",),
    response=DistributionOut,
)
def message_distribution(request: HttpRequest, search: Query[Search]) -> dict[str, Any]:
    """Count a search's messages by queue, tag, host, size and hour."""
    criteria = criteria_of(request)
    found = distribution_of(criteria.wanted, criteria.condition)
    spreads = [
        {
            "label": str(each.label),
            "bars": [{"text": bar.text, "times": bar.times} for bar in each.bars],
            "others": each.others,
        }
        for each in found.spreads
    ]
    return {
        "spreads": spreads,
        "found": found.found,
        "looked_at": found.looked_at,
        "total": found.total,
        "is_whole": found.is_whole,
    }


@operation(
    "GET",
    "/messages/export/{kind}",
    area="messages",
    need=Action.EXPORT,
    pages=("browse:export",),
    file="application/x-ndjson",
)
def message_export(request: HttpRequest, kind: Text, search: Query[Search]) -> HttpResponseBase:
    """Export a search's messages as `csv` or `jsonl`; the audit log records the export."""
    return searching.export_file(request, kind, criteria_of(request))


@operation(
    "GET",
    "/messages/find",
    area="messages",
    need=Action.SEE,
    pages=("browse:find",),
    response=FoundOut,
)
def message_find(
    request: HttpRequest,
    by: Annotated[Text, Field(description="`id` or `key`.")] = "id",
    text: Text = "",
    topic: Text = "",
    range: Text = "30d",
    cursor: Cursor = "",
) -> dict[str, Any]:
    """Look up messages by offset message ID, unique key or key, in one topic or in all of them."""
    criteria = lookups.lookup_of(request)
    if criteria.span.problem:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, criteria.span.problem)
    if by not in ("id", "key") or not criteria.is_whole:
        detail = _("Specify what to find: by=id or by=key, with text.")
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    found, refusal = lookups.by_id(criteria.text) if criteria.by == "id" else (None, None)
    if found is not None:
        return {"items": [found]}
    if not criteria.topic and len(criteria.text.split()) != 1:
        # Keys can't contain spaces.
        return {"items": []}
    if not criteria.topic:
        place = place_of(cursor, (str, int, int))
        span, after = criteria.span, ""
        if place is not None:
            after, low_ms, high_ms = place
            span = replace(span, low_ms=low_ms, high_ms=high_ms)
        step = search_topics(criteria.text, span, gateway().topics.all(), rights_on(request), after)
        if refusal is not None and not step.messages and not step.following:
            raise refusal
        following = (step.following, span.low_ms, span.high_ms)
        return {
            "items": step.messages,
            "has_more": step.has_more,
            "without_index": step.without_index,
            "next": cursor_of(*following) if step.following else None,
            "searched_topics": step.searched,
            "total_topics": step.total,
            "problems": step.problems,
        }
    keyed = lookups.keyed(criteria)
    return {
        "items": keyed.messages,
        "has_more": keyed.has_more,
        "without_index": keyed.without_index,
    }


class StepOut(Schema):
    """A step in a message's history; times are in µs since 1970, null if unknown."""

    stage: str
    label: str
    who: str
    begin_us: int | None
    end_us: int | None
    certainty: str
    source: str
    how: str
    state: str
    facts: list[tuple[str, str]]

    @staticmethod
    def resolve_who(step: Step) -> str:
        return step.actor

    @staticmethod
    def resolve_how(step: Step) -> str:
        return step.evidence


class FamilyOut(Schema):
    """A message's history: its steps, and which sources couldn't be read."""

    root: MessageOut
    steps: list[StepOut]
    problems: list[str]


@operation(
    "GET",
    "/messages/family/{broker_name}/{queue_id}/{offset}/{path:topic}",
    area="messages",
    need=Action.SEE,
    pages=("family:message",),
    response=FamilyOut,
)
def message_family(
    request: HttpRequest, broker_name: Text, queue_id: Number, offset: Number, topic: Text
) -> dict[str, Any]:
    """Get a message's history from the log, queues, offsets and client traces."""
    found = family_of(stored_at(topic, BrokerQueue(broker_name, queue_id), offset))
    return {"root": found.root, "steps": found.steps, "problems": found.relatives.problems}


# Registered before the path of a message, which would match it with a broker name.
@operation(
    "POST",
    "/messages/unmask/{broker_name}/{queue_id}/{offset}/{path:topic}",
    area="messages",
    need=Action.UNMASK,
    named="topic",
    pages=("browse:unmask",),
    response=MessageDetailOut,
)
def message_unmask(
    request: HttpRequest, broker_name: Text, queue_id: Number, offset: Number, topic: Text
) -> dict[str, Any]:
    """Get a message with its masked values; the audit log records who saw what."""
    omit_stored_body(request)
    found = unmasked_message(request, topic, BrokerQueue(broker_name, queue_id), offset)
    return detail_out(request, found)


@operation(
    "GET",
    "/messages/{broker_name}/{queue_id}/{offset}/{path:topic}",
    area="messages",
    need=Action.SEE,
    pages=("browse:message",),
    response=MessageDetailOut,
)
def message(
    request: HttpRequest, broker_name: Text, queue_id: Number, offset: Number, topic: Text
) -> dict[str, Any]:
    """Get a message: properties, body, and which groups consumed it."""
    return detail_out(request, stored_at(topic, BrokerQueue(broker_name, queue_id), offset))


def detail_out(request: HttpRequest, found: StoredMessage) -> dict[str, Any]:
    may_read = rights_on(request).may(Action.READ, found.topic)
    body, encoding = body_of(found) if may_read else (None, "hidden")
    return {
        **MessageOut.from_orm(found).dict(),
        "body": body,
        "body_encoding": encoding,
        "body_is_cut": found.is_cut,
        "readers": [
            {"group": each.group, "state": each.state.value, "how": each.evidence}
            for each in readers_of(found).rows
        ],
    }


def body_of(found: StoredMessage) -> tuple[str | None, str]:
    if found.body is None:
        return None, "unreadable"
    try:
        return found.body.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(found.body).decode(), "base64"
