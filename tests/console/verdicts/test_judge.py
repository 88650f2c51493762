"""Judge: looks once a minute at what was noticed, and remembers since when something is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.history import metrics
from console.history.database import SqliteDatabase
from console.history.metrics import Subject, pair
from console.history.store import HistoryStore
from console.history.tiers import MINUTE_MS
from console.verdicts.judge import HELD_MS, RECENT_MS, Judge, verdicts_of
from tests.console.history.support import STEP_MS, keep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST_MS = 1_795_251_600_000
SAMPLES = 6 * 20
NOW_MS = FIRST_MS + SAMPLES * STEP_MS
PAIR = Subject(metrics.PROGRESS, "broker-a", pair("billing", "Orders"))
GROUP = Subject(metrics.GROUP, "broker-a", "billing")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HistoryStore]:
    """Twenty minutes of a group that loses its members and of one dead letter."""
    made = HistoryStore(SqliteDatabase(tmp_path / "history.sqlite3"))
    count = SAMPLES
    keep(
        made,
        FIRST_MS,
        {
            (GROUP, metrics.MEMBERS): [2] * (count // 2) + [0] * (count // 2),
            (GROUP, metrics.LAG): [0] * (count // 2) + list(range(count // 2)),
            (GROUP, metrics.LAG_AGE): [0] * (count // 2) + [5_000] * (count // 2),
            (GROUP, metrics.DEAD): [0] * (count - 12) + [1] + [0] * 11,
            (PAIR, metrics.LAG): [0] * count,
        },
    )
    yield made
    made.database.close()


def rules(store: HistoryStore) -> dict[str, int]:
    """Return since when each rule speaks."""
    return {each.rule: each.since_ms for each in verdicts_of(store).verdicts}


def test_it_says_what_goes_wrong_by_urgency(store) -> None:
    Judge(store).judge(NOW_MS, {})

    found = verdicts_of(store)
    assert found.at_ms == NOW_MS
    assert [each.rule for each in found.verdicts] == ["no-consumer", "dead-letters"]
    assert {each.name for each in found.verdicts} == {"billing"}


def test_it_looks_once_a_minute(store) -> None:
    judge = Judge(store)
    judge.judge(NOW_MS, {})
    judge.judge(NOW_MS + MINUTE_MS - 1, {})
    assert verdicts_of(store).at_ms == NOW_MS

    judge.judge(NOW_MS + MINUTE_MS, {GROUP: NOW_MS})
    assert verdicts_of(store).at_ms == NOW_MS + MINUTE_MS


def test_a_trouble_keeps_its_age_over_a_restart(store) -> None:
    Judge(store).judge(NOW_MS, {})
    Judge(store).judge(NOW_MS + MINUTE_MS, {})

    assert rules(store) == {"no-consumer": NOW_MS, "dead-letters": NOW_MS}


def test_what_is_over_stays_for_a_while_and_goes(store) -> None:
    judge = Judge(store)
    judge.judge(NOW_MS, {})
    rows = {(GROUP, metrics.MEMBERS): [2] * 60, (GROUP, metrics.LAG): [0] * 60}
    keep(store, NOW_MS, rows)

    judge.judge(NOW_MS + MINUTE_MS, {GROUP: NOW_MS})
    assert "no-consumer" in rules(store)
    later = NOW_MS + HELD_MS + 2 * MINUTE_MS
    judge.judge(later, {GROUP: later})
    assert rules(store) == {"dead-letters": NOW_MS}


def test_after_its_start_it_looks_at_what_was_noticed_alone(store) -> None:
    judge = Judge(store)
    judge.judge(NOW_MS, {})
    later = NOW_MS + HELD_MS + MINUTE_MS

    judge.judge(later, {GROUP: later - RECENT_MS - 1})

    assert rules(store) == {}


def test_a_clock_that_is_set_back_does_not_silence_it(store) -> None:
    judge = Judge(store)
    judge.judge(NOW_MS + 3_600_000, {})

    judge.judge(NOW_MS, {GROUP: NOW_MS})

    assert verdicts_of(store).at_ms == NOW_MS
    assert "no-consumer" in rules(store)
