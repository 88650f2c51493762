"""Dead letters: find, replay and discard them, for the pages and the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core import signing
from django.db import transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _, ngettext

from broker_core.message import names
from console.accounts.actions import Action as Allowed
from console.accounts.permissions import require
from console.accounts.rights import OBSERVER_RIGHTS, acts_for
from console.gateway.access import gateway
from console.gateway.errors import NotFoundError
from console.lib.missing import MissingError
from console.messages.dead_letters import replaying
from console.messages.dead_letters.models import (
    HANDLED,
    Action,
    Item,
    Outcome,
    Run,
    State,
    Target,
    forget_old_runs,
    stop_orphaned,
)
from console.messages.dead_letters.selection import Selection
from console.people.audit.record import change
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest

    from console.gateway.answers import QueueStatus
    from console.messages.dead_letters.reading import DeadLetter
    from console.observe.history.reading import Spark


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A row of the list."""

    group: str
    retained: int
    open: int
    oldest_ms: int | None
    newest_ms: int | None
    inflow: Spark | None


def row_of(group: str, inflow: Spark | None) -> GroupRow:
    try:
        status = gateway().topics.status(names.dlq_topic(group))
    except NotFoundError:  # deleted between the two requests
        status = ()
    filled = [row for row in status if row.message_count]
    retained = sum(row.message_count for row in filled)
    newest = [row.last_update_ms for row in filled if row.last_update_ms is not None]
    return GroupRow(
        group,
        retained,
        retained - sum(handled_count(group, row) for row in filled),
        min((each for row in filled if (each := oldest_of(group, row)) is not None), default=None),
        max(newest, default=None),
        inflow,
    )


def handled_count(group: str, row: QueueStatus) -> int:
    """Return how many dead letters in a queue were handled."""
    found = Item.objects.filter(
        group=group,
        broker_name=row.broker_name,
        queue_id=row.queue_id,
        queue_offset__gte=row.min_offset,
        queue_offset__lt=row.max_offset,
        outcome__in=HANDLED,
    )
    return found.values("queue_offset").distinct().count()


def oldest_of(group: str, row: QueueStatus) -> int | None:
    # The list shows only a time, so it doesn't require the right to see messages.
    with acts_for(lambda: OBSERVER_RIGHTS):
        copies = gateway().repair.copies(names.dlq_topic(group), row.queue, row.min_offset, 1)
    return copies.messages[0].stored.store_ms if copies.messages else None


def letters_of(group: str, selection: Selection) -> Any:
    """Return a group's dead letters, or raise the 404 page."""
    try:
        return selection.read(group)
    except NotFoundError as error:
        raise MissingError(_("Group %(name)s has no dead letters.") % {"name": group}) from error


TOKEN_SALT = "console.dead_letters"
GROUPS_NAMED = 5


class ReplayRefusedError(Exception):
    """A replay that can't start; the text gives the reason for people."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination topic, with the number of messages and the groups that read it."""

    topic: str
    count: int
    groups: tuple[str, ...]
    is_writable: bool


def chosen_of(request: HttpRequest, group: str, *, again: bool) -> tuple[Any, ...]:
    """Return the dead letters in a query string, and how many of them were handled before."""
    selection = Selection.of(request.GET)
    found = selection.among(letters_of(group, selection).found)
    before = sum(not each.is_open for each in found)
    return selection, (found if again else tuple(each for each in found if each.is_open)), before


def destinations_of(group: str, letters: Sequence[DeadLetter], target: Target) -> list[Destination]:
    counts: dict[str, int] = {}
    for each in letters:
        topic = names.retry_topic(group) if target is Target.RETRY else each.topic
        counts[topic] = counts.get(topic, 0) + 1
    found = []
    for topic, count in sorted(counts.items()):
        is_writable = bool(topic) and bool(gateway().repair.writable(topic))
        try:
            groups = gateway().topics.consumers(topic) if is_writable else ()
        except NotFoundError:
            groups = ()
        found.append(Destination(topic, count, groups, is_writable))
    return found


def danger_of(
    group: str,
    selection: Selection,
    letters: Sequence[DeadLetter],
    wanted: dict[str, Any],
    destinations: Sequence[Destination],
) -> Danger:
    """Return the confirmation for a replay, with counts."""
    seconds = len(letters) // wanted["rate"]
    lost = sum(each.count for each in destinations if not each.is_writable)
    others = sorted({other for each in destinations for other in each.groups if other != group})
    repeated = sum(not each.is_open for each in letters)
    return Danger(
        title=_("Replay dead letters of %(group)s?") % {"group": group},
        text=_(
            "Each message is sent again, oldest first, with its unique key. The dead letters "
            "stay in their topic and are marked as replayed, so a second replay skips them."
        ),
        effects=(
            Effect(
                _("Messages sent"),
                len(letters) - lost,
                ngettext(
                    "in about %(seconds)d second", "in about %(seconds)d seconds", max(1, seconds)
                )
                % {"seconds": max(1, seconds)},
            ),
            Effect(
                _("Already replayed"),
                repeated,
                _("the group receives them again"),
                is_bad=True,
            ),
            Effect(
                _("Other groups that receive them too"),
                len(others) if wanted["target"] == Target.ORIGIN else 0,
                ", ".join(others[:GROUPS_NAMED]) if wanted["target"] == Target.ORIGIN else "",
                is_bad=True,
            ),
            Effect(_("Can't be sent"), lost, _("their topic doesn't accept messages"), is_bad=True),
        ),
        undo=_("You can cancel the rest, but messages already sent can't be recalled."),
        action=_("Replay"),
        keep=_("Cancel"),
        address=reverse("dead_letters:start", args=[group]),
        back=f"{reverse('dead_letters:group', args=[group])}?{selection.query}",
        icon="rotate-ccw",
        hidden={"token": sealed(group, selection, letters, wanted, destinations)},
        refusal="" if len(letters) > lost else _("There are no messages to send."),
    )


