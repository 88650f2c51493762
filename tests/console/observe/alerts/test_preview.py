"""The preview of a verdict's alert: it replays a day as the judge would have judged it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.observe.alerts.models import Rule
from console.observe.alerts.preview import VERDICT_EVERY, preview
from console.observe.history import metrics
from console.observe.history.database import SqliteDatabase
from console.observe.history.metrics import Subject, pair
from console.observe.history.store import HistoryStore
from console.observe.history.tiers import MINUTE_MS
from tests.support.history_points import STEP_MS, keep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.django_db

FIRST_MS = 1_795_251_600_000
WORKED, STILL = 20, 100
"""Minutes."""
END_MS = FIRST_MS + (WORKED + STILL) * MINUTE_MS
PAIR = Subject(metrics.PROGRESS, "broker-a", pair("billing", "Orders"))
GROUP = Subject(metrics.GROUP, "broker-a", "billing")
BROKER = Subject(metrics.BROKER, "broker-a", "0")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HistoryStore]:
    made = HistoryStore(SqliteDatabase(tmp_path / "history.sqlite3"))
    yield made
    made.database.close()


def rule(*verdicts: str, severity: str = "warn") -> Rule:
    return Rule(
        name="r", source=Rule.Source.VERDICT, verdicts=list(verdicts), least=severity, for_minutes=0
    )


def stopped(store: HistoryStore) -> None:
    """Record two hours of a group that consumed for twenty minutes and has stopped since."""
    still = range(STILL * 6)
    rows = {
        (GROUP, metrics.MEMBERS): [2] * (WORKED * 6) + [2 for _ in still],
        (PAIR, metrics.LAG): [0] * (WORKED * 6) + [70 for _ in still],
        (PAIR, metrics.CONSUMED): [5] * (WORKED * 6) + [0 for _ in still],
        (PAIR, metrics.LAG_AGE): [0] * (WORKED * 6) + [each * STEP_MS for each in still],
    }
    keep(store, FIRST_MS, rows)


def test_an_open_alert_continues_even_if_its_rule_would_no_longer_fire(store) -> None:
    """After an hour without consumption, only the earlier verdict keeps it going."""
    stopped(store)

    found = preview(store, rule("stopped"), END_MS)

    assert [(each.subject, each.ended_ms) for each in found.fired] == [(PAIR, None)]
    begun = found.fired[0].fired_ms - FIRST_MS - WORKED * MINUTE_MS
    assert 0 <= begun <= (5 + 2 * VERDICT_EVERY) * MINUTE_MS


def test_a_stopped_group_is_not_replayed_as_one_that_never_started(store) -> None:
    stopped(store)

    assert preview(store, rule("stalled"), END_MS).fired == []


def test_the_previous_days_show_how_a_disk_fills(store) -> None:
    """It fills by 10 % a day and 80 % are used, so it's full within a day."""
    total, minutes = 10**12, 3 * 24 * 60
    for minute in [*range(0, minutes - 60, 10), *range(minutes - 60, minutes)]:
        used = int(total * (0.5 + 0.3 * minute / minutes))
        rows = {(BROKER, metrics.DISK_USED): [used], (BROKER, metrics.DISK_TOTAL): [total]}
        keep(store, FIRST_MS + minute * MINUTE_MS, rows)

    newest = preview(store, rule("disk-fills"), FIRST_MS + minutes * MINUTE_MS).fired[0]

    assert newest.subject == BROKER
    assert newest.ended_ms is None
