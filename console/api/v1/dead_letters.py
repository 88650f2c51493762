"""Dead letters: which groups have some, each of them, and what was done with them."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Schema
from pydantic import Field

from broker_core.message import names
from console.api.operations import operation
from console.api.schemas import LIMIT, Cursor, Limit, Listed, Number, Text, by_name, newest
from console.api.v1.messages import MessageOut
from console.dead_letters.models import Run, stop_lost
from console.dead_letters.run_views import found as found_run
from console.dead_letters.selection import Selection
from console.dead_letters.views import letters_of, row_of
from console.gateway.access import gateway
from console.gateway.answers import TopicKind


class DeadLetterGroupOut(Schema):
    """A group that has given up messages; `open` are those that nobody has seen to."""

    group: str
    retained: int
    open: int
    oldest_ms: int | None
    newest_ms: int | None


class DeadLetterOut(Schema):
    """One dead letter; `key` names it when it is replayed, `outcome` says what was done."""

    key: str
    topic: str
    outcome: str
    message: MessageOut


class ReasonOut(Schema):
    """Dead letters of one topic and tag."""

    topic: str
    tag: str
    count: int
    oldest_ms: int
    newest_ms: int


class LettersOut(Schema):
    """The newest dead letters of a group; `before`: ask with it for older ones."""

    items: list[DeadLetterOut]
    reasons: list[ReasonOut]
    retained: int
    before: int | None


class ReplayOut(Schema):
    """A replay or a discard."""

    id: int
    group: str
    action: str
    target: str
    state: str
    rate: int
    reason: str
    total: int
    by: str
    failure: str


class ItemOut(Schema):
    """What became of one dead letter."""

    broker_name: str
    queue_id: int
    queue_offset: int
    outcome: str
    note: str


@operation(
    "GET",
    "/dead-letters",
    area="dead-letters",
    pages=("dead_letters:list",),
    response=Listed[DeadLetterGroupOut],
)
def dead_letter_groups(
    request: HttpRequest, q: Text = "", cursor: Cursor = "", limit: Limit = LIMIT
) -> dict[str, Any]:
    """List the groups that have dead letters."""
    groups = [
        topic.name.removeprefix(names.DLQ_GROUP_TOPIC_PREFIX)
        for topic in gateway().topics.all().values()
        if topic.kind is TopicKind.DLQ and q.lower() in topic.name.lower()
    ]
    page, following = by_name(groups, str, cursor, limit)
    return {"items": [row_of(group, None) for group in page], "next": following}


@operation(
    "GET",
    "/dead-letters/{path:group}",
    area="dead-letters",
    pages=("dead_letters:group",),
    response=LettersOut,
)
def dead_letters(
    request: HttpRequest,
    group: Text,
    topic: Annotated[Text, Field(description="The topic it was sent to; * for none.")] = "",
    tag: Annotated[Text, Field(description="Its tag; * for none.")] = "",
    before: Number | None = None,
) -> dict[str, Any]:
    """Show a group's dead letters, the newest 2,000 below `before`, oldest first."""
    selection = Selection.of(request.GET)
    letters = letters_of(group, selection)
    chosen = selection.among(letters.found)
    items = [
        {
            "key": each.key,
            "topic": each.topic,
            "outcome": "open" if each.item is None else each.item.outcome,
            "message": each.copy.stored,
        }
        for each in chosen
    ]
    return {
        "items": items,
        "reasons": letters.reasons,
        "retained": letters.retained,
        "before": letters.before,
    }


@operation(
    "GET",
    "/replays",
    area="dead-letters",
    pages=("dead_letters:group",),
    response=Listed[ReplayOut],
)
def replays(
    request: HttpRequest, group: Text = "", cursor: Cursor = "", limit: Limit = LIMIT
) -> dict[str, Any]:
    """List what was done with dead letters, newest first."""
    stop_lost()
    runs = Run.objects.filter(group=group) if group else Run.objects.all()
    page, following = newest(runs, cursor, limit)
    return {"items": page, "next": following}


@operation(
    "GET",
    "/replays/{run}",
    area="dead-letters",
    pages=("dead_letters:run", "dead_letters:progress"),
    response=ReplayOut,
)
def replay(request: HttpRequest, run: Number) -> Any:
    """Show how far a replay is, and how it ended."""
    stop_lost()
    return found_run(run)


@operation(
    "GET",
    "/replays/{run}/receipt",
    area="dead-letters",
    pages=("dead_letters:receipt",),
    response=Listed[ItemOut],
)
def replay_receipt(
    request: HttpRequest, run: Number, cursor: Cursor = "", limit: Limit = LIMIT
) -> dict[str, Any]:
    """List what became of each dead letter of a replay."""
    page, following = newest(found_run(run).items.all(), cursor, limit)
    return {"items": page, "next": following}
