"""The collector's cost for a large broker, counted in calls so that other load doesn't matter.

`python -m tools.bench.collector` measures it in CPU time.
"""

from __future__ import annotations

import cProfile
from typing import TYPE_CHECKING

import pytest

from console.observe.collector.collector import FOLD_EVERY, Collector
from console.observe.history.database import SqliteDatabase
from console.observe.history.store import HistoryStore
from console.observe.history.tiers import TIERS
from tests.support.collector_samples import LargeBroker, TestTime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOPICS = 400
SUBJECTS_A_TOPIC = 2
"""The topic and its group's progress; groups and retry topics are few."""
CALLS_A_SAMPLE, CALLS_A_BLOCK = 20, 150
"""Currently 10 and 75; with a call for each queue and number it would be 160 and 235."""


class Turns:
    """A collector of a large broker, one sample after the other."""

    def __init__(self, path: Path) -> None:
        self.broker, self.time = LargeBroker(TOPICS, TOPICS), TestTime()
        self.database = SqliteDatabase(path)
        self.collector = Collector(self.broker, HistoryStore(self.database), self.time, pid=1)

    def take(self, samples: int) -> None:
        for _ in range(samples):
            self.let_time_pass()
            self.collector.turn()

    def let_time_pass(self) -> None:
        self.broker.grow()
        self.time.pass_ms(10_000)


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Turns]:
    made = Turns(tmp_path / "history.sqlite3")
    yield made
    made.database.close()


def calls(what: Callable[[], None]) -> int:
    profile = cProfile.Profile()
    profile.runcall(what)
    return sum(each.callcount for each in profile.getstats())


def test_a_sample_takes_a_few_calls_per_topic(turns) -> None:
    turns.take(2)
    turns.let_time_pass()

    assert calls(turns.collector.turn) / TOPICS < CALLS_A_SAMPLE


def test_folding_needs_no_call_per_number_of_a_block(turns) -> None:
    turns.take(FOLD_EVERY)
    blocks = TOPICS * SUBJECTS_A_TOPIC * len(TIERS)

    assert calls(turns.collector.fold) / blocks < CALLS_A_BLOCK
