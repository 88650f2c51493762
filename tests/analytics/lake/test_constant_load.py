"""Three simulated days of traffic without pauses: maintenance keeps up with ingest.

The schedule, the jobs and the choice of the files to merge are real. The tables are in-memory lists
of files, and the clock advances by the assumed time of a batch or merge.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import signal
import sys
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from analytics.lake import __main__ as command_line, changes, gold, jobs, maintenance
from analytics.lake.files import WrittenFile
from analytics.lake.gold_tables import GOLD
from analytics.lake.ingest import Batch, Look
from analytics.lake.rewriting import LakeFile
from analytics.lake.status import Status
from analytics.lake.tables import EVENTS, MESSAGES
from tests.analytics.lake.lakes import BROKER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from analytics.lake.place import LakePlace
    from analytics.lake.writer import Query

DAY_SECONDS = 86_400
DAYS = 3
START = int(datetime(2026, 11, 2, tzinfo=UTC).timestamp())
LOG_BYTES_PER_SECOND = 580_000_000_000 // DAY_SECONDS
BATCH_BYTES = 64 * 1024 * 1024
SMALL_FILE_BYTES = 20_000
# Assumptions about the machine.
BATCH_SECONDS, INGEST_BYTES_PER_SECOND = 1.0, 20_000_000
MERGE_SECONDS, MERGE_BYTES_PER_SECOND = 1.0, 10_000_000
# Requirements.
FILES_PER_DAY_MAX = 500
DELAY_SECONDS_MAX = 90
MAINTENANCE_DELAY_SECONDS_MAX = 900


class Clock:
    def __init__(self) -> None:
        self.now = float(START)

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1_000_000_000)

    def datetime(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)


class SimulatedTable:
    """A table as the list of its files, and the highest number of files of a day."""

    merged = ""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: dict[str, LakeFile] = {}
        self.counts: Counter[date] = Counter()
        self.most_files = 0
        self._numbers = itertools.count()

    def exists(self, _: object) -> bool:
        return True

    def existing(self, _: object) -> SimulatedTable:
        return self

    open = existing

    def new_file(self, day: date, size: int, prefix: str = "part") -> WrittenFile:
        path = f"day={day}/{prefix}-{next(self._numbers)}.parquet"
        return WrittenFile(path, size, 1, {"day": day.isoformat()})

    def commit(
        self,
        _place: object,
        _opened: object,
        added: Sequence[WrittenFile],
        *,
        removed: Sequence[str] = (),
        **_: Any,
    ) -> None:
        for path in removed:
            self.counts[self.files.pop(path).day] -= 1
        for file in added:
            day, at = date.fromisoformat(str(file.partition["day"])), next(self._numbers)
            about = (file.path, file.size, file.rows, day)
            self.files[file.path] = LakeFile(*about, BROKER, BROKER, at, at)
            self.counts[day] += 1
            self.most_files = max(self.most_files, self.counts[day])

    def replace(
        self, place: object, added: Sequence[WrittenFile], removed: Sequence[LakeFile], **_: Any
    ) -> None:
        self.commit(place, self, added, removed=[file.path for file in removed])


class UnwrittenStatus(Status):
    def write(self, place: LakePlace) -> None:
        """Leave the disk alone: there are 30,000 batches."""


class MergingWriter:
    """A `Writer` whose merges take time on the simulated clock."""

    name, batch_bytes, split_bytes = "simulated", BATCH_BYTES, BATCH_BYTES

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def rows(self, _: object, query: Query, target: Any, prefix: str = "part") -> list[WrittenFile]:
        size = sum(file.size for file in query.files)
        self._clock.now += MERGE_SECONDS + size / MERGE_BYTES_PER_SECOND
        merged = target.new_file(query.files[0].day, size, prefix)
        return [dataclasses.replace(merged, rows=sum(file.rows for file in query.files))]


class Simulation:
    """An appliance whose log grows as the clock moves."""

    def __init__(self, message_file_bytes: int) -> None:
        self.clock = Clock()
        self.status = UnwrittenStatus("lake")
        self.messages = SimulatedTable(MESSAGES.name)
        self.events = SimulatedTable(EVENTS.name)
        self.gold = [
            dataclasses.replace(one, table=SimulatedTable(one.table.name))  # type: ignore[arg-type]
            for one in GOLD
        ]
        self.watermark = 0
        self.longest_delay = 0.0
        self.first_days: list[tuple[date, date]] = []
        self._message_file_bytes = message_file_bytes

    @property
    def tables(self) -> list[SimulatedTable]:
        return [self.messages, self.events, *(one.table for one in self.gold)]  # type: ignore[list-item]

    @property
    def log_to(self) -> int:
        return int((self.clock.now - START) * LOG_BYTES_PER_SECOND)

    def ingest(self, *_: object, **__: object) -> SimpleNamespace:
        """Return a replacement for an `Ingest`."""
        return SimpleNamespace(
            look=self.look,
            end=lambda _: self.log_to,
            batch=self.batch,
            second_file_from=lambda: None,
            next_records=lambda _: [],
        )

    def look(self) -> Look:
        return Look(self.watermark, 0, self.log_to)

    def batch(self) -> Batch | None:
        begin, end = self.watermark, min(self.log_to, self.watermark + BATCH_BYTES)
        if begin == end:
            return None
        day, share = self.clock.datetime().date(), (end - begin) / BATCH_BYTES
        self.clock.now += BATCH_SECONDS + (end - begin) / INGEST_BYTES_PER_SECOND
        for table in self.tables:
            size = self._message_file_bytes if table is self.messages else SMALL_FILE_BYTES
            table.commit(None, table, [table.new_file(day, max(1, int(size * share)))])
        self.watermark = end
        self.longest_delay = max(
            self.longest_delay, self.clock.now - START - begin / LOG_BYTES_PER_SECOND
        )
        return Batch(begin, end, rows=1, size=1, gaps=0, seconds=1.0)

    def stop_event(self) -> SimpleNamespace:
        """Return a replacement for the event that ends `run`."""

        def wait(seconds: float) -> None:
            self.clock.now += seconds

        end = START + DAYS * DAY_SECONDS
        return SimpleNamespace(is_set=lambda: self.clock.now >= end, wait=wait, set=lambda: None)


@pytest.mark.parametrize("message_file_bytes", [200_000, 10_000_000])
def test_three_days_at_580_gb_a_day_leave_few_files_and_no_pending_maintenance(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    message_file_bytes: int,
) -> None:
    simulation = Simulation(message_file_bytes)
    clock = simulation.clock
    maintained: list[float] = []
    real_maintain = maintenance.maintain

    def maintain(*given: Any, **more: Any) -> Any:
        done = real_maintain(*given, **more)
        if done.is_done:
            maintained.append(clock.now)
        days = sorted({file.day for file in simulation.messages.files.values()})
        simulation.first_days.append((clock.datetime().date(), days[0]))
        return done

    def listed(table: SimulatedTable) -> list[LakeFile]:
        return list(table.files.values())

    replacements: dict[Any, dict[str, Any]] = {
        command_line: {
            "time": clock,
            "threading": SimpleNamespace(Event=simulation.stop_event),
            "is_low_priority": lambda: False,
        },
        jobs: {
            "time": clock,
            "datetime": SimpleNamespace(now=lambda _: clock.datetime()),
            "Ingest": simulation.ingest,
            "declare": lambda *_: None,
            "iceberg": SimpleNamespace(follow=lambda _: 0, tidy=lambda _: None),
            "is_behind": lambda _: False,
            "catch_up": lambda *_, **__: True,
            "maintain": maintain,
            "Status": SimpleNamespace(of=lambda _: simulation.status),
        },
        maintenance: {
            "MESSAGES": simulation.messages,
            "_ORDERS": ((simulation.messages, ()), (simulation.events, ())),
            "tables_in": lambda _: (),
            "silver_in": lambda _: (),
            "files_of": listed,
            "stored_files_of": listed,
            "catch_up": lambda *_: True,
            "dropped_before_ms": lambda _: 0,
            "_ends": lambda *_: {},
        },
        changes: {"stored_files_of": listed},
        gold: {"GOLD": simulation.gold, "_rows": lambda *_, **__: ()},
    }
    for module, names in replacements.items():
        for name, value in names.items():
            monkeypatch.setattr(module, name, value)
    # A log line for each of 30,000 batches takes most of the test's time.
    caplog.set_level(logging.WARNING, "analytics.lake")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    arguments = ["run", "--lake", str(tmp_path / "lake"), "--store", str(tmp_path)]
    given = command_line.parser_of("lake").parse_args(arguments)

    command_line.Command(
        given,
        {"TREBUCHET_LAKE_DAYS": "1"},
        lambda: MergingWriter(clock),  # type: ignore[arg-type, return-value]
    ).execute()

    files_per_day = max(table.most_files for table in simulation.tables)
    # `python -m tools.bench.analytics` reads it.
    sys.stdout.write(f"files_per_day={files_per_day}\n")
    assert simulation.status.error == ""
    for table in simulation.tables:
        assert table.most_files <= FILES_PER_DAY_MAX, table.name
    assert simulation.longest_delay <= DELAY_SECONDS_MAX
    steps = itertools.pairwise([float(START), *maintained, clock.now])
    assert max(after - before for before, after in steps) <= MAINTENANCE_DELAY_SECONDS_MAX
    assert all(first >= today - timedelta(days=1) for today, first in simulation.first_days)
