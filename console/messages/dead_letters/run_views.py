"""Pages of a run: receipt, progress, cancel and resume."""

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
from console.lib.csv_file import csv_lines
from console.lib.missing import MissingError
from console.messages.dead_letters import replaying
from console.messages.dead_letters.action_views import ReplayRefusedError, refusal
from console.messages.dead_letters.models import Action, Outcome, Run, State, stop_orphaned
from console.people.audit.record import change

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


def run_or_404(run: int) -> Run:
    """Return a run by number, or raise the 404 page."""
    subject = Run.objects.filter(pk=run).first()
    if subject is None:
        raise MissingError(_("This replay doesn't exist or was deleted."))
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
    """Show the outcome of each dead letter in a run."""
    stop_orphaned()
    return render(request, "dead_letters/run.html", run_context(run_or_404(run)))


@page
def progress(request: HttpRequest, run: int) -> HttpResponse:
    """Show the part of the page that refreshes itself."""
    stop_orphaned()
    return render(request, "dead_letters/_progress.html", run_context(run_or_404(run)))


@action_for(Allowed.REPLAY)
def cancel(request: HttpRequest, run: int) -> HttpResponse:
    """Stop a run after the current message."""
    subject = run_or_404(run)
    cancel_run(request, subject)
    return redirect("dead_letters:run", subject.pk)


def cancel_run(request: HttpRequest, subject: Run) -> None:
    """Request a run's cancellation under an audit log entry."""
    require(request, Allowed.REPLAY, subject.group)
    with change(request, "dead-letter.cancel", subject.group, after={"run": subject.pk}):
        Run.objects.filter(pk=subject.pk, state=State.RUNNING).update(cancel_requested=True)


@action_for(Allowed.REPLAY)
def resume(request: HttpRequest, run: int) -> HttpResponse:
    """Send a stopped run's remaining messages."""
    subject = run_or_404(run)
    try:
        resume_run(request, subject)
    except ReplayRefusedError as error:
        messages.error(request, str(error))
    return redirect("dead_letters:run", subject.pk)


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


@page
def receipt(request: HttpRequest, run: int) -> HttpResponse:
    """Return the outcome of each dead letter as a file."""
    subject = run_or_404(run)
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
