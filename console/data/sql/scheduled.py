"""Scheduled queries: saved queries that run once for each time of a schedule.

The schedule is a django-celery-beat row, as for reports. Each scheduled time has a QueryRun; its
rows belong to a Run made with the rights that the query's owner has at that time.
"""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _
from django_celery_beat.models import PeriodicTask

from console.accounts.roles import may_query
from console.data.reports import schedules
from console.data.reports.models import QUEUED_SECONDS_MAX
from console.data.sql.desk import SENTENCE_CHARACTERS_MAX, Desk, DeskError
from console.data.sql.models import RUN_MS_MAX, QueryRun, SavedQuery
from console.data.sql.rights import topics_of
from console.data.sql.runs import new_run
from console.lib.moment import now_ms
from console.people.audit.record import change

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from django.db.models import QuerySet
    from django.http import HttpRequest

    from console.data.reports.forms import ScheduleForm

logger = logging.getLogger(__name__)

QUERY_TASK = "console.sql.run_scheduled_query"
NAME = "query "
RUNS_KEPT = 100
LATE_INTERVALS = 2
AGAIN = " again"
"""Suffix of the slot of a run that replaces one whose worker died; at most one exists."""


def new_schedule(query: SavedQuery) -> PeriodicTask:
    """Return an unsaved schedule."""
    return PeriodicTask(
        name=f"{NAME}{query.pk}",
        task=QUERY_TASK,
        kwargs=json.dumps({"query": query.pk, "catch_up": True}),
        expire_seconds=QUEUED_SECONDS_MAX,
    )


def schedule_of(query: SavedQuery) -> PeriodicTask | None:
    return PeriodicTask.objects.filter(task=QUERY_TASK, name=f"{NAME}{query.pk}").first()


def scheduled_queries() -> QuerySet[SavedQuery]:
    """Return the saved queries with a schedule."""
    names = PeriodicTask.objects.filter(task=QUERY_TASK).values_list("name", flat=True)
    numbers = [int(name.removeprefix(NAME)) for name in names if name.startswith(NAME)]
    return SavedQuery.objects.filter(pk__in=numbers)


def unschedule(query: SavedQuery) -> None:
    """Delete the schedule of a query, keeping its results."""
    PeriodicTask.objects.filter(task=QUERY_TASK, name=f"{NAME}{query.pk}").delete()


def run_slot(query: SavedQuery, schedule: PeriodicTask, now: datetime) -> QueryRun | None:
    """Run a query for the current slot; return None if another worker has taken the slot."""
    last = query.runs.first()
    if last is not None and last.shown_state == QueryRun.State.RUNNING:
        logger.warning("slot skipped, the last run is still active schedule=%s", schedule.name)
        return None
    return _run_once(query, schedule, schedules.slot(schedule, now))


def run_again(lost: QueryRun, schedule: PeriodicTask) -> QueryRun | None:
    """Repeat a run whose worker died; return None if another worker has taken it."""
    return _run_once(lost.query, schedule, f"{lost.slot}{AGAIN}")


def lost_runs(now: datetime) -> Iterator[QueryRun]:
    """Yield the runs that ended because their worker died, and must be repeated.

    Nobody watches a schedule, so its findings for that time would be missed.
    """
    oldest_ms = int((now - timedelta(seconds=QUEUED_SECONDS_MAX)).timestamp() * 1_000)
    running = QueryRun.objects.filter(state=QueryRun.State.RUNNING, began_ms__gt=oldest_ms)
    for run in running.exclude(slot__endswith=AGAIN).select_related("query__owner"):
        schedule = schedule_of(run.query)
        if not run.is_lost or schedule is None or not schedule.enabled:
            continue
        catches_up = schedules.arguments(schedule).get("catch_up", True)
        if not catches_up and schedules.is_late(schedule, now):
            continue
        if not QueryRun.objects.filter(slot=f"{run.slot}{AGAIN}").exists():
            yield run


def _run_once(query: SavedQuery, schedule: PeriodicTask, slot: str) -> QueryRun | None:
    run, is_new = QueryRun.objects.get_or_create(
        slot=slot, defaults={"query": query, "began_ms": now_ms()}
    )
    if not is_new:
        logger.warning("slot ran already slot=%s", run.slot)
        return None
    try:
        perform(run, schedules.zone_of(schedule))
    except Exception:
        # The boundary: after any failure here, the page must not show a run that never ends.
        logger.exception("scheduled query failed run=%s", run.pk)
        finish(
            run,
            QueryRun.State.FAILED,
            _("The worker failed unexpectedly. See its log for details."),
        )
    forget_old_runs(query)
    return run


