"""The cost of a collector: CPU time of all its work for a broker with many topics.

    python -m tools.bench.collector [--topics 5000] [--samples 60] [--postgres]

A fake broker answers with the bytes that a real one would send; a fifth of its topics are busy,
and each of the first `--read` topics has a consumer group. Reading, figures, storing, judging and
folding are the real ones, on a database on disk; only the ten seconds between samples are skipped.
The time up to the first fold isn't counted. Use a multiple of thirty samples, the length of a
fold.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from console.observe.collector.collector import FOLD_EVERY, Collector
from console.observe.history.database import Database, PostgresDatabase, SqliteDatabase
from console.observe.history.points import NOMINAL_MS
from console.observe.history.store import HistoryStore
from console.observe.verdicts.judge import Judge
from tests.support.collector_samples import LargeBroker, TestTime
from tests.support.postgres import postgres, programs


class Stopwatch:
    """CPU seconds of this process, by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.process_time()

    def lap(self, part: str) -> None:
        now = time.process_time()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._since
        self._since = now

    def clear(self) -> None:
        self.seconds.clear()
        self._since = time.process_time()


def measure(database: Database, broker: LargeBroker, samples: int) -> dict[str, float]:
    """Return CPU seconds by part."""
    clock, store, watch = TestTime(), HistoryStore(database), Stopwatch()
    judge = Judge(store)

    def judged(at_ms: int, noticed: object, facts: object) -> None:
        watch.lap("samples")
        judge.judge(at_ms, noticed, facts)  # type: ignore[arg-type]
        watch.lap("verdicts")

    collector = Collector(broker, store, clock, os.getpid(), judged)
    for turn in range(FOLD_EVERY + samples):
        if turn == FOLD_EVERY:
            watch.clear()
        broker.grow()
        clock.pass_ms(NOMINAL_MS)
        watch.lap("the broker's own")
        collector.turn()
        watch.lap("samples")
        if turn % FOLD_EVERY == FOLD_EVERY - 1:
            collector.fold()
            watch.lap("folding")
    return watch.seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.collector")
    parser.add_argument("--topics", type=int, default=5_000)
    parser.add_argument("--read", type=int, help="number of topics that a group reads (a fifth)")
    parser.add_argument("--samples", type=int, default=2 * FOLD_EVERY)
    parser.add_argument("--postgres", action="store_true")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        database: Database
        if arguments.postgres:
            binaries = programs()
            assert binaries is not None, "PostgreSQL isn't installed"
            database = PostgresDatabase(stack.enter_context(postgres(binaries)))
        else:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            database = SqliteDatabase(Path(directory) / "history.sqlite3")
        read = arguments.topics // 5 if arguments.read is None else arguments.read
        found = measure(database, LargeBroker(arguments.topics, read), arguments.samples)
        database.close()
    del found["the broker's own"]
    for part, seconds in found.items():
        print(f"{part:10} {seconds / arguments.samples * 1e3:7.1f} ms a sample")
    share = sum(found.values()) / (arguments.samples * NOMINAL_MS / 1_000)
    print(f"{'together':10} {share:7.1%} of a core")


if __name__ == "__main__":
    main()
