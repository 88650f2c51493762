"""Keeper: the process that keeps a lake up with its log.

It looks at the log every ten seconds, which costs milliseconds, and takes a batch when enough is
new or when something is and a minute has passed. In idle hours it does the maintenance. It is a
guest on the broker's machine, as reports are: see analytics.guest.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from analytics.errors import LakeBusyError, LakeStoppedError, ReportError
from analytics.lake.gold import bring_up
from analytics.lake.ingest import BATCH_BYTES, Ingest, Look
from analytics.lake.maintenance import BRONZE_DAYS, maintain
from analytics.lake.status import Status, warning_of
from broker_core import allocator
from broker_core.isolation import FAILURES

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from analytics.lake.ingest import Batch, Source
    from analytics.lake.place import LakePlace
    from analytics.lake.samples import SampledHours

logger = logging.getLogger(__name__)

CHECK_SECONDS = 10.0
BATCH_SECONDS = 60.0
MAINTAIN_SECONDS = 3600.0


class Keeper:
    """Runs in one thread until it is told to stop; the clock is a parameter of each step."""

    def __init__(
        self,
        place: LakePlace,
        source: Source,
        ingest: Ingest,
        *,
        batch_bytes: int = BATCH_BYTES,
        bronze_days: int = BRONZE_DAYS,
        samples: SampledHours | None = None,
    ) -> None:
        """`samples` takes what a collector sampled, where there is one."""
        self.status = Status(place.uri, source.broker, os.getpid())
        self._place = place
        self._ingest = ingest
        self._batch_bytes = batch_bytes
        self._bronze_days = bronze_days
        self._samples = samples
        self._look: Look | None = None
        self._is_gold_up = False
        self._tried_at = float("-inf")
        self._maintained_at: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set; a batch that has begun is finished."""
        while not stop.is_set():
            self.step(time.monotonic(), stop)
            stop.wait(CHECK_SECONDS)

    def step(self, now: float, stop: threading.Event | None = None) -> list[Batch]:
        """Look once, and do what is due; return the batches that were taken."""
        taken: list[Batch] = []
        # What keeps one from going on keeps nothing from the other.
        failures = [
            failure
            for work in (partial(self._work, now, stop, taken), self._take_samples)
            if (failure := _failure_of(work)) is not None
        ]
        serious = [each for each in failures if not isinstance(each, LakeBusyError)]
        if serious:
            self._failed(serious[0])
        elif failures:
            logger.info("%s", failures[0])
        else:
            self.status.error, self.status.error_ms = "", 0
        self._tell()
        return taken

    def _work(self, now: float, stop: threading.Event | None, taken: list[Batch]) -> None:
        is_due = now - self._tried_at >= BATCH_SECONDS
        # Somebody may have rebuilt the lake meanwhile: believe what was found for a minute.
        look = self.look(anew=is_due)
        while self._wants_batch(look, is_due=is_due) and not (stop and stop.is_set()):
            self._tried_at, is_due = now, False
            batch = self._ingest.batch()
            look = self.look(anew=True)
            if batch is None:
                break
            self._took(batch)
            taken.append(batch)
        if is_due:
            self._tried_at = now
        if taken or not self._is_gold_up:
            self._bring_up()
            # A batch and what it is merged into are many times what stays.
            allocator.give_back()
        self._maintain(now, is_idle=not taken)

    def look(self, *, anew: bool = True) -> Look:
        """Find out where lake and log stand, and note it in the status."""
        look = self._ingest.look(None if anew else self._look)
        status = self.status
        status.watermark, status.log_from, status.log_to = (
            look.watermark,
            look.log_from,
            look.log_to,
        )
        status.warning = warning_of(look, self._ingest)
        self._look = look
        return look

    def _wants_batch(self, look: Look, *, is_due: bool) -> bool:
        return look.pending >= self._batch_bytes or (is_due and self._is_behind(look))

    def _is_behind(self, look: Look) -> bool:
        return look.log_to != look.watermark

    def _took(self, batch: Batch) -> None:
        self.status.batch = {**asdict(batch), "at_ms": time.time_ns() // 1_000_000}
        logger.info(
            "batch: log_from=%d log_to=%d rows=%d bytes=%d gaps=%d seconds=%.2f",
            batch.commit_log_from,
            batch.commit_log_to,
            batch.rows,
            batch.size,
            batch.gaps,
            batch.seconds,
        )

    def _bring_up(self) -> None:
        self._is_gold_up = False
        with self._place.locked():
            bring_up(self._place)
        self._is_gold_up = True

    def _take_samples(self) -> None:
        if self._samples is None or not self._samples.waiting():
            return
        with self._place.locked():
            done = self._samples.take()
        if done is not None:
            logger.info("samples: hours=%d rows=%d", done.hours, done.rows)

    def _maintain(self, now: float, *, is_idle: bool) -> None:
        if self._maintained_at is None:
            self._maintained_at = now  # not at once: a restart must not cost more than it has to
        if not is_idle or now - self._maintained_at < MAINTAIN_SECONDS:
            return
        self._maintained_at = now
        done = maintain(self._place, datetime.now(UTC).date(), bronze_days=self._bronze_days)
        self.status.maintained_ms = time.time_ns() // 1_000_000
        logger.info(
            "maintenance: compacted=%s dropped=%s deleted_files=%d",
            [day.isoformat() for day in done.compacted],
            [day.isoformat() for day in done.dropped],
            done.deleted_files,
        )

    def _failed(self, error: ReportError | OSError) -> None:
        sentence = str(error)
        if sentence != self.status.error:
            log = logger.error if isinstance(error, LakeStoppedError) else logger.warning
            log("%s", sentence)
            self.status.error_ms = time.time_ns() // 1_000_000
        self.status.error = sentence
        self._look = None

    def _tell(self) -> None:
        status = self.status
        status.checked_ms = time.time_ns() // 1_000_000
        try:
            status.write(self._place)
        except OSError as error:
            logger.warning("the status cannot be written: %s", error)


def _failure_of(work: Callable[[], None]) -> ReportError | OSError | None:
    try:
        work()
    except (ReportError, OSError) as error:
        return error
    except Exception as error:  # noqa: BLE001  no record may end the process
        FAILURES.report("a step of the lake", work, error)
        return ReportError(
            f"The lake failed and will try again: {error!r}. See its log for details."
        )
    return None
