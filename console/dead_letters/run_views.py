"""Views of one run: its receipt, its progress, its end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _

from console.accounts.actions import Action as Allowed
from console.accounts.permissions import action_for, page, require
from console.audit.record import change
from console.dead_letters import replaying
from console.dead_letters.acting_views import ReplayRefusedError, refusal
from console.dead_letters.models import Action, Outcome, Run, State, stop_lost
from console.ui.csv_file import csv_lines
from console.ui.missing import MissingError

if TYPE_CHECKING:
    from django.http import HttpRequest

ITEMS_SHOWN = 200
STATES = {
    Outcome.SENT: "ok",
    Outcome.DISCARDED: "ok",
    Outcome.FAILED: "bad",
    Outcome.UNKNOWN: "warn",
    Outcome.GONE: "warn",
}


def found(run: int) -> Run:
    """Return a run by number, or the 404 page."""
    subject = Run.objects.filter(pk=run).first()
    if subject is None:
        raise MissingError(_("There is no such replay (any more)."))
    return subject


def run_context(subject: Run) -> dict[str, Any]:
    counts = Counter(subject.items.values_list("outcome", flat=True))
    waiting = counts[Outcome.WAITING] + counts[Outcome.SENDING]
    rows = list(subject.items.exclude(outcome=Outcome.WAITING).order_by("-at", "pk")[:ITEMS_SHOWN])
    return {
        "run": subject,
        "is_replay": subject.action == Action.REPLAY,
        "counts": [
            (Outcome(outcome).label, counts[outcome], STATES.get(Outcome(outcome), ""))
            for outcome in Outcome
            if counts[outcome]
        ],
        "waiting": waiting,
        "done": subject.total - waiting,
        "items": [
            (item, Outcome(item.outcome), STATES.get(Outcome(item.outcome), "")) for item in rows
        ],
        "items_more": subject.total - waiting - len(rows),
    }


@page
def detail(request: HttpRequest, run: int) -> HttpResponse:
    """Show what became of each dead letter of a run."""
    stop_lost()
    return render(request, "dead_letters/run.html", run_context(found(run)))


@page
def progress(request: HttpRequest, run: int) -> HttpResponse:
    """Show the part of the page that refreshes itself."""
    stop_lost()
    return render(request, "dead_letters/_progress.html", run_context(found(run)))


@action_for(Allowed.REPLAY)
def cancel(request: HttpRequest, run: int) -> HttpResponse:
    """Ask a run to end after the message that it is at."""
    subject = found(run)
    cancelled(request, subject)
    return redirect("dead_letters:run", subject.pk)


def cancelled(request: HttpRequest, subject: Run) -> None:
    """Ask a run to end, under an audit entry."""
    require(request, Allowed.REPLAY, subject.group)
    with change(request, "dead-letter.cancel", subject.group, after={"run": subject.pk}):
        Run.objects.filter(pk=subject.pk, state=State.RUNNING).update(cancel_requested=True)


@action_for(Allowed.REPLAY)
def resume(request: HttpRequest, run: int) -> HttpResponse:
    """Send what a run that was stopped had not come to."""
    subject = found(run)
    try:
        resumed(request, subject)
    except ReplayRefusedError as error:
        messages.error(request, str(error))
    return redirect("dead_letters:run", subject.pk)


def resumed(request: HttpRequest, subject: Run) -> None:
    """Let a run go on, under an audit entry.

    Raises:
        ReplayRefusedError: not now, or there is nothing to go on with.
    """
    require(request, Allowed.REPLAY, subject.group)
    stop_lost()
    problem = refusal(subject.group)
    waits = subject.items.filter(outcome=Outcome.WAITING).exists()
    if problem is None and (subject.state != State.STOPPED or not waits):
        problem = _("Nothing of it waits to be sent.")
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
        replaying.launch(found(subject.pk))


@page
def receipt(request: HttpRequest, run: int) -> HttpResponse:
    """Answer what became of each dead letter as a file."""
    subject = found(run)
    rows = (
        (
            item.broker_name,
            item.queue_id,
            item.queue_offset,
            item.outcome,
            item.note,
            None if item.at is None else item.at.isoformat(),
        )
        for item in subject.items.iterator(chunk_size=500)
    )
    head = ("broker", "queue", "offset", "outcome", "note", "at")
    text = "".join(csv_lines(head, rows))
    answer = HttpResponse(text, content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="replay-{subject.pk}.csv"'
    return answer
