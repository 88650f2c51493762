"""Judge: evaluates rules once a minute, and remembers since when something is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.observe.history import metrics
from console.observe.history.database import SqliteDatabase
from console.observe.history.metrics import Subject, pair
from console.observe.history.store import HistoryStore
from console.observe.history.tiers import MINUTE_MS
from console.observe.verdicts import judge as judge_module
from console.observe.verdicts.judge import HELD_MS, RECENT_MS, Judge, Verdict, names_of, verdicts_of
from tests.support.history_points import STEP_MS, keep

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
    """Return since when each rule has fired."""
    return {each.rule: each.since_ms for each in verdicts_of(store).verdicts}


def test_it_lists_problems_by_urgency(store) -> None:
    Judge(store).judge(NOW_MS, {})

    found = verdicts_of(store)
    assert found.at_ms == NOW_MS
    assert [each.rule for each in found.verdicts] == ["no-consumer", "dead-letters"]
    assert {each.name for each in found.verdicts} == {"billing"}


def test_it_checks_once_a_minute(store) -> None:
    judge = Judge(store)
    judge.judge(NOW_MS, {})
    judge.judge(NOW_MS + MINUTE_MS - 1, {})
    assert verdicts_of(store).at_ms == NOW_MS

    judge.judge(NOW_MS + MINUTE_MS, {GROUP: NOW_MS})
    assert verdicts_of(store).at_ms == NOW_MS + MINUTE_MS


def test_an_issue_keeps_its_age_across_a_restart(store) -> None:
    Judge(store).judge(NOW_MS, {})
    Judge(store).judge(NOW_MS + MINUTE_MS, {})

    assert rules(store) == {"no-consumer": NOW_MS, "dead-letters": NOW_MS}


def test_resolved_verdicts_stay_for_a_while_before_they_are_removed(store) -> None:
    judge = Judge(store)
    judge.judge(NOW_MS, {})
    rows = {(GROUP, metrics.MEMBERS): [2] * 60, (GROUP, metrics.LAG): [0] * 60}
    keep(store, NOW_MS, rows)

    judge.judge(NOW_MS + MINUTE_MS, {GROUP: NOW_MS})
    assert "no-consumer" in rules(store)
    later = NOW_MS + HELD_MS + 2 * MINUTE_MS
    judge.judge(later, {GROUP: later})
    assert rules(store) == {"dead-letters": NOW_MS}


def test_after_its_start_it_only_examines_noticed_entries(store) -> None:
    judge = Judge(store)
    judge.judge(FIRST_MS + 2 * MINUTE_MS, {})
    assert rules(store) == {}

    judge.judge(NOW_MS, {GROUP: NOW_MS - RECENT_MS - 1})
    assert rules(store) == {}
    judge.judge(NOW_MS + MINUTE_MS, {GROUP: NOW_MS})
    assert "dead-letters" in rules(store)


def test_open_problems_are_rechecked_even_if_not_noticed_again(store) -> None:
    judge = Judge(store)
    judge.judge(NOW_MS, {})
    later = NOW_MS + HELD_MS + MINUTE_MS
    keep(store, NOW_MS, {(GROUP, metrics.MEMBERS): [0] * 30, (GROUP, metrics.LAG): [60] * 30})

    judge.judge(later, {})

    assert rules(store)["no-consumer"] == NOW_MS


def test_a_group_of_the_same_name_on_another_broker_is_another_group(store) -> None:
    """Both have unread messages; only one broker's has members."""
    here, there = PAIR, PAIR._replace(broker="broker-b")
    for pair_, members in ((here, 2), (there, 0)):
        group = Subject(metrics.GROUP, pair_.broker, "billing")
        keep(
            store,
            NOW_MS,
            {
                (group, metrics.MEMBERS): [members] * 360,
                (pair_, metrics.LAG): [70] * 360,
                (pair_, metrics.CONSUMED): [0] * 360,
                (pair_, metrics.LAG_AGE): [3_000_000] * 360,
            },
        )
    later = NOW_MS + 360 * STEP_MS

    Judge(store).judge(later, {})

    text = {(each.rule, each.broker) for each in verdicts_of(store).verdicts}
    assert ("stalled", "broker-a") in text
    assert ("stalled", "broker-b") not in text


def test_a_stopped_group_is_not_taken_for_one_that_never_started(store) -> None:
    minutes = 90
    worked = 20
    keep(
        store,
        NOW_MS,
        {
            (GROUP, metrics.MEMBERS): [2] * minutes * 6,
            (PAIR, metrics.LAG): [0] * worked * 6 + [70] * (minutes - worked) * 6,
            (PAIR, metrics.CONSUMED): [5] * worked * 6 + [0] * (minutes - worked) * 6,
            (PAIR, metrics.LAG_AGE): [0] * worked * 6
            + [each * STEP_MS for each in range((minutes - worked) * 6)],
        },
    )
    judge = Judge(store)
    messages = []
    for minute in range(worked + 10, minutes + 1):
        at = NOW_MS + minute * MINUTE_MS
        judge.judge(at, {PAIR: at})
        messages.append(
            {each.rule for each in verdicts_of(store).verdicts if each.kind == PAIR.kind}
        )

    assert all(rules == {"stopped"} for rules in messages)


def test_a_verdict_has_its_rules_names_and_keeps_them(store) -> None:
    def facts(subject: Subject) -> dict[str, str]:
        return {"message": "7F01", "times": "3", "key": "secret"} if subject == GROUP else {}

    judge = Judge(store)
    judge.judge(NOW_MS, {}, facts)
    judge.judge(NOW_MS + MINUTE_MS, {GROUP: NOW_MS})

    names = {each.rule: each.names for each in verdicts_of(store).verdicts}
    assert names == {"no-consumer": {}, "dead-letters": {"message": "7F01", "times": "3"}}


def test_a_message_of_another_queue_is_not_the_stuck_one() -> None:
    at = Verdict("queue-stuck", "bad", "progress", "b", "g@T", 0, 0, {"queue": 2.0})
    message = {"message": "7F01", "offset": "9", "times": "0", "host": "h", "bytes": "3"}

    assert names_of(at, {"head_queue": "2", **message}) == message
    assert names_of(at, {"head_queue": "1", **message}) == {}


def test_a_clock_that_steps_back_does_not_silence_it(store) -> None:
    judge = Judge(store)
    judge.judge(NOW_MS + 3_600_000, {})

    judge.judge(NOW_MS, {GROUP: NOW_MS})

    assert verdicts_of(store).at_ms == NOW_MS
    assert "no-consumer" in rules(store)


def test_a_failing_rule_does_not_keep_others_from_reporting(store, monkeypatch) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("of a bug")

    failing = [
        rule._replace(judge=fail) if rule.name == "no-consumer" else rule
        for rule in judge_module.RULES_OF[metrics.GROUP]
    ]
    monkeypatch.setitem(judge_module.RULES_OF, metrics.GROUP, failing)

    Judge(store).judge(NOW_MS, {})

    assert list(rules(store)) == ["dead-letters"]


def test_failing_facts_remove_no_verdict(store) -> None:
    def fail(_: object) -> dict[str, str]:
        raise KeyError("of a bug")

    Judge(store).judge(NOW_MS, {}, fail)

    assert set(rules(store)) == {"no-consumer", "dead-letters"}
