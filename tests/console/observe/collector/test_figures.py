"""Figures: counters are increments, and never jump; unknown values are left out."""

from __future__ import annotations

import pytest

from console.observe.collector.figures import QUEUES_MAX
from console.observe.history import metrics
from tests.support.collector_samples import BOOT_MS, START_MS, Found, sample

T, P, G, B = metrics.TOPIC, metrics.PROGRESS, metrics.GROUP, metrics.BROKER
PAIR = metrics.pair("billing", "Orders")
PROGRESS = ("billing", "Orders")


def test_a_topics_messages_are_the_growth_of_its_queues() -> None:
    found = Found(sample({"Orders": [0, 0, 5, 1, 2, 9]}), sample({"Orders": [0, 1, 8, 1, 2, 9]}))

    assert found.of(T, "Orders", metrics.PUT) == 3
    assert found.of(T, "Orders", metrics.RETAINED) == 7 + 7


def test_each_queues_messages_are_stored_beside_their_topics() -> None:
    found = Found(sample({"Orders": [0, 0, 5, 1, 2, 9]}), sample({"Orders": [0, 1, 8, 1, 2, 9]}))

    assert [found.of(T, "Orders", metrics.PUT, queue) for queue in (0, 1)] == [3, 0]
    first = Found(None, sample({"Orders": [0, 0, 5]}))
    assert first.of(T, "Orders", metrics.PUT, 0) is None


@pytest.mark.parametrize(("count", "kept"), [(QUEUES_MAX, 1), (QUEUES_MAX + 1, None)])
def test_brokers_with_very_many_queues_only_keep_the_topics(count, kept) -> None:
    """Each queue would be one of the 20,000 series that fit in a year."""
    before, now = (
        sample({"Orders": [each for number in range(count) for each in (number, 0, end)]})
        for end in (5, 6)
    )
    found = Found(before, now)

    assert found.of(T, "Orders", metrics.PUT) == count
    assert found.of(T, "Orders", metrics.PUT, 7) == kept


def test_the_very_first_sample_has_no_counter() -> None:
    found = Found(None, sample({"Orders": [0, 0, 5]}, counters={"put": 5}))

    assert found.of(T, "Orders", metrics.PUT) is None
    assert found.of(B, "0", metrics.PUT) is None
    assert found.of(T, "Orders", metrics.RETAINED) == 5


def test_a_new_topic_and_a_new_queue_count_from_their_beginning() -> None:
    before = sample({"Orders": [0, 0, 5]})
    found = Found(before, sample({"Orders": [0, 0, 6, 1, 0, 2], "New": [0, 0, 4]}))

    assert found.of(T, "Orders", metrics.PUT) == 3
    assert found.of(T, "New", metrics.PUT) == 4


def test_a_topic_that_another_broker_did_not_report_before_is_not_a_jump() -> None:
    before = sample({}, is_whole=False)
    found = Found(before, sample({"Orders": [0, -1, 1_000_000]}, is_whole=False))

    assert found.of(T, "Orders", metrics.PUT) is None
    assert found.of(T, "Orders", metrics.RETAINED) is None


def test_a_recreated_topic_is_unknown_for_one_sample() -> None:
    found = Found(sample({"Orders": [0, 0, 500]}), sample({"Orders": [0, 0, 3]}))

    assert found.of(T, "Orders", metrics.PUT) is None


def test_a_broker_start_is_not_a_jump() -> None:
    before = sample(
        {"Orders": [0, 0, 5]},
        sizes={"Orders": 900},
        counters={"put": 1_000},
        latencies={"put": [3, 4]},
    )
    now = sample(
        {"Orders": [0, 0, 7]},
        sizes={"Orders": 200},
        counters={"put": 2},
        latencies={"put": [1, 1]},
        boot_timestamp=START_MS,
    )

    found = Found(before, now)

    assert found.of(T, "Orders", metrics.PUT) == 2
    assert found.of(T, "Orders", metrics.PUT_BYTES) == 200
    assert found.of(B, "0", metrics.PUT) == 2
    assert found.of(B, "0", metrics.PUT_TOOK, 0) == 1


def test_a_counter_that_falls_without_a_restart_is_unknown() -> None:
    found = Found(sample(counters={"put": 9}), sample(counters={"put": 4}))

    assert found.of(B, "0", metrics.PUT) is None


