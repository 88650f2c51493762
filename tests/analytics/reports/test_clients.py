"""What is known of messages beyond the log: the producers and consumers that their traces name."""

from __future__ import annotations

import zlib
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from analytics.reports import origins
from analytics.reports.catalog import REPORTS
from analytics.schemas import messages_with
from broker_core.message import properties
from broker_core.message.ids import host_bytes
from broker_core.message.names import RMQ_SYS_TRACE_TOPIC
from broker_core.message.sys_flag import COMPRESSED_FLAG
from tests.analytics.reports.making import outcome_of, sentence_of
from tests.analytics.store_builder import START_MS, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from analytics.session import Spark

pytestmark = pytest.mark.spark

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MINUTE_MS = 60_000
# A range of this length is cut by minutes.
HOUR = {"from_ms": START_MS, "to_ms": START_MS + 60 * MINUTE_MS}


def encoded(**table: str) -> bytes:
    return properties.encode(table).encode()


def minute_of(stored_ms: int) -> datetime:
    return datetime.fromtimestamp(stored_ms // MINUTE_MS * 60, UTC)


def line(*fields: object) -> str:
    return "\x01".join(map(str, fields))


def pub(group: str, *ids: str) -> str:
    head = ("Pub", START_MS, "cn", group, "orders", ",".join(ids), "null", "", "10.0.0.1:10911")
    return line(*head, 12, 4, 0, "ID", "true")


def trace(builder: StoreBuilder, *records: str, stored: int) -> None:
    """Put records as a client does, which compresses larger bodies."""
    builder.put(
        RMQ_SYS_TRACE_TOPIC,
        body=zlib.compress("".join(each + "\x02" for each in records).encode()),
        sys_flag=COMPRESSED_FLAG,
        properties=b"",
        store_timestamp=stored,
    )


def sent(root: Path) -> tuple[StoreBuilder, list[dict[str, Any]]]:
    """Messages of several tags, hosts and producer groups, some of which nobody tells."""
    builder, expected = StoreBuilder(root, file_bytes=64 * 1024), []
    traced: dict[str, list[str]] = {"shop": [], "web": []}
    for number in range(120):
        topic, host = ("orders", "bills")[number % 2], f"10.0.0.{number % 5}"
        tag, stored = ("paid", "open", None)[number % 3], START_MS + 2_000 * number
        group = ("shop", "web", None, "bank")[number % 4]
        table = {"UNIQ_KEY": f"FD{number:03d}"} if number % 7 else {}
        if group in traced and table:
            traced[group].append(table["UNIQ_KEY"])
        elif group != "bank":
            group = None
        one = builder.put(
            topic,
            properties=encoded(
                **table,
                **({"TAGS": tag} if tag else {}),
                **({"PGROUP": "bank"} if group == "bank" else {}),
            ),
            born_host=host_bytes(host, 40_000 + number),
            store_timestamp=stored,
        )
        expected.append(
            {"topic": topic, "time": minute_of(stored), "size": one.size}
            | {"tag": tag, "group": group, "host": host}
        )
    shop = traced["shop"]
    batches = [pub("shop", *shop[:3]), *(pub("shop", one) for one in shop[3:])]
    end = START_MS + 250_000
    trace(builder, *batches, line("Recall", "too short"), stored=end)
    trace(builder, *(pub("web", one) for one in traced["web"]), pub("null", "FD003"), stored=end)
    return builder, expected


@pytest.mark.parametrize(
    ("by", "topic"), [("tag", None), ("host", None), ("group", None), ("group", "orders")]
)
def test_traffic_is_counted_by_each_kind_of_origin(
    running_spark: Spark, tmp_path: Path, by: str, topic: str | None
) -> None:
    builder, messages = sent(tmp_path)
    asked: dict[str, Any] = {"by": by} | ({"topic": topic} if topic else {})

    outcome = outcome_of(running_spark, builder.write(), "origins", **HOUR, **asked)

    counts, sizes = Counter[Any](), Counter[Any]()
    for one in messages:
        if topic in (None, one["topic"]):
            counts[one["topic"], one[by], one["time"]] += 1
            sizes[one["topic"], one[by], one["time"]] += one["size"]
    found = outcome.table.to_pylist()
    places = [(row["topic"], row["origin"], row["time"]) for row in found]
    assert dict(zip(places, (row["messages"] for row in found), strict=True)) == counts
    assert dict(zip(places, (row["bytes"] for row in found), strict=True)) == sizes
    untold = sum(number for (_, origin, _), number in counts.items() if origin is None)
    assert sentence_of("origins", outcome).endswith(f"of {untold} the origin is not known.")


def test_an_origin_that_nobody_tells_is_a_sentence(spark: SparkSession) -> None:
    read = messages_with(origins.REPORT.reads)
    rows = [("orders", NOON, 100, None, "10.0.0.1:4000")] * 2

    table = origins.by_origin_and_time(spark.createDataFrame(rows, read), {}, 60).toArrow()

    assert table["messages"].to_pylist() == [2]
    assert origins.busiest_origin(table).text == "Of none of %(all)s messages the origin is known."


@pytest.mark.parametrize("by", ["tag", "host"])
def test_only_producer_groups_cost_the_reading_of_traces(by: str) -> None:
    report = REPORTS["origins"]

    assert report.with_parameters({"by": by}) is report
    assert report.lake is not None
    assert not report.client_traces
    of_groups = report.with_parameters({"by": "group"})
    assert of_groups.client_traces
    assert of_groups.lake is None


@pytest.mark.parametrize(
    ("name", "column", "origin"),
    [
        ("retries", "origin_topic", "orders"),
        ("delays", "topic", "orders"),
        ("transactions", "topic", "orders"),
    ],
)
def test_reports_of_the_brokers_own_messages_are_narrowed_to_the_topic_they_are_about(
    running_spark: Spark, tmp_path: Path, name: str, column: str, origin: str
) -> None:
    builder = StoreBuilder(tmp_path)
    for number, topic in enumerate(("orders", "bills")):
        text = encoded(REAL_TOPIC=topic, RETRY_TOPIC=topic, UNIQ_KEY=f"FD{number}", PGROUP="shop")
        for place in ("SCHEDULE_TOPIC_XXXX", "%RETRY%billing", "RMQ_SYS_TRANS_HALF_TOPIC"):
            builder.put(place, properties=text)

    outcome = outcome_of(running_spark, builder.write(), name, topic=origin)

    assert outcome.table[column].to_pylist() == [origin]
