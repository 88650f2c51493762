"""Reports on senders, sizes, and the distribution over keys and queues."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from analytics.reports import keys, queues, senders, sizes
from analytics.schemas import messages_with
from broker_core.message import properties
from broker_core.message.ids import host_bytes
from tests.analytics.reports.report_outcomes import outcome_of, result_of, rows_of, sentence_of
from tests.analytics.store_builder import START_MS, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from analytics.session import Spark

pytestmark = pytest.mark.spark

HOSTS = ("10.0.0.1", "10.0.0.2", "2001:db8::7")
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def made(root: Path, count: int = 240) -> tuple[Path, list[dict[str, Any]]]:
    """Return a store, and its messages independent of its files."""
    builder, messages = StoreBuilder(root, file_bytes=64 * 1024), []
    for number in range(count):
        message: dict[str, Any] = {
            "topic": ("orders", "bills", "orders")[number % 3],
            "queue_id": number % 4 if number % 5 else 0,
            "host": HOSTS[number * number % 3],
            "body": b"x" * (1 + (number * 37) % 5_000),
            "keys": ["hot"] if number % 2 else [f"key-{number % 17}", "hot", "hot"],
            "stored": START_MS + 1_000 * number,
        }
        stored = builder.put(
            message["topic"],
            queue_id=message["queue_id"],
            body=message["body"],
            born_host=host_bytes(message["host"], 4_000 + number),
            sys_flag=0x10 if ":" in message["host"] else 0,
            properties=properties.encode({"KEYS": " ".join(message["keys"])}).encode(),
            store_timestamp=message["stored"],
        )
        messages.append(message | {"size": stored.size})
    config = builder.root / "config"
    config.mkdir(parents=True)
    config.joinpath("topics.json").write_text(
        '{"topicConfigTable":{"orders":{"topicName":"orders","writeQueueNums":8}}}'
    )
    return builder.write(), messages


def test_senders_are_counted_by_host_and_topic(running_spark: Spark, tmp_path: Path) -> None:
    root, messages = made(tmp_path)
    counts: Counter[tuple[str, str]] = Counter()
    sizes_of = defaultdict(list)
    for each in messages:
        counts[each["host"], each["topic"]] += 1
        sizes_of[each["host"], each["topic"]].append(len(each["body"]))

    found = rows_of(running_spark, root, "senders")

    assert {(row["host"].strip("[]"), row["topic"]): row["messages"] for row in found} == counts
    for row in found:
        bodies = sizes_of[row["host"].strip("[]"), row["topic"]]
        assert (row["body_bytes"], row["largest_body"]) == (sum(bodies), max(bodies))
        assert row["first_stored"] <= row["last_stored"]
    assert [row["body_bytes"] for row in found] == sorted(row["body_bytes"] for row in found)


def test_sizes_are_counted_by_class_and_topic(running_spark: Spark, tmp_path: Path) -> None:
    root, messages = made(tmp_path)
    bodies = defaultdict(list)
    for each in messages:
        size = len(each["body"])
        place = next(place for place, (most, _) in enumerate(sizes.BOUNDS) if size <= most)
        bodies[place, each["topic"]].append(size)

    outcome = outcome_of(running_spark, root, "sizes")

    found = {
        (row["size_class"], row["topic"]): (
            row["messages"],
            row["body_bytes"],
            row["smallest_body"],
            row["median_body"],
            row["largest_body"],
        )
        for row in outcome.table.to_pylist()
    }
    assert found == {
        place: (len(of), sum(of), min(of), sorted(of)[(len(of) - 1) // 2], max(of))
        for place, of in bodies.items()
    }
    bars = [row["by"] for row in result_of("sizes", outcome)["bars"]["rows"]]
    assert bars == ["≤ 1 KiB", "≤ 4 KiB", "≤ 512 KiB"]


def test_a_size_on_a_bound_is_in_its_class(spark: SparkSession) -> None:
    read = messages_with(sizes.REPORT.reads)
    bodies = [1024, 1025, 4096, 512 * 1024, 1024**2, 2 * 1024**2, 4 * 1024**2, 4 * 1024**2 + 1, 0]

    found = sizes.by_size_and_topic(
        spark.createDataFrame([("orders", size) for size in bodies], read), {}, 60
    )

    assert {row["size"]: row["messages"] for row in found.collect()} == {
        "≤ 1 KiB": 2,
        "≤ 4 KiB": 2,
        "≤ 512 KiB": 1,
        "≤ 1 MiB": 1,
        "≤ 2 MiB": 1,
        "≤ 4 MiB": 1,
        "> 4 MiB": 1,
    }


def test_queues_are_compared_with_all_queues_of_their_topic(
    running_spark: Spark, tmp_path: Path
) -> None:
    root, messages = made(tmp_path)
    counts = Counter((each["topic"], each["queue_id"]) for each in messages)
    numbers = {"orders": 8, "bills": 4}

    found = rows_of(running_spark, root, "queues")

    assert {(row["topic"], row["queue_id"]): row["messages"] for row in found} == counts
    for row in found:
        of_topic = [counts[row["topic"], queue] for queue in range(numbers[row["topic"]])]
        whole, number = sum(of_topic), len(of_topic)
        differences = sum(abs(one - other) for one in of_topic for other in of_topic)
        assert row["queues"] == number
        assert row["share"] == row["messages"] * 1000 // whole
        assert row["times_mean"] == row["messages"] * number * 1000 // whole
        # The definition, where the report uses the sum over ranks.
        assert row["gini"] == differences * 1000 // (2 * number * whole)


def test_the_least_even_topic_is_named_if_there_is_enough_data(
    running_spark: Spark, tmp_path: Path
) -> None:
    root, _ = made(tmp_path / "many")
    few, _ = made(tmp_path / "few", count=12)

    report = sentence_of("queues", outcome_of(running_spark, root, "queues"))
    untold = sentence_of("queues", outcome_of(running_spark, few, "queues"))

    assert report.startswith("orders is distributed least evenly: queue 0 has ")
    assert report.endswith("compared with 125 for an even distribution over 8 queues.")
    assert untold.startswith("No topic has enough messages")


@pytest.mark.parametrize(("counts", "gini"), [((5, 5), 0), ((10,), 500), ((1, 3), 250)])
def test_unevenness_is_0_for_equal_queues_and_grows(
    spark: SparkSession, counts: tuple[int, ...], gini: int
) -> None:
    rows = [("orders", queue, 1, 2) for queue, count in enumerate(counts) for _ in range(count)]
    frame = spark.createDataFrame(rows, "topic string, queue_id int, store_size int, places bigint")

    found = queues.by_queue(frame, {}, 60).collect()

    assert {row["gini"] for row in found} == {gini}


def test_a_message_counts_once_for_each_of_its_keys(running_spark: Spark, tmp_path: Path) -> None:
    root, messages = made(tmp_path)
    counts = Counter((each["topic"], key) for each in messages for key in set(each["keys"]))
    of_topic: Counter[str] = Counter()
    for (topic, _), number in counts.items():
        of_topic[topic] += number

    found = rows_of(running_spark, root, "keys", keys=5)

    expected = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]
    assert {((row["topic"], row["key"]), row["messages"]) for row in found} == set(expected)
    for row in found:
        assert row["share"] == row["messages"] * 1000 // of_topic[row["topic"]]
        assert row["keys_of_topic"] == len({key for topic, key in counts if topic == row["topic"]})


def test_one_enormous_key_is_counted_whole_and_shown_short(spark: SparkSession) -> None:
    read = messages_with(keys.REPORT.reads)
    long = "k" * 32_000
    rows = [("orders", [each], 10, NOON) for each in (long + "a", long + "a", long + "b")]

    found = keys.most_frequent(spark.createDataFrame(rows, read), {}, 60).collect()

    assert [(row["key"], row["messages"]) for row in found] == [("k" * 200, 2), ("k" * 200, 1)]


def test_messages_without_a_key_have_no_key(spark: SparkSession) -> None:
    read = messages_with(keys.REPORT.reads)

    found = keys.most_frequent(
        spark.createDataFrame([("orders", None, 10, NOON)], read), {}, 60
    ).collect()

    assert found == []


def test_the_port_is_not_a_part_of_a_host(spark: SparkSession) -> None:
    read = messages_with(senders.REPORT.reads)
    rows = [("orders", f"10.0.0.1:{port}", 10, NOON) for port in (1, 65_535)]

    found = senders.by_host_and_topic(spark.createDataFrame(rows, read), {}, 60).collect()

    assert [(row["host"], row["messages"]) for row in found] == [("10.0.0.1", 2)]
