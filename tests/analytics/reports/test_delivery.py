"""The path of messages: into the log, in groups, and duplicates."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from analytics.errors import ReportError
from analytics.facts import ConsumerOffset, StoreFacts, facts_of
from analytics.reports import duplicates, lag, latency, retries
from analytics.schemas import messages_with
from broker_core.message import properties
from tests.analytics.reports.report_outcomes import outcome_of, result_of, rows_of, sentence_of
from tests.analytics.store_builder import START_MS, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from analytics.session import Spark

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MINUTE_MS = 60_000
# A range of this length is split by minutes.
HOUR = {"from_ms": START_MS, "to_ms": START_MS + 60 * MINUTE_MS}


Ways = defaultdict[tuple[str, datetime], list[int]]


def encoded(**table: str) -> bytes:
    return properties.encode(table).encode()


def minute_of(stored_ms: int) -> datetime:
    return datetime.fromtimestamp(stored_ms // MINUTE_MS * 60, UTC)


def nearest_rank(values: list[int], share: float) -> int:
    return sorted(values)[math.ceil(share * len(values)) - 1]


@pytest.mark.spark
def test_latency_is_counted_by_topic_and_minute(running_spark: Spark, tmp_path: Path) -> None:
    builder, ways = StoreBuilder(tmp_path, file_bytes=64 * 1024), Ways(list)
    for number in range(300):
        topic, stored = ("orders", "bills")[number % 2], START_MS + 700 * number
        way = (number * 7919) % 1_500 - 20
        builder.put(topic, store_timestamp=stored, born_timestamp=stored - way)
        ways[topic, minute_of(stored)].append(way)

    outcome = outcome_of(running_spark, builder.write(), "latency", slow=1_000, **HOUR)

    found = outcome.table.to_pylist()
    assert {(row["topic"], row["time"]) for row in found} == set(ways)
    for row in found:
        of_minute = ways[row["topic"], row["time"]]
        sound = [each for each in of_minute if each >= 0]
        assert row["messages"] == len(sound)
        assert row["from_the_future"] == len(of_minute) - len(sound)
        assert row["slow"] == sum(each >= 1_000 for each in of_minute)
        assert [row[name] for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms")] == [
            *(nearest_rank(sound, share) for share in (0.5, 0.95, 0.99)),
            max(sound),
        ]
    assert "messages were slow to reach the log" in sentence_of("latency", outcome)


@pytest.mark.spark
def test_a_message_from_the_future_has_no_latency(spark: SparkSession) -> None:
    rows = [("orders", NOON, NOON + timedelta(seconds=1)), ("orders", NOON, None)]
    read = messages_with(latency.REPORT.reads)

    (row,) = latency.by_topic_and_time(spark.createDataFrame(rows, read), {}, 60).collect()

    assert (row["messages"], row["from_the_future"], row["max_ms"]) == (0, 1, None)


@pytest.mark.spark
def test_retries_and_dead_letters_are_counted_by_group_and_origin(
    running_spark: Spark, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path, file_bytes=64 * 1024).put_many(20)
    tries: Counter[tuple[str, str, bool]] = Counter()
    most: Counter[tuple[str, str]] = Counter()
    for number in range(90):
        group, origin = ("billing", "fraud")[number % 2], ("orders", "bills", "x")[number % 3]
        is_dead = number % 5 == 0
        builder.put(
            f"%DLQ%{group}" if is_dead else f"%RETRY%{group}",
            properties=encoded(RETRY_TOPIC=origin, UNIQ_KEY=f"FD{number % 7}"),
            reconsume_times=number % 11,
        )
        tries[group, origin, is_dead] += 1
        most[group, origin] = max(most[group, origin], number % 11)

    outcome = outcome_of(running_spark, builder.write(), "retries")

    found: Counter[tuple[str, str, bool]] = Counter()
    most_found: Counter[tuple[str, str]] = Counter()
    for row in outcome.table.to_pylist():
        place = row["consumer_group"], row["origin_topic"]
        found[(*place, False)] += row["retries"]
        found[(*place, True)] += row["dead_letters"]
        most_found[place] = max(most_found[place], row["reconsume_times"])
    assert found == tries
    assert most_found == most
    dead = sum(number for (_, _, is_dead), number in tries.items() if is_dead)
    assert f"dead letters: 9 of {dead}, after" in sentence_of("retries", outcome)


@pytest.mark.spark
def test_a_retry_of_unknown_origin_still_counts(spark: SparkSession) -> None:
    read = messages_with(retries.REPORT.reads)
    rows: list[Any] = [("%RETRY%billing", NOON, 1, None, {}), ("orders", NOON, 0, None, {})]

    found = retries.by_group_and_time(spark.createDataFrame(rows, read), {}, 60).collect()

    assert [(row["consumer_group"], row["origin_topic"], row["retries"]) for row in found] == [
        ("billing", None, 1)
    ]


def with_offsets(root: Path, table: dict[str, dict[int, int]]) -> Path:
    """Write consumerOffset.json as fastjson does, with numbers as keys."""
    config = root / "config"
    config.mkdir(parents=True)
    text = ",".join(
        f'"{key}":{{{",".join(f"{queue}:{offset}" for queue, offset in queues.items())}}}'
        for key, queues in table.items()
    )
    config.joinpath("consumerOffset.json").write_text(f'{{"offsetTable":{{{text}}}}}')
    return root


@pytest.mark.spark
def test_unread_messages_are_counted_by_group_and_store_time(
    running_spark: Spark, tmp_path: Path
) -> None:
    offsets = {"orders@billing": {0: 10, 1: 0}, "orders@fraud": {0: 40}, "bills@billing": {0: 99}}
    builder, expected = StoreBuilder(with_offsets(tmp_path, offsets)), Counter[Any]()
    places: Counter[tuple[str, int]] = Counter()
    for number in range(150):
        topic, queue_id = ("orders", "orders", "bills")[number % 3], number % 2
        stored = builder.put(topic, queue_id=queue_id)
        offset = places[topic, queue_id]
        places[topic, queue_id] += 1
        for key, queues in offsets.items():
            of, group = key.split("@")
            if of == topic and queue_id in queues and offset >= queues[queue_id]:
                expected[group, topic, minute_of(stored.store_timestamp)] += 1

    outcome = outcome_of(running_spark, builder.write(), "lag", **HOUR)

    assert expected == {
        (row["consumer_group"], row["topic"], row["time"]): row["unread"]
        for row in outcome.table.to_pylist()
    }
    assert sentence_of("lag", outcome).startswith("billing is furthest behind: ")


@pytest.mark.spark
def test_the_brokers_own_groups_are_not_behind(spark: SparkSession) -> None:
    messages = spark.createDataFrame([("orders", 0, 5, NOON, 100)], messages_with(lag.REPORT.reads))
    groups = ("CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", "billing", "TOOLS_CONSUMER_2")
    facts = StoreFacts(tuple(ConsumerOffset(group, "orders", 0, 5) for group in groups))

    found = lag.unread(messages, facts).collect()

    assert {row["consumer_group"] for row in found} == {"billing", "TOOLS_CONSUMER_2"}


def test_unreadable_offsets_are_explained_and_the_saved_copy_helps(
    tmp_path: Path,
) -> None:
    root = with_offsets(tmp_path, {"orders@billing": {0: 7}})
    file = root / "config" / "consumerOffset.json"
    good = file.read_text()
    file.write_text(good[:20])

    with pytest.raises(ReportError, match=r"consumerOffset\.json can't be read: "):
        facts_of(root)
    file.with_name("consumerOffset.json.bak").write_text(good)

    assert facts_of(root).offsets == (ConsumerOffset("billing", "orders", 0, 7),)


@pytest.mark.parametrize("table", [{"no-group": {"0": 1}}, {"a@b": [1]}, {"a@b": {"0": "x"}}, {}])
def test_entries_that_no_broker_writes_are_skipped(tmp_path: Path, table: Any) -> None:
    config = tmp_path / "config"
    config.mkdir()
    config.joinpath("consumerOffset.json").write_text(json.dumps({"offsetTable": table}))

    assert facts_of(tmp_path).offsets == ()


@pytest.mark.spark
def test_messages_stored_twice_are_counted_by_both_keys(
    running_spark: Spark, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path, file_bytes=64 * 1024)
    by_uniq_key: Counter[tuple[str, str]] = Counter()
    by_key: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for number in range(120):
        topic, uniq_key, key = "orders", f"FD{number * number % 60:03d}", f"k{number % 40}"
        builder.put(topic, properties=encoded(UNIQ_KEY=uniq_key, KEYS=key))
        by_uniq_key[topic, uniq_key] += 1
        by_key[topic, key].append(uniq_key)
    builder.put("%RETRY%billing", properties=encoded(UNIQ_KEY="FD000"))
    builder.put("quiet", properties=b"")
    builder.put("quiet", properties=b"")

    found = rows_of(running_spark, builder.write(), "duplicates")

    assert {(row["kind"], row["topic"], row["value"]): row["messages"] for row in found} == {
        **{("uniq_key", *place): count for place, count in by_uniq_key.items() if count > 1},
        **{
            ("key", *place): len(keys)
            for place, keys in by_key.items()
            if len(keys) > 1 and len(set(keys)) != 1
        },
    }
    assert all(row["extra"] == row["messages"] - 1 for row in found)


def duplicates_of(spark: SparkSession, rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    read = messages_with(duplicates.REPORT.reads)
    found = duplicates.repeated_messages(spark.createDataFrame(rows, read), {}, 60).collect()
    return [row.asDict() for row in found]


@pytest.mark.spark
def test_a_resent_message_is_not_a_second_use_of_its_keys(spark: SparkSession) -> None:
    later = NOON + timedelta(seconds=3)
    rows = [("orders", "FD1", ["k"], 0, NOON, NOON), ("orders", "FD1", ["k"], 1, later, later)]

    found = duplicates_of(spark, rows)

    assert [(row["kind"], row["extra"], row["apart_ms"]) for row in found] == [
        ("uniq_key", 1, 3_000)
    ]


@pytest.mark.spark
def test_a_batch_with_one_unique_key_counts_as_one_send(spark: SparkSession) -> None:
    """RocketMQ 5.3.3 stores all messages of a batch under the batch's UNIQ_KEY."""
    batch = [("orders", "FD1", [f"k{number}"], 2, NOON, NOON) for number in range(5)]
    later = NOON + timedelta(seconds=2)
    again = [(*row[:3], 1, later, later) for row in batch]

    assert duplicates_of(spark, batch) == []
    found = {row["kind"]: row for row in duplicates_of(spark, [*batch, *again])}
    assert found.keys() == {"uniq_key"}
    assert (found["uniq_key"]["messages"], found["uniq_key"]["extra"]) == (10, 5)


