"""The Celery task of scheduled queries; it checks its arguments, ids and names, again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from console.alerts.telling import tell
from console.celery import app
from console.reports import schedules
from console.sql.models import QueryRun, SavedQuery
from console.sql.scheduled import QUERY_TASK, run_slot, schedule_of
from console.sql.telling import result_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery import Task

logger = logging.getLogger(__name__)


@app.task(bind=True, name=QUERY_TASK)
def run_scheduled_query(
    self: Task[..., None],
    query: int,
    catch_up: bool = True,
    channels: Sequence[int] = (),
    only_rows: bool = True,
) -> None:
    """Run a kept query, once for each time of its schedule, unless its last run still goes on.

    Without `catch_up`, a time that passed while beat or every worker was down gets no run. The
    channels are told what it found; with `only_rows` only when it found something.
    """
    kept = SavedQuery.objects.select_related("owner").filter(pk=int(query)).first()
    if kept is None:
        PeriodicTask.objects.filter(task=QUERY_TASK, name=f"query {int(query)}").delete()
        logger.warning("scheduled query is gone: query=%s", query)
        return
    schedule, now = schedule_of(kept), timezone.now()
    if schedule is None:
        return
    if not catch_up and schedules.is_late(schedule, now):
        logger.warning("slot skipped, its time has passed: schedule=%s", schedule.name)
        return
    run = run_slot(kept, schedule, now)
    if run is None or run.state != QueryRun.State.DONE or (only_rows and not run.rows):
        return
    tell(channels, lambda: result_of(run))