def packed(
    group: str,
    selection: Selection,
    letters: Sequence[DeadLetter],
    wanted: dict[str, Any],
    destinations: Sequence[Destination],
) -> dict[str, Any]:
    """Return a replay as signed data for the form."""
    return {
        "group": group,
        "target": wanted["target"],
        "rate": wanted["rate"],
        "query": selection.query,
        "topics": [each.topic for each in destinations],
        "places": [list(each.place) for each in letters],
    }


def sealed(
    group: str,
    selection: Selection,
    letters: Sequence[DeadLetter],
    wanted: dict[str, Any],
    destinations: Sequence[Destination],
) -> str:
    token = packed(group, selection, letters, wanted, destinations)
    return signing.dumps(token, salt=TOKEN_SALT, compress=True)


def start_replay(request: HttpRequest, token: dict[str, Any]) -> Run:
    """Start a replay under an audit log entry.

    Raises:
        ReplayRefusedError: the replay can't start now.
    """
    group = token["group"]
    stop_orphaned()
    if token["target"] == Target.ORIGIN:
        for topic in token["topics"]:
            require(request, Allowed.SEND, topic)
    problem = refusal(group)
    if problem:
        raise ReplayRefusedError(problem)
    with change(
        request,
        "dead-letter.replay",
        group,
        after={key: token[key] for key in ("target", "rate", "query")}
        | {"messages": len(token["places"])},
    ) as entry:
        run = create_run(request, group, Action.REPLAY, token["places"], Outcome.WAITING)
        Run.objects.filter(pk=run.pk).update(
            target=token["target"], rate=token["rate"], query=token["query"]
        )
        run.refresh_from_db()
        entry.after |= {"run": run.pk}
    replaying.launch(run)
    return run


def refusal(group: str) -> str | None:
    """Return why a replay can't start now."""
    running = Run.objects.filter(state=State.RUNNING)
    if running.filter(group=group).exists():
        return _("A replay of this group is already running. Wait for it to finish, or cancel it.")
    if running.count() >= replaying.RUNS_AT_ONCE_MAX:
        return _(
            "%(count)d replays are already running. Wait for one to finish, or cancel one."
        ) % {"count": replaying.RUNS_AT_ONCE_MAX}
    return None


def create_run(
    request: HttpRequest, group: str, action: Action, places: Sequence[Any], outcome: Outcome
) -> Run:
    """Store a run with all its items in one transaction."""
    with transaction.atomic():
        run = Run.objects.create(
            group=group,
            action=action,
            total=len(places),
            by=request.user.get_username(),
            user=request.user if request.user.is_authenticated else None,
        )
        Item.objects.bulk_create(
            [
                Item(
                    run=run,
                    group=group,
                    broker_name=broker_name,
                    queue_id=queue_id,
                    queue_offset=queue_offset,
                    commit_log_offset=commit_log_offset,
                    outcome=outcome,
                )
                for broker_name, queue_id, queue_offset, commit_log_offset in places
            ],
            batch_size=500,
        )
    forget_old_runs()
    return run


def discard_letters(
    request: HttpRequest,
    group: str,
    selection: Selection,
    letters: Sequence[DeadLetter],
    reason: str,
) -> Run:
    """Mark dead letters as discarded under an audit log entry."""
    after = {"messages": len(letters), "reason": reason, "query": selection.query}
    with change(request, "dead-letter.discard", group, after=after):
        places = [each.place for each in letters]
        run = create_run(request, group, Action.DISCARD, places, Outcome.DISCARDED)
        Run.objects.filter(pk=run.pk).update(reason=reason, query=selection.query)
        run.end(State.DONE)
    return run


def run_or_404(run: int) -> Run:
    """Return a run by number, or raise the 404 page."""
    subject = Run.objects.filter(pk=run).first()
    if subject is None:
        raise MissingError(_("This replay doesn't exist or was deleted."))
    return subject


def cancel_run(request: HttpRequest, subject: Run) -> None:
    """Request a run's cancellation under an audit log entry."""
    require(request, Allowed.REPLAY, subject.group)
    with change(request, "dead-letter.cancel", subject.group, after={"run": subject.pk}):
        Run.objects.filter(pk=subject.pk, state=State.RUNNING).update(cancel_requested=True)


def resume_run(request: HttpRequest, subject: Run) -> None:
    """Resume a run under an audit log entry.

    Raises:
        ReplayRefusedError: the run can't resume now, or has no pending messages.
    """
    require(request, Allowed.REPLAY, subject.group)
    stop_orphaned()
    problem = refusal(subject.group)
    waits = subject.items.filter(outcome=Outcome.WAITING).exists()
    if problem is None and (subject.state != State.STOPPED or not waits):
        problem = _("This replay has no messages left to send.")
    if problem is not None:
        raise ReplayRefusedError(problem)
    with change(request, "dead-letter.resume", subject.group, after={"run": subject.pk}):
        stopped = Run.objects.filter(pk=subject.pk, state=State.STOPPED)
        taken = stopped.update(
            state=State.RUNNING,
            cancel_requested=False,
            failure="",
            finished_at=None,
            heartbeat_at=timezone.now(),
        )
    if taken:
        replaying.launch(run_or_404(subject.pk))