def perform(run: QueryRun, zone: str) -> None:
    """Run the query with its owner's rights."""
    query, owner = run.query, run.query.owner
    if not settings.TREBUCHET_LAKE:
        finish(
            run,
            QueryRun.State.FAILED,
            _("This appliance has no lake, so there's nothing to query."),
        )
        return
    if not (owner.is_active and may_query(owner)):
        sentence = _("%(name)s, who owns this query, no longer has access to the lake.")
        finish(run, QueryRun.State.FAILED, sentence % {"name": owner.get_username()})
        return
    asked = new_run(query.sql, zone, owner.pk, owner.get_username(), topics_of(owner), query.pk)
    run.run_id = asked.id
    run.save(update_fields=["run_id"])
    desk = Desk()
    try:
        desk.start(asked)
    except DeskError as error:
        finish(run, QueryRun.State.FAILED, str(error))
        return
    desk.wait(asked.id, RUN_MS_MAX / 1_000)
    outcome = asked.outcome()
    if outcome is None:
        desk.cancel(asked.id)
        finish(run, QueryRun.State.FAILED, _("The query process didn't stop."))
    elif outcome.state == "done":
        finish(run, QueryRun.State.DONE, "", outcome.rows)
    else:
        finish(run, QueryRun.State.FAILED, outcome.sentence)


def finish(run: QueryRun, state: str, sentence: str, rows: int = 0) -> None:
    run.state, run.sentence = state, sentence[:SENTENCE_CHARACTERS_MAX]
    run.rows, run.ended_ms = rows, now_ms()
    run.save(update_fields=["state", "sentence", "rows", "ended_ms"])


def forget_old_runs(query: SavedQuery) -> None:
    """Keep only a query's newest runs."""
    for oldest in query.runs.values_list("pk", flat=True)[RUNS_KEPT - 1 : RUNS_KEPT]:
        query.runs.filter(pk__lt=oldest).delete()


def completed_since(query: SavedQuery, since_ms: int) -> QuerySet[QueryRun]:
    """Return the completed runs since a time, oldest first."""
    done = query.runs.filter(state=QueryRun.State.DONE, ended_ms__gte=since_ms)
    return done.order_by("ended_ms")


def current_run(query: SavedQuery, now: datetime) -> QueryRun | None:
    """Return the run with the current result, or None if there is none or its time has passed."""
    schedule = schedule_of(query)
    if schedule is None or not schedule.enabled:
        return None
    run = query.runs.exclude(state=QueryRun.State.RUNNING).first()
    if run is None or run.state != QueryRun.State.DONE:
        return None
    now_s = now.timestamp()
    seconds = schedules.interval_seconds(schedule)
    if seconds is not None:
        is_old = now_s - run.began_ms / 1_000 > LATE_INTERVALS * seconds + schedules.LATE_S
    else:
        due = schedules.due_at(schedule, now)
        is_old = (
            due is not None
            and run.began_ms / 1_000 < due.timestamp()
            and now_s - due.timestamp() > schedules.LATE_S
        )
    return None if is_old else run


def save_schedule(
    request: HttpRequest, query: SavedQuery, given: PeriodicTask, form: ScheduleForm
) -> None:
    """Save a query's schedule from the form."""
    found = schedule_of(query)
    before = None if found is None else initial_of(found)
    with change(request, "sql.schedule", query.name, before=before) as entry:
        schedules.set_values(given, form.cleaned_data)
        entry.after = initial_of(given)


def delete_schedule(request: HttpRequest, query: SavedQuery) -> str:
    """Delete a query's schedule; return a sentence about it."""
    found = schedule_of(query)
    before = None if found is None else initial_of(found)
    with change(request, "sql.unschedule", query.name, before=before):
        unschedule(query)
    return _("%(name)s is no longer scheduled.") % {"name": query.name}


def initial_of(found: PeriodicTask | None) -> dict[str, Any]:
    """Return the form's initial values."""
    if found is None:
        zone = timezone.get_current_timezone_name()
        known: dict[str, Any] = {"enabled": True, "catch_up": True, "kind": "interval"}
        known |= {"every": 1, "period": "hours", "cron": "0 6 * * *", "timezone": zone}
        return {**known, "channels": []}
    return {
        "enabled": found.enabled,
        "catch_up": schedules.arguments(found).get("catch_up", True),
        "channels": schedules.channels_of(found),
        **schedules.timing(found),
    }
