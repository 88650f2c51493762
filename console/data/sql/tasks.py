"""Celery tasks for scheduled queries; they validate their arguments, IDs and names again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import redis
from celery.signals import worker_ready
from django.db import connections
from django.utils import timezone
from django_celery_beat.models import PeriodicTask
from kombu.exceptions import OperationalError

from console.celery import app
from console.data.reports import schedules
from console.data.sql.models import QueryRun, SavedQuery
from console.data.sql.notifications import result_of
from console.data.sql.scheduled import QUERY_TASK, lost_runs, run_again, run_slot, schedule_of
from console.observe.alerts.result_delivery import queue_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery import Task

logger = logging.getLogger(__name__)

LOST_CHECK_S = 30.0


@app.task(bind=True, name=QUERY_TASK)
def run_scheduled_query(
    self: Task[..., None],
    query: int,
    catch_up: bool = True,
    channels: Sequence[int] = (),
    only_rows: bool = True,
) -> None:
    """Run a saved query, once per slot, unless its last run is still active.

    Without `catch_up`, times that passed while beat or every worker was down are skipped. The
    results
    are sent to the channels; with `only_rows`, only if there are any rows.
    """
    kept = SavedQuery.objects.select_related("owner").filter(pk=int(query)).first()
    if kept is None:
        PeriodicTask.objects.filter(task=QUERY_TASK, name=f"query {int(query)}").delete()
        logger.warning("scheduled query not found query=%s", query)
        return
    schedule, now = schedule_of(kept), timezone.now()
    if schedule is None:
        return
    if not catch_up and schedules.is_late(schedule, now):
        logger.warning("slot skipped, its time has passed schedule=%s", schedule.name)
        return
    run = run_slot(kept, schedule, now)
    if run is not None:
        notify_channels(run, channels, only_rows=only_rows)


@app.task(name="console.sql.run_lost_query")
def run_lost_query(run_id: int) -> None:
    """Repeat a query whose worker died while it ran; a second delivery does nothing."""
    lost = QueryRun.objects.select_related("query__owner").filter(pk=int(run_id)).first()
    schedule = None if lost is None else schedule_of(lost.query)
    if lost is None or schedule is None:
        logger.warning("lost query run not found run=%s", run_id)
        return
    run = run_again(lost, schedule)
    if run is not None:
        only_rows = schedules.arguments(schedule).get("only_rows", True)
        notify_channels(run, schedules.channels_of(schedule), only_rows=only_rows)


def notify_channels(run: QueryRun, channels: Sequence[int], *, only_rows: bool) -> None:
    if run.state == QueryRun.State.DONE and (run.rows or not only_rows):
        queue_result(channels, lambda: result_of(run))


def look_for_lost() -> None:
    """Requeue runs whose worker died; if that fails, they are retried next time."""
    try:
        for run in lost_runs(timezone.now()):
            logger.warning("run queued again, its worker ended slot=%s", run.slot)
            run_lost_query.apply_async(args=(run.pk,), expires=LOST_CHECK_S, retry=False)
    except (OperationalError, redis.RedisError, OSError) as error:
        logger.warning("lost queries not queued, will retry error=%s", error)
    except Exception:
        logger.exception("lost queries not checked")
    finally:
        # Processes that the pool forks later must not share this connection.
        connections.close_all()


@worker_ready.connect
def on_worker_ready(sender: Any = None, **_: object) -> None:
    timer = getattr(sender, "timer", None)
    if timer is not None:
        timer.call_repeatedly(LOST_CHECK_S, look_for_lost)
