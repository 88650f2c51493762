"""Facts about messages beyond the log: producers and consumers named in traces."""

from __future__ import annotations

import math
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
from tests.analytics.reports.report_outcomes import outcome_of, result_of, sentence_of
from tests.analytics.store_builder import START_MS, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from analytics.session import Spark

pytestmark = pytest.mark.spark

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MINUTE_MS = 60_000
# A range of this length is split by minutes.
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


def before(group: str, request: str, key: str, began: int, tries: int = 0) -> str:
    return line("SubBefore", began, "cn", group, request, key, tries, "")


def after(request: str, key: str, cost: int, *, success: bool, code: int | None = None) -> str:
    tail = () if code is None else ("", code, START_MS, "")
    return line("SubAfter", request, key, cost, str(success).lower(), *tail)


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
    """Messages of several tags, hosts and producer groups, some of them without traces."""
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
    fields: dict[str, Any] = {"by": by} | ({"topic": topic} if topic else {})

    outcome = outcome_of(running_spark, builder.write(), "origins", **HOUR, **fields)

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
    assert sentence_of("origins", outcome).endswith(f"The origin of {untold} is unknown.")


def test_an_unreported_origin_is_explained_in_one_sentence(spark: SparkSession) -> None:
    read = messages_with(origins.REPORT.reads)
    rows = [("orders", NOON, 100, None, "10.0.0.1:4000")] * 2

    table = origins.by_origin_and_time(spark.createDataFrame(rows, read), {}, 60).toArrow()

    assert table["messages"].to_pylist() == [2]
    assert origins.busiest_origin(table).text == "None of the %(all)s messages has a known origin."


@pytest.mark.parametrize("by", ["tag", "host"])
def test_only_producer_groups_need_the_traces_to_be_read(by: str) -> None:
    report = REPORTS["origins"]

    assert report.with_parameters({"by": by}) is report
    assert not report.client_traces
    assert report.with_parameters({"by": "group"}).client_traces


@pytest.mark.parametrize(
    ("name", "column", "origin"),
    [
        ("retries", "origin_topic", "orders"),
        ("delays", "topic", "orders"),
        ("transactions", "topic", "orders"),
    ],
)
def test_reports_on_the_brokers_own_messages_are_narrowed_to_their_topic(
    running_spark: Spark, tmp_path: Path, name: str, column: str, origin: str
) -> None:
    builder = StoreBuilder(tmp_path)
    for number, topic in enumerate(("orders", "bills")):
        text = encoded(REAL_TOPIC=topic, RETRY_TOPIC=topic, UNIQ_KEY=f"FD{number}", PGROUP="shop")
        for place in ("SCHEDULE_TOPIC_XXXX", "%RETRY%billing", "RMQ_SYS_TRANS_HALF_TOPIC"):
            builder.put(place, properties=text)

    outcome = outcome_of(running_spark, builder.write(), name, topic=origin)

    assert outcome.table[column].to_pylist() == [origin]


def nearest_rank(values: list[int], share: float) -> int | None:
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else None


def consumed(root: Path) -> tuple[StoreBuilder, list[dict[str, Any]]]:
    """Messages that two groups consume, at once or with retries, and their expected results."""
    builder, expected, reports = StoreBuilder(root, file_bytes=64 * 1024), [], []
    for number in range(90):
        topic, stored, key = (
            ("orders", "bills")[number % 2],
            START_MS + 2_000 * number,
            f"FD{number}",
        )
        builder.put(topic, properties=encoded(UNIQ_KEY=key), store_timestamp=stored)
        for group in ("billing", "fraud")[: 1 + number % 2]:
            if number % 9 == 0:
                continue  # it has no trace
            wait, cost, tries = number * 7919 % 1_700 - 50, number % 40, 1 + (number % 5 == 0)
            ends = None
            for done in range(tries):
                request, began = f"{group}-{number}-{done}", stored + wait + 10_000 * done
                success = done == tries - 1 and number % 11 != 0
                reports += [
                    before(group, request, key, began, done),
                    after(request, key, cost, success=success),
                ]
                ends = began + cost - stored if success else None
            expected.append(
                {"place": (topic, group, minute_of(stored)), "wait": wait, "ends": ends}
                | {"tries": tries}
            )
    # The retry is stored again, and isn't another message.
    builder.put(
        "%RETRY%billing", properties=encoded(UNIQ_KEY="FD5"), store_timestamp=START_MS + 190_000
    )
    reports += [
        before("billing", "lost", "elsewhere", START_MS),
        after("lost", "elsewhere", 1, success=True),
        line("SubBefore", "soon"),
    ]
    for part in range(0, len(reports), 50):
        trace(builder, *reports[part : part + 50], stored=START_MS + 200_000)
    return builder, expected


