"""Rules on recorded shapes: they fire when something goes wrong, and only then.

A series is a value a minute, the newest last; None means unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from console.observe.history import metrics, points
from console.observe.history.metrics import Column, Subject
from console.observe.history.points import MISSING
from console.observe.history.tiers import HOUR_MS, MINUTE_MS
from console.observe.verdicts.rules import BY_NAME, RULES, Finding, RuleInput, Severity
from console.observe.verdicts.window import MINUTES, Window
from console.observe.verdicts.words import WORDS

if TYPE_CHECKING:
    from console.observe.history.metrics import Metric

NOW_MS = 1_795_251_600_000
Series = list[float | None]
MIB, GIB = float(1 << 20), float(1 << 30)


def flat(value: float | None, minutes: int = MINUTES) -> Series:
    return [value] * minutes


def climb(low: float, high: float, minutes: int = MINUTES) -> Series:
    return [low + (high - low) * n / (minutes - 1) for n in range(minutes)]


def window(kind: str, series: dict[Metric | tuple[Metric, int], Series]) -> Window:
    """Return a window; rates of counters are given as messages a minute."""
    columns, values = [], []
    for metric, row in series.items():
        columns.append(
            Column(metric[0].code, metric[1])
            if not isinstance(metric, metrics.Metric)
            else Column(metric.code)
        )
        padded = [None] * (MINUTES - len(row)) + row
        values.append([MISSING if each is None else round(each) for each in padded])
    made = points.of_samples(
        columns,
        np.array(values, dtype=np.int64).T,
        np.full(MINUTES, MINUTE_MS, dtype=np.int64),
        np.arange(MINUTES),
    )
    assert made is not None
    return Window(Subject(kind, "broker-a", "x"), made, NOW_MS)


def progress(
    lag: Series,
    *,
    consumed: Series | None = None,
    age_ms: Series | None = None,
    members: float | None = 2,
    retention_ms: float = 72 * HOUR_MS,
    rewound: Series | None = None,
    queues: dict[int, Series] | None = None,
    cold: Series | None = None,
) -> RuleInput:
    series: dict[Metric | tuple[Metric, int], Series] = {
        metrics.LAG: lag,
        metrics.CONSUMED: consumed if consumed is not None else flat(600),
        metrics.LAG_AGE: age_ms if age_ms is not None else flat(0),
        metrics.REWOUND: rewound if rewound is not None else flat(0),
    }
    if cold is not None:
        series[metrics.GOT_COLD] = cold
    for queue, ages in (queues or {}).items():
        series[metrics.LAG_AGE, queue] = ages
        series[metrics.LAG, queue] = flat(5)
    group = window(metrics.GROUP, {metrics.MEMBERS: flat(members)})
    broker = window(metrics.BROKER, {metrics.RETENTION: flat(retention_ms)})
    return RuleInput(window(metrics.PROGRESS, series), group, broker)


def group(**rows: Series) -> RuleInput:
    names = {
        "members": metrics.MEMBERS,
        "lag": metrics.LAG,
        "age": metrics.LAG_AGE,
        "dead": metrics.DEAD,
        "retried": metrics.RETRIED,
        "consumed": metrics.CONSUMED,
        "versions": metrics.VERSIONS,
        "odd": metrics.MISMATCHED,
    }
    return RuleInput(window(metrics.GROUP, {names[name]: row for name, row in rows.items()}))


def broker(
    *, disk: Series | None = None, flush: dict[int, float] | None = None, **rows: Series
) -> RuleInput:
    names = {
        "failed": metrics.PUT_FAILED,
        "half": metrics.HALF_PENDING,
        "half_age": metrics.HALF_AGE,
        "lag": metrics.REPLICATION_BEHIND,
        "age": metrics.REPLICATION_AGE,
        "slaves": metrics.SLAVES,
        "synced": metrics.SLAVES_IN_SYNC,
        "least": metrics.REPLICAS_MIN,
        "clock": metrics.CLOCK_OFF,
        "used": metrics.DISK_USED,
        "refused": metrics.REFUSED,
    }
    series: dict[Metric | tuple[Metric, int], Series] = {
        metrics.DISK_TOTAL: flat(100 * GIB),
        **{names[name]: row for name, row in rows.items()},
    }
    for bucket, count in (flush or {}).items():
        series[metrics.FLUSH_TOOK, bucket] = flat(count)
    return RuleInput(window(metrics.BROKER, series), disk_used=disk)


def topic(
    *,
    queues: dict[int, Series] | None = None,
    key: Series | None = None,
    largest: Series | None = None,
    put: Series | None = None,
) -> RuleInput:
    """Return a topic; shares are per mille, and the broker accepts 4 MB."""
    series: dict[Metric | tuple[Metric, int], Series] = {
        metrics.PUT: put if put is not None else flat(6_000)
    }
    for queue, shares in (queues or {}).items():
        series[metrics.HOT_QUEUE, queue] = shares
    if key is not None:
        series[metrics.HOT_KEY] = key
    if largest is not None:
        series[metrics.LARGEST] = largest
    limit = window(metrics.BROKER, {metrics.MESSAGE_MAX: flat(4 * MIB)})
    return RuleInput(window(metrics.TOPIC, series), broker=limit)


def findings_of(seen: RuleInput) -> dict[str, Finding]:
    """Return the findings of each rule for this kind of subject."""
    answers = {rule.name: rule.judge(seen) for rule in RULES if rule.kind == seen.own.subject.kind}
    return {name: answer for name, answer in answers.items() if answer is not None}


MIN = float(MINUTE_MS)
OLD = climb(0, 59 * MIN)
WAITING = flat(40 * MIN)

SPEAKING = {
    "grows from a third of itself": (
        progress([*flat(100, 45), *climb(150, 900, 15)]),
        {"falling-behind": Severity.WARN},
    ),
    "grows, and its messages wait long": (
        progress([*flat(100, 45), *climb(150, 900, 15)], age_ms=flat(11 * MIN)),
        {"falling-behind": Severity.BAD},
    ),
    "consumed until ten minutes ago": (
        progress(
            [*flat(0, 50), *climb(10, 90, 10)],
            consumed=[*flat(600, 50), *flat(0, 10)],
            age_ms=[*flat(0, 50), *climb(MIN, 10 * MIN, 10)],
        ),
        {"stopped": Severity.BAD},
    ),
    "members and messages, and nothing consumed": (
        progress(flat(70), consumed=flat(0), age_ms=WAITING),
        {"stalled": Severity.WARN},
    ),
    "offsets went back": (
        progress(flat(5), rewound=[*flat(0, 55), 700, *flat(0, 4)]),
        {"rewound": Severity.WARN},
    ),
    "one queue of three stalls": (
        progress(
            flat(60),
            age_ms=[*flat(0, 30), *climb(0, 29 * MIN, 30)],
            queues={0: flat(0), 1: [*flat(0, 30), *climb(0, 29 * MIN, 30)], 2: flat(900)},
        ),
        {"queue-stuck": Severity.BAD},
    ),
    "half an hour before deletion": (
        progress(flat(50), age_ms=flat(71.5 * HOUR_MS)),
        {"retention": Severity.BAD},
    ),
    "a quarter of the time is left": (
        progress(flat(50), age_ms=flat(60 * HOUR_MS)),
        {"retention": Severity.WARN},
    ),
    "no members, and the lag grows": (
        group(members=flat(0), lag=climb(0, 5_000), age=OLD),
        {"no-consumer": Severity.BAD},
    ),
    "no members, and no messages arrive": (
        group(members=flat(0), lag=flat(7), age=OLD),
        {"no-consumer": Severity.WARN},
    ),
    "three dead letters": (
        group(members=flat(2), dead=[*flat(0, 50), 3, *flat(0, 9)]),
        {"dead-letters": Severity.WARN},
    ),
    "hundreds of dead letters": (
        group(members=flat(2), dead=flat(20)),
        {"dead-letters": Severity.BAD},
    ),
    "a fifth is retried": (
        group(members=flat(2), retried=flat(20), consumed=flat(100)),
        {"many-retries": Severity.WARN},
    ),
    "messages are rejected": (broker(failed=[*flat(0, 58), 4, 0]), {"puts-fail": Severity.BAD}),
    "a client is rejected every ten seconds": (
        broker(refused=flat(6)),
        {"requests-refused": Severity.WARN},
    ),
    "a burst of rejected requests minutes ago": (
        broker(refused=[*flat(0, 50), 50, *flat(0, 9)]),
        {"requests-refused": Severity.WARN},
    ),
    "the disk has three days": (
        broker(disk=climb(50 * GIB, 70 * GIB, 432)),
        {"disk-fills": Severity.WARN},
    ),
    "the disk of a new broker has two days": (
        broker(disk=climb(50 * GIB, 60 * GIB, 100)),
        {"disk-fills": Severity.WARN},
    ),
    "the disk has hours": (
        broker(disk=climb(50 * GIB, 84 * GIB, 432)),
        {"disk-fills": Severity.BAD},
    ),
    "one flush of fifty takes 200 ms": (
        broker(flush={6: 98, 12: 2}),
        {"slow-flush": Severity.WARN},
    ),
    "a slave that falls behind": (
        broker(lag=climb(0, 9_000), age=climb(0, 5 * MIN)),
        {"slave-behind": Severity.WARN},
    ),
    "a stalled slave": (
        broker(lag=flat(5_000), age=OLD),
        {"slave-behind": Severity.BAD},
    ),
    "one of two slaves leaves": (
        broker(slaves=[*flat(2, 55), *flat(1, 5)]),
        {"slave-gone": Severity.WARN},
    ),
    "the only slave leaves": (
        broker(slaves=[*flat(1, 50), *flat(0, 10)]),
        {"slave-gone": Severity.BAD},
    ),
    "too few replicas": (
        broker(slaves=flat(1), synced=[*flat(1, 50), *flat(0, 10)], least=flat(2)),
        {"few-replicas": Severity.BAD},
    ),
    "half messages double": (
        broker(half=[*flat(50, 40), *climb(60, 400, 20)]),
        {"half-messages": Severity.WARN},
    ),
    "a long lag that grows by a little of itself": (
        progress(climb(500_000, 600_000), age_ms=climb(30 * MIN, 60 * MIN)),
        {"falling-behind": Severity.BAD},
    ),
    "unread messages of an active group are deleted": (
        progress(flat(50), age_ms=flat(73 * HOUR_MS)),
        {"retention": Severity.BAD},
    ),
    "unread messages of a group without members are deleted": (
        progress(flat(50), age_ms=flat(73 * HOUR_MS), members=0),
        {"retention": Severity.WARN},
    ),
    "nine of ten messages are read from disk": (
        progress(flat(90_000), cold=flat(540)),
        {"cold-reads": Severity.WARN},
    ),
    "one of three members has another subscription": (
        group(members=flat(3), odd=[*flat(None, 53), *flat(1, 7)]),
        {"mismatch": Severity.WARN},
    ),
    "members with different subscriptions for a long time": (
        group(members=flat(3), odd=flat(1)),
        {"mismatch": Severity.BAD},
    ),
    "three versions for ten minutes": (
        group(members=flat(5), versions=[*flat(None, 49), *flat(3, 11)]),
        {"many-versions": Severity.WARN},
    ),
    "two versions for an hour with a restart of the broker": (
        group(members=flat(5), versions=[*flat(2, 40), None, None, *flat(2, 18)]),
        {"many-versions": Severity.WARN},
    ),
    "a queue receives most messages": (
        topic(queues={3: [*flat(None, 50), *flat(800, 10)]}),
        {"hot-queue": Severity.WARN},
    ),
    "a key is in most messages": (topic(key=flat(620)), {"hot-key": Severity.WARN}),
    "a message of 3.5 MB": (
        topic(largest=[*flat(None, 50), 3.5 * MIB, *flat(None, 9)]),
        {"near-limit": Severity.WARN},
    ),
    "a message of almost the limit": (
        topic(largest=[*flat(None, 50), 3.99 * MIB, *flat(None, 9)]),
        {"near-limit": Severity.BAD},
    ),
    "a clock that is a minute off": (broker(clock=flat(60_000)), {"clock-off": Severity.WARN}),
    "the disk is full": (
        broker(disk=flat(90 * GIB, 432), used=flat(90 * GIB)),
        {"disk-fills": Severity.BAD},
    ),
    "an hour-old half message": (
        broker(half=flat(1), half_age=flat(60 * MIN)),
        {"half-messages": Severity.WARN},
    ),
}


@pytest.mark.parametrize("shape", SPEAKING)
def test_a_rule_is_described_in_words(shape) -> None:
    seen, expected = SPEAKING[shape]

    assert {name: found.severity for name, found in findings_of(seen).items()} == expected


SILENT = {
    "a few requests are rejected": broker(refused=flat(3)),
    "requests were rejected half an hour ago": broker(refused=[*flat(100, 30), *flat(0, 30)]),
    "keeps up": progress(flat(3)),
    "a constant lag with consumption": progress(flat(5_000), age_ms=flat(20_000)),
    "a peak being worked off": progress(
        [*flat(50, 45), *climb(100, 5_000, 8), *climb(4_500, 900, 7)]
    ),
    "a lag that shrinks": progress(climb(9_000, 100), age_ms=climb(20 * MIN, MIN)),
    "grows by a few messages": progress(climb(2, 40)),
    "no traffic, nothing unread": progress(flat(0), consumed=flat(0)),
    "a new message for a quiet group": progress(
        [*flat(0, 59), 1], consumed=flat(0), age_ms=[*flat(0, 59), 900.0]
    ),
    "everything is unknown": progress(flat(None), consumed=flat(None), age_ms=flat(None)),
    "grew while everything was unknown": progress(
        [*flat(10, 40), *flat(None, 17), *flat(9_000, 3)]
    ),
    "a constant lag with unknown consumption": progress(
        flat(70), consumed=[*flat(600, 50), *flat(None, 10)], age_ms=WAITING
    ),
    "unknown members with messages": progress(
        flat(70), consumed=flat(0), age_ms=WAITING, members=None
    ),
    "one queue is slower": progress(
        flat(60), queues={0: flat(0), 1: climb(0, 3 * MIN), 2: flat(500)}
    ),
    "all queues stall equally": progress(
        flat(60), age_ms=OLD, queues={0: OLD, 1: OLD}, consumed=flat(600)
    ),
    "old, and far from deletion": progress(flat(50), age_ms=flat(20 * HOUR_MS)),
    "a group without members and messages": group(members=flat(0), lag=flat(0), age=flat(0)),
    "members that join and leave": group(members=[*flat(2, 58), 0, 2], lag=flat(50), age=OLD),
    "members are unknown": group(members=flat(None), lag=climb(0, 5_000), age=OLD),
    "dead letters of an hour ago": group(members=flat(2), dead=[50, *flat(0, 59)]),
    "a retry now and then": group(members=flat(2), retried=flat(1), consumed=flat(100)),
    "a slave that catches up": broker(lag=climb(9e9, 1e9), age=flat(20 * MIN)),
    "a slave that is a little behind": broker(lag=climb(0, 9_000), age=flat(20_000)),
    "a slave that was behind": broker(
        lag=[*flat(9e6, 55), *flat(0, 5)], age=[*OLD[5:], *flat(0, 5)]
    ),
    "a slave with few samples": broker(lag=flat(9_000), age=[*OLD[:57], None, 60 * MIN, 60 * MIN]),
    "a slave that was restarted": broker(slaves=[*flat(1, 57), 0, 0, 1], synced=flat(1)),
    "a slave that has just left": broker(slaves=[*flat(1, 58), 0, 0]),
    "a slave whose state becomes unknown": broker(slaves=[*flat(1, 50), *flat(None, 10)]),
    "a master without slaves": broker(slaves=flat(0), synced=flat(0), least=flat(1)),
    "a new slave": broker(slaves=[*flat(0, 50), *flat(1, 10)]),
    "enough replicas": broker(slaves=flat(1), synced=flat(1), least=flat(2)),
    "one minute with too few replicas": broker(synced=[*flat(1, 59), 0], least=flat(2)),
    "replicas are unknown": broker(synced=flat(None), least=flat(2)),
    "failures of long ago": broker(failed=[9, *flat(0, 59)]),
    "a disk that is emptied each night": broker(
        disk=[50 * GIB + (n % 144) / 144 * 20 * GIB for n in range(432)]
    ),
    "a new broker's disk that is emptied, too": broker(
        disk=[50 * GIB + (n % 36) / 36 * 20 * GIB for n in range(100)]
    ),
    "a disk that was filled once": broker(
        disk=[*flat(50 * GIB, 200), *climb(50 * GIB, 70 * GIB, 32), *flat(70 * GIB, 200)]
    ),
    "the disk has a month": broker(disk=climb(50 * GIB, 52 * GIB, 432)),
    "a disk with few samples": broker(disk=[*flat(None, 420), *climb(50, 80, 12)]),
    "quick flushes": broker(flush={6: 100, 8: 1}),
    "three slow flushes": broker(flush={12: 0.4}),
    "a few messages are read from disk": progress(flat(50), cold=flat(60)),
    "many disk reads by a group that reads memory": progress(flat(50), cold=flat(200)),
    "disk reads with unknown consumption": progress(flat(50), cold=flat(540), consumed=flat(None)),
    "a deployment changes the subscription": group(
        members=flat(3), odd=[*flat(None, 50), 1, 2, 1, *flat(None, 7)]
    ),
    "the newest heartbeat ends the difference": group(members=flat(3), odd=[*flat(1, 59), None]),
    "a deployment brings another version": group(
        members=flat(5), versions=[*flat(None, 30), *flat(2, 20), *flat(None, 10)]
    ),
    "two versions for half an hour": group(
        members=flat(5), versions=[*flat(None, 30), *flat(2, 30)]
    ),
    "three versions for some minutes": group(
        members=flat(5), versions=[*flat(None, 55), *flat(3, 5)]
    ),
    "another queue is hot each minute": topic(queues={0: [800, None] * 30, 1: [None, 800] * 30}),
    "a queue was hot": topic(queues={0: [*flat(900, 58), *flat(None, 2)]}),
    "a topic without traffic": topic(queues={0: flat(900)}, key=flat(900), put=flat(0)),
    "a third of the messages have a key": topic(key=flat(340)),
    "a key was hot for a while": topic(key=[*flat(None, 50), *flat(900, 4), *flat(300, 6)]),
    "a message of half the limit": topic(largest=flat(2.5 * MIB)),
    "a large message of half an hour ago": topic(largest=[*flat(4 * MIB, 30), *flat(None, 30)]),
    "a clock that is a second off": broker(clock=flat(1_200)),
    "one late message": broker(clock=[*flat(0, 55), 90_000, *flat(0, 4)]),
    "clocks are unknown": broker(clock=[*flat(90_000, 58), None, 90_000]),
    "half messages that get decided": broker(half=flat(150), half_age=flat(3_000)),
}


@pytest.mark.parametrize("shape", SILENT)
def test_all_rules_are_silent(shape) -> None:
    assert findings_of(SILENT[shape]) == {}


def test_every_rule_reports_somewhere_and_has_a_description() -> None:
    spoken = {name for _, expected in SPEAKING.values() for name in expected}

    assert {rule.name for rule in RULES} == spoken == set(WORDS)


@pytest.mark.parametrize("shape", SPEAKING)
def test_the_words_need_no_other_numbers_than_the_rules_provide(shape) -> None:
    for name, found in findings_of(SPEAKING[shape][0]).items():
        words = WORDS[name].evidence(found.evidence)

        assert "%(" not in words
        assert str(WORDS[name].cause)
        assert str(WORDS[name].step)


def test_the_evidence_names_the_stuck_queue() -> None:
    seen, _ = SPEAKING["one queue of three stalls"]

    assert findings_of(seen)["queue-stuck"].evidence["queue"] == 1


def test_a_disks_days_left_follow_from_its_pace() -> None:
    evidence = findings_of(SPEAKING["the disk has three days"][0])["disk-fills"].evidence

    assert evidence["a_day"] == pytest.approx(20 * GIB / 3, rel=0.01)
    assert evidence["days"] == pytest.approx(15 / (20 / 3), rel=0.02)


def persists(name: str, seen: RuleInput, **evidence: float) -> Finding | None:
    rule = BY_NAME[name]
    assert rule.persists is not None
    assert rule.judge(seen) is None, "it would speak anyhow"
    return rule.persists(seen, evidence)


STILL = progress(flat(90), consumed=flat(0), age_ms=climb(2 * 60 * MIN, 3 * 60 * MIN), members=None)
BEHIND = {"before": 100.0, "now": 900.0, "minutes": 10.0, "consumed": 5.0, "growth": 1.0}


def test_a_group_that_stopped_over_an_hour_ago_has_not_recovered() -> None:
    found = persists("stopped", STILL, lag=90, minutes=59, members=0)

    assert found is not None
    assert (found.severity, found.evidence["minutes"]) == (Severity.BAD, MINUTES)


def test_a_stopped_group_that_consumes_again_has_recovered() -> None:
    moves = progress(flat(90), consumed=[*flat(0, 55), *flat(60, 5)], age_ms=WAITING)

    assert persists("stopped", moves, lag=90, minutes=30, members=1) is None


def test_a_group_without_members_is_left_to_that_rule() -> None:
    gone = progress(flat(90), consumed=flat(0), age_ms=WAITING, members=0)

    assert persists("stopped", gone, lag=90, minutes=30, members=1) is None


@pytest.mark.parametrize("name", ["falling-behind", "rewound"])
def test_a_constant_lag_is_not_a_recovery(name) -> None:
    evidence = BEHIND if name == "falling-behind" else {"count": 700.0, "minutes": 15.0}
    stays = progress(flat(5_000), age_ms=flat(3 * MIN))
    shrinks = progress(climb(9_000, 4_000), age_ms=flat(3 * MIN))

    assert persists(name, stays, **evidence) is not None
    assert persists(name, shrinks, **evidence) is None
    assert persists(name, progress(flat(3)), **evidence) is None


def test_a_group_that_no_longer_consumes_has_stopped_instead() -> None:
    still = progress(flat(5_000), consumed=[*flat(60, 50), *flat(0, 10)], age_ms=WAITING)
    rule = BY_NAME["falling-behind"]

    assert rule.persists is not None
    assert rule.persists(still, BEHIND) is None
    assert set(findings_of(still)) == {"stopped"}


def test_a_stuck_queue_is_stuck_even_without_traffic_beside_it() -> None:
    seen = progress(flat(5), consumed=flat(0), age_ms=flat(0), queues={1: climb(0, 59 * MIN)})
    moves = progress(flat(5), consumed=flat(0), age_ms=flat(0), queues={1: flat(2 * MIN)})

    found = persists("queue-stuck", seen, queue=1, age_ms=1, lag=1, count=1)

    assert found is not None
    assert found.evidence["age_ms"] == pytest.approx(59 * MIN, rel=0.01)
    assert persists("queue-stuck", moves, queue=1, age_ms=1, lag=1, count=1) is None


def test_an_absent_slave_is_missed_for_a_day() -> None:
    seen = broker(slaves=flat(1))

    assert persists("slave-gone", seen, before=2, now=1, minutes=70) is not None
    assert persists("slave-gone", seen, before=2, now=1, minutes=24 * 60) is None
    assert persists("slave-gone", seen, before=1, now=1, minutes=70) is None
