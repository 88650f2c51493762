"""Pages of a run: receipt, progress, cancel and resume."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render

from console.accounts.actions import Action as Allowed
from console.accounts.permissions import action_for, page
from console.lib.csv_file import csv_lines
from console.messages.dead_letters.models import Action, Outcome, Run, stop_orphaned
from console.messages.dead_letters.services import (
    ReplayRefusedError,
    cancel_run,
    resume_run,
    run_or_404,
)

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


@action_for(Allowed.REPLAY)
def resume(request: HttpRequest, run: int) -> HttpResponse:
    """Send a stopped run's remaining messages."""
    subject = run_or_404(run)
    try:
        resume_run(request, subject)
    except ReplayRefusedError as error:
        messages.error(request, str(error))
    return redirect("dead_letters:run", subject.pk)


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
