"""The jobs that keep a lake current, each a short piece of work.

`ingest` reads the new part of one broker's log, batch by batch, and counts each batch in gold;
`maintain` merges, drops and deletes files. A job ends soon after its time is up and reports whether
work remains. It writes the status after each batch.

The pipeline's worker runs them when Celery asks; `python -m analytics.lake run` needs neither.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from analytics.errors import LakeBusyError, LakeError, ReportError
from analytics.lake import iceberg
from analytics.lake.derived import catch_up, is_behind
from analytics.lake.ingest import Ingest
from analytics.lake.maintenance import BRONZE_DAYS, Maintained, maintain
from analytics.lake.place import UPKEEP
from analytics.lake.silver import declare
from analytics.lake.status import STATUS_FILE, Status
from broker_core import allocator
from broker_core.isolation import FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from analytics.lake.ingest import Batch, Source
    from analytics.lake.place import LakePlace
    from analytics.lake.samples import SampledHours
    from analytics.lake.writer import Writer

logger = logging.getLogger(__name__)

# The longest that a report waits for a job to end.
JOB_SECONDS = 20.0
# Unreferenced files are searched for once an hour, because that lists every file of the lake.
DELETE_SECONDS = 3600


@dataclass(slots=True)
class Done:
    """The result of a job; `is_all` if it finished all work that was due when it began."""

    rows: int = 0
    batches: int = 0
    sampled_hours: int = 0
    steps: int = 0
    is_all: bool = True


class LakeJobs:
    """The jobs of one lake. One thread."""

    def __init__(
        self,
        place: LakePlace,
        writer: Callable[[], Writer],
        *,
        bronze_days: int = BRONZE_DAYS,
        samples: SampledHours | None = None,
        seconds: float = JOB_SECONDS,
        observer: Callable[[str], None] | None = None,
    ) -> None:
        """Make the jobs.

        Args:
            writer: returns the writer; called only when there is work.
            samples: ingests the collector's samples, if there is a collector.
            seconds: a job starts no further step after this time.
            observer: called with the name of each step once it is done.
        """
        self.place = place
        self._writer = writer
        self._bronze_days = bronze_days
        self._samples = samples
        self._seconds = seconds
        self._observer = observer

    def ingest(self, source: Source) -> Done:
        """Ingest the new part of a log, and the hours that the collector has written.

        Raises:
            ReportError: the job failed; the status has the error, too.
        """
        done = Done()
        with self._reporting("ingest") as status:
            try:
                self._take_messages(source, status, done)
            except Exception:
                # An unreadable log must not hold back the samples.
                with suppress(ReportError, OSError):
                    self._take_samples(done)
                raise
            self._take_samples(done)
            # Last: a catalogue that doesn't respond must not hold back Delta.
            with self.place.locked(UPKEEP):
                iceberg.follow(self.place)
        # A batch needs many times the memory that remains in use after it.
        allocator.release_free_memory()
        return done

    def _take_messages(self, source: Source, status: Status, done: Done) -> None:
        is_over = self._timer()
        ingest = Ingest(self.place, source, observer=self._observer)
        look = ingest.look()
        status.update_positions(ingest, source.broker, look)
        declare(self.place, source.rules)
        # A job that failed after its commit left a batch that gold hasn't counted.
        behind = is_behind(self.place)
        if look.log_to == look.watermark and not behind:
            return
        writer = self._writer()
        status.engine = writer.name
        if behind:
            catch_up(self.place, writer, observer=self._observer)
        ingest = Ingest(self.place, source, writer, observer=self._observer)
        # Under constant traffic the log always has more; the next job reads it.
        end = ingest.end(look)
        while (batch := ingest.batch()) is not None:
            done.rows, done.batches = done.rows + batch.rows, done.batches + 1
            catch_up(self.place, writer, observer=self._observer)
            look = ingest.look()
            status.update_positions(ingest, source.broker, look)
            self._took(status, source.broker, batch)
            if look.watermark >= end:
                break
            if is_over():
                done.is_all = False
                break

    def maintain(self) -> Done:
        """Run the maintenance that is due.

        Raises:
            ReportError: the job failed; the status has the error, too.
        """
        with self._reporting("maintain") as status:
            writer = self._writer()
            status.engine = writer.name
            now_ms = time.time_ns() // 1_000_000
            deletes = now_ms - status.deleted_ms >= DELETE_SECONDS * 1000
            done = maintain(
                self.place,
                datetime.now(UTC).date(),
                writer,
                bronze_days=self._bronze_days,
                deletes=deletes,
                is_over=self._timer(),
            )
            if done.is_done:
                status.maintained_ms = now_ms
                status.deleted_ms = now_ms if deletes else status.deleted_ms
                with self.place.locked(UPKEEP):
                    iceberg.tidy(self.place)
            _log(done)
        allocator.release_free_memory()
        return Done(steps=len(done.merged), is_all=done.is_done)

    def _timer(self) -> Callable[[], bool]:
        end = time.monotonic() + self._seconds
        return lambda: time.monotonic() >= end

    @contextmanager
    def _reporting(self, job: str) -> Iterator[Status]:
        """Write the status when the block ends, with the error that ended it.

        Raises:
            LakeError: the block raised an unexpected exception.
        """
        status = Status.of(self.place)
        try:
            yield status
        except LakeBusyError:
            raise
        except (ReportError, OSError) as error:
            _set_error(status, str(error))
            raise
        except Exception as error:
            # No exception may end the process or stop later jobs.
            FAILURES.report(f"the lake job {job}", self.place.uri, error)
            sentence = f"The lake failed and will try again: {error!r}. See its log for details."
            _set_error(status, sentence)
            raise LakeError(sentence) from error
        else:
            status.error, status.error_ms = "", 0
        finally:
            self._write(status)

    def _write(self, status: Status) -> None:
        status.checked_ms = time.time_ns() // 1_000_000
        try:
            status.write(self.place)
        except OSError as error:
            logger.warning(
                "lake status not written path=%s error=%s", self.place.state / STATUS_FILE, error
            )

    def _took(self, status: Status, broker: str, batch: Batch) -> None:
        status.brokers[broker]["batch"] = {**asdict(batch), "at_ms": time.time_ns() // 1_000_000}
        self._write(status)
        logger.info(
            "log ingested broker=%s engine=%s log_from=%d log_to=%d rows=%d bytes=%d gaps=%d "
            "seconds=%.2f",
            broker,
            status.engine,
            batch.commit_log_from,
            batch.commit_log_to,
            batch.rows,
            batch.size,
            batch.gaps,
            batch.seconds,
        )

    def _take_samples(self, done: Done) -> None:
        while self._samples is not None and self._samples.waiting():
            with self.place.locked():
                taken = self._samples.take()
            if taken is None:
                return
            done.sampled_hours += taken.hours
            logger.info("samples ingested hours=%d rows=%d", taken.hours, taken.rows)


def _set_error(status: Status, sentence: str) -> None:
    if sentence != status.error:
        status.error_ms = time.time_ns() // 1_000_000
    status.error = sentence


def _log(done: Maintained) -> None:
    days = sorted({f"{table}/{day}" for table, day in done.merged})
    logger.info(
        "lake maintained merged=%d of=%s dropped=%s deleted_files=%d is_done=%s",
        len(done.merged),
        ",".join(days) or "-",
        ",".join(day.isoformat() for day in done.dropped) or "-",
        done.deleted_files,
        done.is_done,
    )