def test_the_time_to_consumers_is_counted_by_topic_group_and_minute(
    running_spark: Spark, tmp_path: Path
) -> None:
    builder, expected = consumed(tmp_path)

    outcome = outcome_of(running_spark, builder.write(), "consumption", slow=1_000, **HOUR)

    found = outcome.table.to_pylist()
    assert {(row["topic"], row["consumer_group"], row["time"]) for row in found} == {
        one["place"] for one in expected
    }
    for row in found:
        place = row["topic"], row["consumer_group"], row["time"]
        of_place = [one for one in expected if one["place"] == place]
        sound = [one for one in of_place if one["wait"] >= 0]
        waits = [one["wait"] for one in sound]
        ends = [one["ends"] for one in sound if one["ends"] is not None]
        assert row == {
            "topic": place[0],
            "consumer_group": place[1],
            "time": place[2],
            "messages": len(of_place),
            "acknowledged": sum(one["ends"] is not None for one in of_place),
            "tries": sum(one["tries"] for one in of_place),
            **{f"wait_p{p}_ms": nearest_rank(waits, p / 100) for p in (50, 95, 99)},
            "wait_max_ms": max(waits, default=None),
            **{f"whole_p{p}_ms": nearest_rank(ends, p / 100) for p in (50, 95, 99)},
            "whole_max_ms": max(ends, default=None),
            "slow": sum(one["wait"] >= 1_000 for one in of_place),
            "from_the_future": len(of_place) - len(sound),
        }
    assert "traced messages waited a long time to be consumed" in sentence_of(
        "consumption", outcome
    )


def test_messages_consumed_together_finish_together(running_spark: Spark, tmp_path: Path) -> None:
    builder, keys = StoreBuilder(tmp_path), ("FD1", "FD2", "FD3")
    for key in keys:
        builder.put(properties=encoded(UNIQ_KEY=key), store_timestamp=START_MS)
    began = [before("billing", "request", key, START_MS + 100) for key in keys]
    ended = [after("request", key, 20, success=True) for key in keys]
    trace(builder, *began, *ended, stored=START_MS + 5_000)

    (row,) = outcome_of(running_spark, builder.write(), "consumption", **HOUR).table.to_pylist()

    assert (row["wait_max_ms"], row["whole_max_ms"]) == (100, 100 + 3 * 20)


def test_failed_attempts_are_counted_by_reason_once_from_log_and_trace(
    running_spark: Spark, tmp_path: Path
) -> None:
    builder, reports, expected = StoreBuilder(tmp_path, file_bytes=64 * 1024), [], Counter[Any]()
    names = {1: "time out", 2: "exception", 3: "returned null", 4: "asked for a retry"}
    longest: dict[str, int] = {}
    for number in range(120):
        group, origin = ("billing", "fraud")[number % 2], ("orders", "bills", "x")[number % 3]
        code, key, tries = number % 5 or None, f"FD{number // 4}", number % 4
        is_dead, in_log = number % 7 == 0, number % 6 != 0
        if in_log:
            builder.put(
                f"%{'DLQ' if is_dead else 'RETRY'}%{group}",
                properties=encoded(RETRY_TOPIC=origin, UNIQ_KEY=key),
                reconsume_times=tries + 1,
                store_timestamp=START_MS + 100 * number,
            )
        is_told = number % 8 != 3
        if is_told:
            request = f"r{number}"
            reports += [
                before(group, request, key, START_MS + 100 * number, tries),
                after(request, key, number, success=False, code=code),
            ]
        if is_told or in_log:
            reason = names[code] if is_told and code else "untold"
            expected[group, origin if in_log else None, reason] += 1
            if is_told:
                longest[reason] = max(longest.get(reason, 0), number)
    for _ in range(3):
        builder.put("%DLQ%billing", properties=encoded(RETRY_TOPIC="x"), store_timestamp=START_MS)
    expected["billing", "x", "untold"] += 3
    reports += [
        before("billing", "fine", "FD0", START_MS, 9),
        after("fine", "FD0", 1, success=True),
    ]
    trace(builder, *reports, stored=START_MS + 50_000)

    outcome = outcome_of(running_spark, builder.write(), "failures", **HOUR)

    found, found_longest = Counter[Any](), dict[str, int]()
    for row in outcome.table.to_pylist():
        found[row["consumer_group"], row["origin_topic"], row["reason"]] += row["failures"]
        if row["max_ms"] is not None:
            found_longest[row["reason"]] = max(found_longest.get(row["reason"], 0), row["max_ms"])
    assert found == expected
    assert found_longest == longest
    logged = [one for one in builder.stored if one.topic.startswith("%")]
    totals = result_of("failures", outcome)["totals"]
    assert int(totals["retries"]) + int(totals["dead_letters"]) == len(logged)
    assert f" of {found.total()} failed attempts. For " in sentence_of("failures", outcome)


def test_without_traces_failures_are_counted_without_a_reason(
    running_spark: Spark, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path)
    for origin in ("orders", "bills"):
        builder.put("%RETRY%billing", properties=encoded(RETRY_TOPIC=origin), reconsume_times=1)

    outcome = outcome_of(running_spark, builder.write(), "failures", topic="orders")

    assert [(row["reason"], row["failures"]) for row in outcome.table.to_pylist()] == [
        ("untold", 1)
    ]
    assert sentence_of("failures", outcome).startswith("1 attempts failed for unknown reasons")