def test_a_lag_is_known_per_queue_and_in_total() -> None:
    now = sample({}, {PROGRESS: [0, 5, 9, START_MS - 2_000, 1, 7, 7, -1]})

    found = Found(None, now)

    assert found.of(P, PAIR, metrics.LAG) == 4
    assert found.of(P, PAIR, metrics.LAG, 0) == 4
    assert found.of(P, PAIR, metrics.LAG, 1) == 0
    assert found.of(P, PAIR, metrics.LAG_AGE) == 2_000
    assert found.of(P, PAIR, metrics.LAG_AGE, 1) == 0


def test_an_unknown_age_is_not_zero() -> None:
    found = Found(None, sample({}, {PROGRESS: [0, 5, 9, -1]}))

    assert found.of(P, PAIR, metrics.LAG) == 4
    assert found.of(P, PAIR, metrics.LAG_AGE, 0) is None
    assert found.of(P, PAIR, metrics.LAG_AGE) is None


def test_a_rewind_is_not_consuming() -> None:
    before = sample({}, {PROGRESS: [0, 50, 90, 1, 1, 10, 90, 1]})

    found = Found(before, sample({}, {PROGRESS: [0, 20, 90, 1, 1, 15, 90, 1]}))

    assert found.of(P, PAIR, metrics.CONSUMED) == 5
    assert found.of(P, PAIR, metrics.REWOUND) == 30


def test_a_recreated_queue_is_not_rewound() -> None:
    found = Found(sample({}, {PROGRESS: [0, 50, 90, 1]}), sample({}, {PROGRESS: [0, 0, 2, 1]}))

    assert found.of(P, PAIR, metrics.REWOUND) == 0


@pytest.mark.parametrize(
    ("before", "now", "dead"),
    [({}, {}, 0), ({}, {"%DLQ%billing": [0, 0, 2]}, 2), ({"%DLQ%billing": [0, 0, 2]},) * 2 + (0,)],
)
def test_dead_letters_belong_to_the_group(before, now, dead) -> None:
    members: dict[str, int | None] = {"billing": 1}
    found = Found(sample(before, members=members), sample(now, members=members))

    assert found.of(G, "billing", metrics.DEAD) == dead
    assert found.of(G, "billing", metrics.MEMBERS) == 1


def test_members_that_a_broker_does_not_report_are_unknown() -> None:
    found = Found(None, sample(members={"billing": None}))

    assert found.of(G, "billing", metrics.MEMBERS) is None


def test_a_slave_only_speaks_for_itself() -> None:
    now = sample({"Orders": [0, 0, 5]}, broker_id=1, gauges={"rss": 7})

    found = Found(None, now)

    assert found.kinds == {B}
    assert found.of(B, "1", metrics.RSS) == 7


def test_system_topics_are_left_out() -> None:
    found = Found(None, sample({"SCHEDULE_TOPIC_XXXX": [0, 0, 5], "%RETRY%billing": [0, 0, 1]}))

    assert found.of(T, "SCHEDULE_TOPIC_XXXX", metrics.RETAINED) is None
    assert found.of(T, "%RETRY%billing", metrics.RETAINED) == 1


def test_replication_history_is_kept_of_masters_and_slaves() -> None:
    gauges = {"slaves": 2, "slavesInSync": 1, "replicationBehind": 500, "epoch": 3}
    of_master = Found(None, sample(gauges=gauges))
    of_slave = Found(
        None,
        sample(broker_id=1, gauges={"following": 1, "masterSilentMs": 40, "replicationBehind": 7}),
    )

    assert of_master.of(metrics.BROKER, "0", metrics.SLAVES) == 2
    assert of_master.of(metrics.BROKER, "0", metrics.SLAVES_IN_SYNC) == 1
    assert of_master.of(metrics.BROKER, "0", metrics.REPLICATION_BEHIND) == 500
    assert of_master.of(metrics.BROKER, "0", metrics.EPOCH) == 3
    assert of_slave.of(metrics.BROKER, "1", metrics.REPLICATION_BEHIND) == 7
    assert of_slave.of(metrics.BROKER, "1", metrics.MASTER_SILENT) == 40


def test_a_promoted_slaves_counts_since_its_start_are_not_additions() -> None:
    before = sample({"T": [0, 0, 5]}, counters={"put": 900}, gauges={"epoch": 1})
    promoted = sample(
        {"T": [0, 0, 7]},
        counters={"put": 40},
        gauges={"epoch": 2},
        boot_timestamp=BOOT_MS - 1,
    )

    found = Found(before, promoted)

    assert found.of(metrics.BROKER, "0", metrics.PUT) is None
    assert found.of(metrics.TOPIC, "T", metrics.PUT) == 2