@pytest.mark.spark
def test_sums_cover_all_keys_however_many_have_their_own_rows(
    running_spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind has its own limit, and the rest is one row per topic."""
    monkeypatch.setattr(duplicates, "ROWS_MAX", 10)
    builder = StoreBuilder(tmp_path, file_bytes=64 * 1024)
    born = START_MS
    for number in range(40):
        # Sent again: each one once more, the first five twice more.
        for again in range(3 if number < 5 else 2):
            builder.put(
                ("orders", "bills")[number % 2],
                properties=encoded(UNIQ_KEY=f"U{number}", KEYS=f"own{number}"),
                born_timestamp=born + again,
            )
    for number in range(90):
        builder.put("orders", properties=encoded(UNIQ_KEY=f"V{number}", KEYS=f"k{number % 30}"))

    outcome = outcome_of(running_spark, builder.write(), "duplicates")

    report = result_of("duplicates", outcome)
    assert report["totals"]["repeated"] == str(40 + 30)
    assert report["totals"]["extra"] == str(35 + 2 * 5 + 30 * 2)
    assert report["totals"]["worst"] == "3"
    assert report["finding"]["figures"]["extra"]["value"] == str(35 + 2 * 5)
    kinds = {row["by"]: row["sums"] for row in report["breakdown"]["rows"]}
    assert kinds["uniq_key"][0] == str(35 + 2 * 5)
    rows = outcome.table.to_pylist()
    assert sum(row["value"] is None for row in rows) == 3
    assert sum(row["kind"] == "uniq_key" and row["value"] is not None for row in rows) == 10
