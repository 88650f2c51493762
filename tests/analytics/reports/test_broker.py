"""Reports on the broker's work: delays, transactions, order, topics and their users."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from analytics.facts import ConsumerOffset, StoreFacts
from analytics.reports import anomalies, changes, delays, ordering, owners, topics, transactions
from analytics.schemas import messages_with
from broker_core.message import properties
from broker_core.message.ids import host_bytes
from broker_core.message.names import (
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
)
from broker_core.message.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE
from tests.analytics.reports.report_outcomes import outcome_of, rows_of, sentence_of
from tests.analytics.store_builder import START_MS, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from analytics.session import Spark

pytestmark = pytest.mark.spark

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOUR_MS = 3_600_000


def encoded(**table: str) -> bytes:
    return properties.encode(table).encode()


def rank(values: list[int], share: float) -> int | None:
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else None


def test_waits_are_counted_by_level_and_topic(running_spark: Spark, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, file_bytes=64 * 1024)
    waits: defaultdict[tuple[int, str], list[int | None]] = defaultdict(list)
    received: list[tuple[int, str, bytes, int]] = []
    for number in range(80):
        level, topic = 1 + number % 3, ("orders", "%RETRY%billing")[number % 2]
        # Attempts of one message share a UNIQ_KEY.
        text = encoded(UNIQ_KEY=f"FD{number // 4}", REAL_TOPIC=topic, DELAY=str(level))
        tries, parked = number % 4, START_MS + 100 * number
        builder.put(
            RMQ_SYS_SCHEDULE_TOPIC,
            queue_id=level - 1,
            properties=text,
            store_timestamp=parked,
            reconsume_times=tries,
        )
        wait = None if number % 7 == 0 else 1_000 * level + number * number % 90
        waits[level, topic].append(wait)
        if wait is not None:
            received.append((parked + wait, topic, text, tries))
    for stored, topic, text, tries in sorted(received):
        builder.put(topic, properties=text, store_timestamp=stored, reconsume_times=tries)
    builder.put("orders", properties=encoded(UNIQ_KEY="FD0"))

    outcome = outcome_of(running_spark, builder.write(), "delays")

    found = {
        (row["level"], row["topic"]): tuple(row.values())[2:] for row in outcome.table.to_pylist()
    }
    expected = {}
    for place, all_waits in waits.items():
        known = [wait for wait in all_waits if wait is not None]
        expected[place] = (
            *(len(all_waits), len(known), len(all_waits) - len(known), min(known)),
            *(rank(known, 0.5), rank(known, 0.95), max(known), max(known) - min(known)),
        )
    assert found == expected
    assert "12 delayed messages are still waiting." in sentence_of("delays", outcome)


def test_with_everything_waiting_the_summary_says_so(running_spark: Spark, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    text = encoded(UNIQ_KEY="FD1", REAL_TOPIC="orders")
    builder.put(RMQ_SYS_SCHEDULE_TOPIC, queue_id=4, properties=text)

    outcome = outcome_of(running_spark, builder.write(), "delays")

    assert (
        sentence_of("delays", outcome)
        == "1 delayed messages are waiting. None were delivered in this time range."
    )


def half(builder: StoreBuilder, number: int, stored: int, checks: int = 0) -> int:
    """Put a half message; return its queue offset."""
    offset = len(builder.units.get((RMQ_SYS_TRANS_HALF_TOPIC, 0), b"")) // 20
    text = {"UNIQ_KEY": f"FD{number}", "REAL_TOPIC": "orders", "PGROUP": f"shop-{number % 2}"}
    if checks:
        text["TRANSACTION_CHECK_TIMES"] = str(checks)
    builder.put(
        RMQ_SYS_TRANS_HALF_TOPIC,
        properties=encoded(**text),
        sys_flag=TRANSACTION_PREPARED_TYPE,
        store_timestamp=stored,
    )
    return offset


def test_transactions_are_counted_by_outcome(running_spark: Spark, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, file_bytes=64 * 1024)
    outcomes: Counter[tuple[str, str]] = Counter()
    ways: defaultdict[str, list[int]] = defaultdict(list)
    checks: Counter[str] = Counter()
    done: list[int] = []
    for number in range(60):
        begun, group = START_MS + 1_000 * number, f"shop-{number % 2}"
        outcome = ("committed", "rolled_back", "open", "given_up", "committed")[number % 5]
        outcomes[group, outcome] += 1
        offset = half(builder, number, begun)
        if number % 3 == 0:
            # A check puts the half message again, and marks the previous one as done.
            done.append(offset)
            offset = half(builder, number, begun + 100, checks=1)
            checks[group] += 1
        if outcome != "open":
            done.append(offset)
        text = encoded(UNIQ_KEY=f"FD{number}", PGROUP=group)
        if outcome == "committed":
            ways[group].append(200 + number)
            builder.put(
                "orders",
                properties=text,
                sys_flag=TRANSACTION_COMMIT_TYPE,
                store_timestamp=begun + 200 + number,
            )
        elif outcome == "given_up":
            builder.put(RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, properties=text)
    # 5.x lists several in one message, each followed by a comma.
    for at in range(0, len(done), 4):
        body = "".join(f"{offset}," for offset in done[at : at + 4]).encode()
        builder.put(RMQ_SYS_TRANS_OP_HALF_TOPIC, body=body, properties=encoded(TAGS="d"))
    builder.put(RMQ_SYS_TRANS_OP_HALF_TOPIC, body=b"99999", properties=encoded(TAGS="d"))

    outcome_found = outcome_of(running_spark, builder.write(), "transactions")

    rows = outcome_found.table.to_pylist()
    assert {row["producer_group"] for row in rows} == {"shop-0", "shop-1"}
    for row in rows:
        group = row["producer_group"]
        assert row["topic"] == "orders"
        assert row["begun"] == 30
        for name in ("committed", "rolled_back", "given_up", "open"):
            assert row[name] == outcomes[group, name], name
        assert row["checks"] == checks[group]
        assert (row["p50_ms"], row["p95_ms"], row["max_ms"]) == (
            *(rank(ways[group], 0.5), rank(ways[group], 0.95)),
            max(ways[group]),
        )
    assert sentence_of("transactions", outcome_found).startswith(
        "Of 60 transactions, 12 were rolled"
    )


def test_a_non_numeric_listed_place_is_skipped(spark: SparkSession) -> None:
    read = messages_with(transactions.REPORT.reads)
    rows: list[Any] = [
        (1, RMQ_SYS_TRANS_HALF_TOPIC, 7, NOON, 4, b"x", "FD1", {"REAL_TOPIC": "orders"}),
        (2, RMQ_SYS_TRANS_OP_HALF_TOPIC, 0, NOON, 0, b"rubbish,7,", None, {"TAGS": "d"}),
    ]

    (row,) = transactions.by_group_and_topic(spark.createDataFrame(rows, read), {}, 60).collect()

    assert (row["begun"], row["rolled_back"], row["open"]) == (1, 1, 0)


def test_order_is_judged_by_sharding_key_and_queue(running_spark: Spark, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, file_bytes=64 * 1024)
    queues: defaultdict[str, set[int]] = defaultdict(set)
    last: dict[tuple[str, int], int] = {}
    wrong, back = 0, 0
    for number in range(120):
        key, queue_id = f"s{number % 9}", (number % 9) % 4 if number % 40 else 3
        born = START_MS + (number * 611) % 40_000
        builder.put(
            "orders",
            queue_id=queue_id,
            born_timestamp=born,
            properties=encoded(__SHARDINGKEY=key),
        )
        queues[key].add(queue_id)
        before = last.get((key, queue_id))
        if before is not None and born < before:
            wrong, back = wrong + 1, max(back, before - born)
        last[key, queue_id] = born
    builder.put("orders")

    outcome = outcome_of(running_spark, builder.write(), "ordering")

    spread = sum(len(of) > 1 for of in queues.values())
    assert spread
    assert outcome.table.to_pylist() == [
        {
            "topic": "orders",
            "sharding_keys": 9,
            "messages": 120,
            "keys_in_several_queues": spread,
            "out_of_order": wrong,
            "furthest_back_ms": back,
        }
    ]


def test_keys_in_order_are_confirmed(running_spark: Spark, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    for _ in range(3):
        builder.put(properties=encoded(__SHARDINGKEY="s1"))

    outcome = outcome_of(running_spark, builder.write(), "ordering")

    assert sentence_of("ordering", outcome).startswith("All 1 sharding keys kept their order")


def with_configuration(root: Path) -> Path:
    config = root / "config"
    config.mkdir(parents=True)
    every = ("orders", "bills", "old", "never", "TBW102", "%RETRY%billing")
    table = {topic: {"topicName": topic, "writeQueueNums": 4} for topic in every}
    config.joinpath("topics.json").write_text(json.dumps({"topicConfigTable": table}))
    offsets = {"orders@billing": {"0": 1}, "orders@fraud": {"0": 1}, "old@billing": {"0": 1}}
    config.joinpath("consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return root


def test_unneeded_topics_have_the_first_matching_state(
    running_spark: Spark, tmp_path: Path
) -> None:
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    builder = StoreBuilder(with_configuration(tmp_path))
    sizes: Counter[str] = Counter()
    for topic, age_hours in (("old", 11), ("orders", 12), ("orders", 1), ("bills", 1)):
        stored = builder.put(topic, store_timestamp=now_ms - age_hours * HOUR_MS)
        sizes[topic] += stored.size
    builder.put("%RETRY%billing", store_timestamp=now_ms)

    outcome = outcome_of(running_spark, builder.write(), "topics", idle=10)

    found = {row["topic"]: row for row in outcome.table.to_pylist()}
    assert {topic: (row["state"], row["groups"]) for topic, row in found.items()} == {
        "never": ("empty", 0),
        "bills": ("unread", 0),
        "old": ("idle", 1),
        "orders": ("in use", 2),
    }
    assert {topic: row["bytes"] for topic, row in found.items()} == {**sizes, "never": 0}
    assert sentence_of("topics", outcome).startswith(
        "Of 4 topics, 1 are empty, 1 aren't read by any group and 1 are idle. "
    )


def test_one_requested_topic_is_the_only_row(running_spark: Spark, tmp_path: Path) -> None:
    root = StoreBuilder(with_configuration(tmp_path)).write()

    assert [row["topic"] for row in rows_of(running_spark, root, "topics", topic="never")] == [
        "never"
    ]


def test_an_offset_of_a_deleted_topic_creates_no_topic(spark: SparkSession) -> None:
    read = messages_with(topics.REPORT.reads)
    facts = StoreFacts((ConsumerOffset("billing", "gone", 0, 1),), {"orders": 4})

    found = topics.with_every_topic(spark.createDataFrame([], read), facts).collect()

    assert [row["topic"] for row in found] == ["orders"]


@pytest.mark.parametrize(("separator", "owner"), [("hyphen", "shop"), ("underscore", "shop-a")])
def test_storage_is_summed_by_topic_prefix(
    running_spark: Spark, tmp_path: Path, separator: str, owner: str
) -> None:
    builder, sizes = StoreBuilder(tmp_path), Counter[str]()
    for topic in ("shop-a_orders", "shop-a_orders", "shop-b_bills", "alone", "-odd", "_odd"):
        sizes[topic] += builder.put(topic).size
    everything = sum(sizes.values())

    found = rows_of(running_spark, builder.write(), "owners", separator=separator)

    assert {row["topic"]: row["bytes"] for row in found} == sizes
    assert {row["topic"]: row["share"] for row in found} == {
        topic: size * 1000 // everything for topic, size in sizes.items()
    }
    of_topic = {row["topic"]: row["owner"] for row in found}
    assert of_topic["shop-a_orders"] == owner
    assert {of_topic[topic] for topic in ("alone", "-odd", "_odd")} >= {"alone"}
    assert "" not in of_topic.values()
    assert set(owners.SEPARATORS) == {choice.value for choice in owners.SEPARATOR.choices}


def hourly(spark: SparkSession, counts: list[int], topic: str = "orders") -> Any:
    """Messages of one topic, a given number per hour, between two hours of another topic."""
    read = messages_with(anomalies.REPORT.reads)
    rows = [
        (topic, NOON + timedelta(hours=hour, minutes=1))
        for hour, count in enumerate(counts)
        for _ in range(count)
    ]
    around = [("edge", NOON + timedelta(hours=hour)) for hour in (-1, len(counts))]
    return spark.createDataFrame([*rows, *around], read)


def test_an_hour_far_from_the_median_is_unusual(spark: SparkSession) -> None:
    counts = [10, 12, 9, 11, 60, 10, 8, 11, 0, 10]

    found = anomalies.unusual_hours(hourly(spark, counts), {"score": 3}, 60).collect()

    usual = 10.0
    away = sorted(abs(count - usual) for count in counts)
    deviation = max(1.4826 * (away[4] + away[5]) / 2, math.sqrt(usual), 1)
    assert {(row["messages"], row["direction"], row["score"]) for row in found} == {
        (60, "more", int(50 // deviation)),
        (0, "less", int(10 // deviation)),
    }
    assert {(row["usual"], row["compared_with"]) for row in found} == {(10, 10)}


def test_a_silent_topic_is_unusual_in_each_hour_without_messages(spark: SparkSession) -> None:
    found = anomalies.unusual_hours(hourly(spark, [400] * 9 + [0, 0]), {}, 60).collect()

    hours = sorted((row["time"].replace(tzinfo=UTC) - NOON) / timedelta(hours=1) for row in found)
    assert hours == [9, 10]


@pytest.mark.parametrize("counts", [[10, 90, 10, 10, 10], [100, 104, 97, 110, 93, 101, 99]])
def test_few_hours_or_chance_are_not_unusual(spark: SparkSession, counts: list[int]) -> None:
    assert anomalies.unusual_hours(hourly(spark, counts), {}, 60).collect() == []


def test_the_same_hours_of_the_week_are_compared_if_there_are_enough(
    spark: SparkSession,
) -> None:
    read = messages_with(anomalies.REPORT.reads)
    week = timedelta(days=7)
    rows = [("orders", NOON + week * number) for number in range(7) for _ in range(100)]
    # Hours of a week are equally frequent only if all exist: otherwise one message an hour.
    rows += [("orders", NOON + timedelta(hours=hour)) for hour in range(7 * 168) if hour % 168]
    around = [("edge", NOON - timedelta(hours=1)), ("edge", NOON + week * 7)]

    found = anomalies.unusual_hours(spark.createDataFrame([*rows, *around], read), {}, 60).collect()

    assert found == []


def test_new_and_lost_senders_are_distinguished_from_remaining_ones(
    running_spark: Spark, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path)
    start = START_MS // HOUR_MS * HOUR_MS
    hours = {"10.0.0.1": (0, 1, 30), "10.0.0.2": (0, 6), "10.0.0.3": (7, 30)}
    sent = sorted((hour, host) for host, of in hours.items() for hour in of)
    for hour, host in sent:
        builder.put(born_host=host_bytes(host, 4_000), store_timestamp=start + hour * HOUR_MS)

    outcome = outcome_of(running_spark, builder.write(), "changes", recent=24)

    recent = {host: [hour for hour in of if hour > 30 - 24] for host, of in hours.items()}
    assert {
        row["host"]: (row["state"], row["messages_before"], row["messages_recent"])
        for row in outcome.table.to_pylist()
    } == {
        "10.0.0.1": ("stayed", 2, len(recent["10.0.0.1"])),
        "10.0.0.2": ("vanished", 2, 0),
        "10.0.0.3": ("new", 0, len(recent["10.0.0.3"])),
    }
    assert sentence_of("changes", outcome).startswith(
        "1 pairs of host and topic are new, 1 have disappeared and 1 are unchanged. "
    )


def test_different_ports_are_not_different_senders(spark: SparkSession) -> None:
    read = messages_with(changes.REPORT.reads)
    rows = [("orders", f"h:{hour}", NOON + timedelta(hours=hour)) for hour in (1, 40)]

    found = changes.by_host_and_topic(spark.createDataFrame(rows, read), {}, 60).collect()

    assert [row["state"] for row in found] == ["stayed"]


def test_a_delayed_half_message_is_not_a_delayed_message(spark: SparkSession) -> None:
    read = messages_with(delays.REPORT.reads)
    table = {"REAL_TOPIC": "orders"}
    rows = [(RMQ_SYS_TRANS_HALF_TOPIC, 0, NOON, 0, "FD1", table), ("x", 0, NOON, 0, "FD1", table)]

    assert delays.by_level_and_topic(spark.createDataFrame(rows, read), {}, 60).collect() == []


def test_messages_of_a_key_may_share_a_birth_time(spark: SparkSession) -> None:
    read = messages_with(ordering.REPORT.reads)
    rows = [("orders", 0, offset, NOON, {"__SHARDINGKEY": "s"}) for offset in (1, 2)]

    (row,) = ordering.by_topic(spark.createDataFrame(rows, read), {}, 60).collect()

    assert (row["out_of_order"], row["furthest_back_ms"]) == (0, 0)
