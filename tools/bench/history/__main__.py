"""Measure the cost of the history: wall time of a chart, bytes of a year.

    python -m tools.bench.history [--series 12] [--days 30] [--others 100] [--postgres]
    python -m tools.bench.history --year [--series 20000]

The days are filled with a sample every ten minutes, folded as the collector folds them; `others`
are extra series that no chart shows. Each chart is read without caches, as in a console that has
just started.

A year is extrapolated from a block of every scale: two and a half days with a sample every ten
seconds, some subjects with three series, a fifth of them busy.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from console.observe.history.database import Database, PostgresDatabase, SqliteDatabase
from console.observe.history.metrics import GOT, PUT, PUT_BYTES, TOPIC, Column, Subject
from console.observe.history.series import Line, values_of
from console.observe.history.store import HistoryStore
from console.observe.history.tiers import COARSE, DAY_MS, FINE, TIERS
from tests.support.history_points import layout_of
from tests.support.postgres import postgres, programs

SAMPLES_A_FOLD = 144
TIMES = 15
YEAR_SUBJECTS = 200
YEAR_FIGURES = (PUT, PUT_BYTES, GOT)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def fill(store: HistoryStore, series: int, days: int) -> list[int]:
    """Store `days` of `series` topics until now; return their IDs."""
    slots = days * DAY_MS // COARSE.step_ms
    first = _now_ms() // COARSE.step_ms - slots
    subjects = [Subject(TOPIC, "broker-a", f"topic-{number:05}") for number in range(series)]
    ids = store.subject_ids(subjects, first * COARSE.step_ms)
    layout, _order = layout_of((ids[subject], Column(PUT.code)) for subject in subjects)
    random = np.random.default_rng(1)
    for slot in range(slots):
        at_ms = (first + slot) * COARSE.step_ms
        values = random.poisson(6_000, series).astype(np.int64)
        store.add_sample("broker-a:0", at_ms, COARSE.step_ms, layout, values, b"{}")
        if slot % SAMPLES_A_FOLD == SAMPLES_A_FOLD - 1:
            for _done in store.fold():
                pass
    return [ids[subject] for subject in subjects]


def chart_ms(database: Database, numbers: list[int], days: int) -> float:
    """Return how long a chart of these series takes."""
    slots = days * DAY_MS // COARSE.step_ms
    first = _now_ms() // COARSE.step_ms - slots
    began = time.perf_counter()
    read = HistoryStore(database).read(numbers, COARSE, first, slots)
    lines = [values_of([points], Line("", PUT)) for points in read.values()]
    took = time.perf_counter() - began
    assert all(sum(value is not None for value in line) > slots * 0.9 for line in lines)
    return took * 1000


def year_bytes(directory: Path, series: int) -> float:
    """Return the size of `series` series in a year."""
    database = SqliteDatabase(directory / "history.sqlite3")
    store = HistoryStore(database)
    first = _now_ms() // COARSE.block_ms * COARSE.block_ms - COARSE.block_ms
    subjects = [Subject(TOPIC, "broker-a", f"topic-{number:05}") for number in range(YEAR_SUBJECTS)]
    ids = store.subject_ids(subjects, first)
    columns = [(ids[subject], Column(one.code)) for subject in subjects for one in YEAR_FIGURES]
    layout, _order = layout_of(columns)
    random = np.random.default_rng(1)
    mean = np.where(np.arange(len(columns)) // len(YEAR_FIGURES) % 5 == 0, 100, 0)
    for number in range(COARSE.block_ms // FINE.step_ms):
        values = random.poisson(mean).astype(np.int64)
        at_ms = first + (number + 1) * FINE.step_ms
        store.add_sample("broker-a:0", at_ms, FINE.step_ms, layout, values, b"{}")
        if number % 30 == 29:
            for _done in store.fold():
                pass
    rows = database.rows("SELECT tier, SUM(LENGTH(points)) FROM history_blocks GROUP BY tier")
    kept = {int(tier): int(size) for tier, size in rows}
    with_keys = database.bytes_used() / sum(kept.values())
    database.close()
    year = sum(kept[tier.number] * tier.kept_ms / COARSE.block_ms for tier in TIERS)
    return year * with_keys * series / len(columns)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.history")
    parser.add_argument("--series", type=int)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--others", type=int, default=100)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--year", action="store_true", help="print the size of a year's data")
    arguments = parser.parse_args()
    if arguments.year:
        series = arguments.series or 20_000
        with tempfile.TemporaryDirectory() as year:
            print(f"{series} series: {year_bytes(Path(year), series) / 1e9:.2f} GB a year")
        return
    series = arguments.series or 12
    with ExitStack() as stack:
        database: Database
        if arguments.postgres:
            binaries = programs()
            assert binaries is not None, "PostgreSQL isn't installed"
            database = PostgresDatabase(stack.enter_context(postgres(binaries)))
        else:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            database = SqliteDatabase(Path(directory) / "history.sqlite3")
        numbers = fill(HistoryStore(database), series + arguments.others, arguments.days)
        took = [chart_ms(database, numbers[:series], arguments.days) for _ in range(TIMES)]
        database.close()
    print(f"{statistics.median(took):.1f} ms per chart, {max(took):.1f} ms at most")


if __name__ == "__main__":
    main()
