"""The Celery tasks of scheduled queries; they check their arguments, ids and names, again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import redis
from celery.signals import worker_ready
from django.db import connections
from django.utils import timezone
from django_celery_beat.models import PeriodicTask
from kombu.exceptions import OperationalError

from console.alerts.telling import tell
from console.celery import app
from console.reports import schedules
from console.sql.models import QueryRun, SavedQuery
from console.sql.scheduled import QUERY_TASK, lost_runs, run_again, run_slot, schedule_of
from console.sql.telling import result_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery import Task

logger = logging.getLogger(__name__)

LOST_LOOKED_FOR_S = 30.0


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
    if run is not None:
        tell_of(run, channels, only_rows=only_rows)


@app.task(name="console.sql.run_lost_query")
def run_lost_query(run_id: int) -> None:
    """Run once more a query whose worker ended while it ran; a second delivery does nothing."""
    lost = QueryRun.objects.select_related("query__owner").filter(pk=int(run_id)).first()
    schedule = None if lost is None else schedule_of(lost.query)
    if lost is None or schedule is None:
        logger.warning("what was lost is gone: run=%s", run_id)
        return
    run = run_again(lost, schedule)
    if run is not None:
        only_rows = schedules.arguments(schedule).get("only_rows", True)
        tell_of(run, schedules.channels_of(schedule), only_rows=only_rows)


def tell_of(run: QueryRun, channels: Sequence[int], *, only_rows: bool) -> None:
    if run.state == QueryRun.State.DONE and (run.rows or not only_rows):
        tell(channels, lambda: result_of(run))


def look_for_lost() -> None:
    """Have the queue run what ended with its worker; what cannot be asked for is, the next time."""
    try:
        for run in lost_runs(timezone.now()):
            logger.warning("run again, its worker had ended: slot=%s", run.slot)
            run_lost_query.apply_async(args=(run.pk,), expires=LOST_LOOKED_FOR_S, retry=False)
    except (OperationalError, redis.RedisError, OSError) as error:
        logger.warning("queries that lost their worker run later: %s", error)
    except Exception:
        logger.exception("couldn't look for queries that lost their worker")
    finally:
        # Processes that the pool forks later must not share this connection.
        connections.close_all()


@worker_ready.connect
def on_worker_ready(sender: Any = None, **_: object) -> None:
    timer = getattr(sender, "timer", None)
    if timer is not None:
        timer.call_repeatedly(LOST_LOOKED_FOR_S, look_for_lost)
