"""Dead letters: groups that have them, the messages, and their replays and discards."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Query, Schema
from pydantic import Field

from broker_core.message import names
from console.accounts.actions import Action as Allowed
from console.accounts.permissions import require
from console.api.operations import operation
from console.api.problems import ProblemError
from console.api.requestbody import valid_form
from console.api.schemas import (
    LIMIT,
    Cursor,
    Done,
    DryRun,
    Limit,
    Listed,
    Number,
    PlanOut,
    Text,
    by_name,
    newest,
    plan_of,
)
from console.api.v1.messages import MessageOut
from console.gateway.access import gateway
from console.gateway.answers import TopicKind
from console.messages.dead_letters.exporting import export_letters
from console.messages.dead_letters.forms import DiscardForm, ReplayForm
from console.messages.dead_letters.models import Run, Target, stop_orphaned
from console.messages.dead_letters.selection import Selection
from console.messages.dead_letters.services import (
    ReplayRefusedError,
    cancel_run,
    chosen_of,
    danger_of,
    destinations_of,
    discard_letters,
    letters_of,
    packed,
    resume_run,
    row_of,
    run_or_404 as found_run,
    start_replay,
)


class DeadLetterGroupOut(Schema):
    """A group with dead letters; `open` counts letters not yet replayed or discarded."""

    group: str
    retained: int
    open: int
    oldest_ms: int | None
    newest_ms: int | None


class DeadLetterOut(Schema):
    """A dead letter; use `key` to select it for a replay."""

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
    """A group's newest dead letters; send `before` to get older ones."""

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
    """The outcome of one dead letter in a replay."""

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
    """List groups that have dead letters."""
    groups = [
        topic.name.removeprefix(names.DLQ_GROUP_TOPIC_PREFIX)
        for topic in gateway().topics.all().values()
        if topic.kind is TopicKind.DLQ and q.lower() in topic.name.lower()
    ]
    page, following = by_name(groups, str, cursor, limit)
    return {"items": [row_of(group, None) for group in page], "next": following}


@operation(
    "GET",
    "/dead-letters/{path:group}/export/{kind}",
    area="dead-letters",
    need=Allowed.EXPORT,
    pages=("dead_letters:export",),
    file="application/x-ndjson",
)
def dead_letter_export(request: HttpRequest, group: Text, kind: Text) -> HttpResponse:
    """Export dead letters as `csv` or `jsonl`, selected as in the list."""
    return export_letters(request, group, kind)


@operation(
    "POST",
    "/dead-letters/{path:group}/replays",
    area="dead-letters",
    varying="messages:write to replay to the original topics",
    need=Allowed.REPLAY,
    named="group",
    pages=("dead_letters:preview", "dead_letters:start"),
    form=ReplayForm,
    response=ReplayOut | PlanOut,
)
def dead_letter_replay(
    request: HttpRequest,
    group: Text,
    m: Query[list[Text]] = [],  # noqa: B006  (Ninja's way of a list)
    topic: Text = "",
    tag: Text = "",
    before: Number | None = None,
    dry_run: DryRun = False,
) -> Any:
    """Replay dead letters: those selected with `m`, `topic` and `tag`, or all.

    Dead letters that were already replayed or discarded are skipped unless the body sets `again`.
    """
    form = valid_form(request, ReplayForm)
    wanted = form.cleaned_data
    selection, letters, _before = chosen_of(request, group, again=wanted["again"])
    letters = letters[:1] if wanted["trial"] else letters
    target = Target(wanted["target"])
    destinations = destinations_of(group, letters, target)
    if target is Target.ORIGIN:
        for each in destinations:
            require(request, Allowed.SEND, each.topic)
    danger = danger_of(group, selection, letters, wanted, destinations)
    if dry_run:
        return plan_of(danger)
    if danger.refusal:
        raise ProblemError(HTTPStatus.CONFLICT, danger.refusal)
    try:
        return start_replay(request, packed(group, selection, letters, wanted, destinations))
    except ReplayRefusedError as error:
        raise ProblemError(HTTPStatus.CONFLICT, str(error)) from error


@operation(
    "POST",
    "/dead-letters/{path:group}/discards",
    area="dead-letters",
    need=Allowed.REPLAY,
    named="group",
    pages=("dead_letters:discard",),
    form=DiscardForm,
    response=ReplayOut | PlanOut,
)
def dead_letter_discard(
    request: HttpRequest,
    group: Text,
    m: Query[list[Text]] = [],  # noqa: B006  (Ninja's way of a list)
    topic: Text = "",
    tag: Text = "",
    before: Number | None = None,
    dry_run: DryRun = False,
) -> Any:
    """Discard dead letters with a reason, selected as for a replay."""
    form = valid_form(request, DiscardForm)
    selection, letters, _before = chosen_of(request, group, again=False)
    if dry_run:
        title = _("Discard %(count)d dead letters of %(group)s")
        return PlanOut(title=title % {"count": len(letters), "group": group})
    return discard_letters(request, group, selection, letters, form.cleaned_data["reason"])


@operation(
    "POST",
    "/replays/{run}/cancel",
    area="dead-letters",
    need=Allowed.REPLAY,
    pages=("dead_letters:cancel",),
    response=Done,
)
def replay_cancel(request: HttpRequest, run: Number) -> Done:
    """Stop a replay after the current message."""
    cancel_run(request, found_run(run))
    return Done(detail=_("The replay stops after the current message."))


@operation(
    "POST",
    "/replays/{run}/resume",
    area="dead-letters",
    need=Allowed.REPLAY,
    pages=("dead_letters:resume",),
    response=ReplayOut,
)
def replay_resume(request: HttpRequest, run: Number) -> Any:
    """Resume a stopped replay with its remaining messages."""
    try:
        resume_run(request, found_run(run))
    except ReplayRefusedError as error:
        raise ProblemError(HTTPStatus.CONFLICT, str(error)) from error
    return found_run(run)


@operation(
    "GET",
    "/dead-letters/{path:group}",
    area="dead-letters",
    need=Allowed.SEE,
    pages=("dead_letters:group",),
    response=LettersOut,
)
def dead_letters(
    request: HttpRequest,
    group: Text,
    topic: Annotated[Text, Field(description="Original topic; * means no topic.")] = "",
    tag: Annotated[Text, Field(description="Tag; * means no tag.")] = "",
    before: Number | None = None,
) -> dict[str, Any]:
    """List a group's dead letters, the newest 2,000 below `before`, oldest first."""
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
    """List replays and discards, newest first."""
    stop_orphaned()
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
    """Get a replay's progress or result."""
    stop_orphaned()
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
    """List the outcome of each dead letter in a replay."""
    page, following = newest(found_run(run).items.all(), cursor, limit)
    return {"items": page, "next": following}
