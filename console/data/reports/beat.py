"""The beat scheduler: django-celery-beat's, adapted to changes of the system clock.

Plain beat doesn't handle a clock that is set back: a job whose last run is now in the future isn't
due until then, and the planned jobs wait for the clock to catch up. A run that is sent twice for
this reason still runs only once, because its slot is taken (`schedules.slot`). Skipped times count
as downtime of beat: the last one is caught up.

Jobs that are due while Redis is down are sent when it is back. Plain beat gives up after a second,
and that day's report would be missing.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from celery.beat import SchedulingError
from celery.schedules import schedstate
from django.db import DatabaseError
from django.utils import timezone
from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry

from broker_core.isolation import isolated
from console.data.pipeline.news import is_wanted
from console.data.reports import schedules

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet
    from django_celery_beat.models import PeriodicTask

logger = logging.getLogger(__name__)

STEP_SECONDS = 2.0
"""Drift alone moves the clock less than this between two ticks."""
FAILED_S = 60.0
"""How long to wait before reading a failed schedule again."""
TRIES = 3
"""Attempts per send, each over a new connection."""


class Entry(ModelEntry):  # type: ignore[misc]  # django-celery-beat has no types
    """A schedule in beat; its last run is never in the future, and it is active at every hour."""

    last_run_at: datetime

    def __init__(self, model: PeriodicTask, app: Any = None) -> None:
        super().__init__(model, app=app)
        # Kombu would retry on the broken channel. The scheduler opens a new connection.
        self.options["retry"] = False

    def is_due(self) -> Any:
        """Return whether it is due and when to check again; a failing schedule isn't due."""
        with isolated("checking a schedule", self.name):
            return self._is_due()
        return schedstate(is_due=False, next=FAILED_S)

    def _is_due(self) -> Any:
        now = timezone.now()
        if self.last_run_at > now:
            logger.warning("clock was set back schedule=%s", self.name)
            self.last_run_at = self.model.last_run_at = now
            # Don't let a row reread from the database bring back a last run in the future.
            self.model.no_changes = True
            try:
                self.save()
            except DatabaseError:
                logger.exception("time of the last run not updated schedule=%s", self.name)
        if self.model.crontab is not None:
            self.schedule = schedules.cron_at(self.model.crontab, now)
        return super().is_due()


class Scheduler(DatabaseScheduler):  # type: ignore[misc]  # as above
    """Replans when the clock is set; includes all schedules, whatever their hour."""

    Entry = Entry

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._ahead_s = _ahead_of_monotonic_s()
        self._changed_at: datetime | None = None
        super().__init__(*arguments, **options)

    def all_as_schedule(self) -> dict[str, ModelEntry]:
        """Return all readable schedules by name; skip those that can't be read."""
        found: dict[str, ModelEntry] = {}
        for model in self.enabled_models():
            with isolated("reading a schedule", model.name) as one:
                found[model.name] = self.Entry(model, app=self.app)
            if isinstance(one.error, DatabaseError):
                raise one.error
        return found

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send a due job; wait for Redis if it is down.

        Lake jobs are only sent when there is work: see `console.data.pipeline.news`.
        """
        now_ms = int(timezone.now().timestamp() * 1000)
        if not is_wanted(entry.task, dict(entry.kwargs or {}), now_ms):
            return
        for tries_left in reversed(range(TRIES)):
            try:
                # Without a producer, this connects first, however long that takes.
                self.apply_async(entry, producer=producer or self.producer, advance=False)
            except SchedulingError as error:
                if not tries_left:
                    logger.exception("schedule not sent schedule=%s", entry.name)
                    return
                logger.warning("schedule not sent, reconnecting error=%s", error)
                producer = None
                self._forget_connection()
            else:
                logger.info("schedule sent schedule=%s", entry.name)
                return

    def _forget_connection(self) -> None:
        self.connection.release()
        for name in ("producer", "connection"):
            self.__dict__.pop(name, None)

    def tick(self, *arguments: Any, **options: Any) -> float:
        ahead_s = _ahead_of_monotonic_s()
        if abs(ahead_s - self._ahead_s) > STEP_SECONDS:
            logger.warning("clock was changed seconds=%.0f", ahead_s - self._ahead_s)
            self.populate_heap()
        self._ahead_s = ahead_s
        return float(super().tick(*arguments, **options))

    def schedule_changed(self) -> bool:
        """Return whether a schedule was changed, even if the clock was set back since."""
        is_newer = super().schedule_changed()
        before, self._changed_at = self._changed_at, self.Changes.last_change()
        return bool(is_newer) or (before is not None and before != self._changed_at)

    def enabled_models_qs(self) -> QuerySet[PeriodicTask]:
        """Return all enabled schedules.

        The base class leaves out schedules that are hours away, so a missed run would only be
        caught up the next day.
        """
        found: QuerySet[PeriodicTask] = self.Model.objects.enabled()
        return found


def _ahead_of_monotonic_s() -> float:
    return timezone.now().timestamp() - time.monotonic()
