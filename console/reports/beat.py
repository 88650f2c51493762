"""The scheduler of beat: django-celery-beat's, for a wall clock that is set.

Beat of its own knows no such clock: what ran at a time that has become the future is not due until
then, and what it has planned waits for the clock to come by. A run that is sent twice for that is
made once: its slot is taken (`schedules.slot`). Times that the clock steps over are times at which
beat was down: the last of them is caught up.

What is due while Redis is gone is sent when it is back; Celery's own beat gives up after a second,
and a daily report would be missing for that day.
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
from console.reports import schedules

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet
    from django_celery_beat.models import PeriodicTask

logger = logging.getLogger(__name__)

STEP_SECONDS = 2.0
"""Between two looks, seconds apart, a clock that only drifts does not go astray so far."""
FAILED_S = 60.0
"""How long to wait before reading a failed schedule again."""
TRIES = 3
"""Of a send, each with a connection of its own."""


class Entry(ModelEntry):  # type: ignore[misc]  # django-celery-beat has no types
    """A schedule, as beat knows it; its last run is not later than now, each hour is one."""

    last_run_at: datetime

    def __init__(self, model: PeriodicTask, app: Any = None) -> None:
        super().__init__(model, app=app)
        # Kombu's own tries use a channel again that broke. The scheduler makes a new connection.
        self.options["retry"] = False

    def is_due(self) -> Any:
        """Return whether it is due and when to ask again; a failing schedule isn't due."""
        with isolated("checking a schedule", self.name):
            return self._is_due()
        return schedstate(is_due=False, next=FAILED_S)

    def _is_due(self) -> Any:
        now = timezone.now()
        if self.last_run_at > now:
            logger.warning("the clock was set back: schedule=%s", self.name)
            self.last_run_at = self.model.last_run_at = now
            # What is read anew from the database must not have run in the future again.
            self.model.no_changes = True
            try:
                self.save()
            except DatabaseError:
                logger.exception("the time of the last run stays: schedule=%s", self.name)
        if self.model.crontab is not None:
            self.schedule = schedules.cron_at(self.model.crontab, now)
        return super().is_due()


class Scheduler(DatabaseScheduler):  # type: ignore[misc]  # as above
    """Plans anew when the clock was set; looks at all schedules, whatever their hour."""

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
        """Send what is due; while Redis is gone, wait for it."""
        for tries_left in reversed(range(TRIES)):
            try:
                # Who has no producer yet connects first, however long that takes.
                self.apply_async(entry, producer=producer or self.producer, advance=False)
            except SchedulingError as error:
                if not tries_left:
                    logger.exception("not sent: schedule=%s", entry.name)
                    return
                logger.warning("sent again, over a new connection: %s", error)
                producer = None
                self._forget_connection()
            else:
                logger.info("sent: schedule=%s", entry.name)
                return

    def _forget_connection(self) -> None:
        self.connection.release()
        for name in ("producer", "connection"):
            self.__dict__.pop(name, None)

    def tick(self, *arguments: Any, **options: Any) -> float:
        ahead_s = _ahead_of_monotonic_s()
        if abs(ahead_s - self._ahead_s) > STEP_SECONDS:
            logger.warning("the clock was set by %.0f s", ahead_s - self._ahead_s)
            self.populate_heap()
        self._ahead_s = ahead_s
        return float(super().tick(*arguments, **options))

    def schedule_changed(self) -> bool:
        """Return whether a schedule was changed, at an earlier time than the change before too."""
        is_newer = super().schedule_changed()
        before, self._changed_at = self._changed_at, self.Changes.last_change()
        return bool(is_newer) or (before is not None and before != self._changed_at)

    def enabled_models_qs(self) -> QuerySet[PeriodicTask]:
        """Return all schedules that are on.

        The base class leaves out what is hours away: a time that was missed would be caught up no
        earlier than on the next day.
        """
        found: QuerySet[PeriodicTask] = self.Model.objects.enabled()
        return found


def _ahead_of_monotonic_s() -> float:
    return timezone.now().timestamp() - time.monotonic()
