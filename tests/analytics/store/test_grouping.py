from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from analytics.store import grouping
from analytics.store.decode import COLUMN_TYPES, DAMAGE_TYPE
from analytics.store.grouping import Grouping

if TYPE_CHECKING:
    from collections.abc import Iterable

BY_TOPIC_AND_MINUTE = Grouping(("topic", "store_timestamp"), 60_000_000)
MINUTE_US = 60_000_000


def batch(rows: list[tuple[str, int, int]]) -> pa.RecordBatch:
    names = ("topic", "store_timestamp", "store_size")
    return pa.record_batch(
        [
            pa.array(column, COLUMN_TYPES[name])
            for name, column in zip(names, zip(*rows, strict=True), strict=True)
        ],
        names,
    )


def schema_of(*names: str) -> pa.Schema:
    types = BY_TOPIC_AND_MINUTE.types()
    return pa.schema([(name, types[name]) for name in names])


def rows_of(found: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for each in found for row in each.to_pylist()]


@pytest.mark.parametrize("held_max", [0, 3, 100_000])
def test_groups_add_up_to_a_manual_count(monkeypatch: pytest.MonkeyPatch, held_max: int) -> None:
    monkeypatch.setattr(grouping, "GROUPS_HELD_MAX", held_max)
    rows = [(f"t{number % 3}", number * 7_000_000, number % 11) for number in range(500)]
    batches = [batch(rows[at : at + 60]) for at in range(0, 500, 60)]
    schema = schema_of("topic", "store_timestamp", "messages", "store_size")

    found = rows_of(BY_TOPIC_AND_MINUTE.grouped(batches, schema))

    messages: Counter[tuple[str, int]] = Counter()
    sizes: Counter[tuple[str, int]] = Counter()
    for topic, at_us, size in rows:
        messages[topic, at_us // MINUTE_US] += 1
        sizes[topic, at_us // MINUTE_US] += size
    counted: Counter[tuple[str, int]] = Counter()
    summed: Counter[tuple[str, int]] = Counter()
    for row in found:
        place = row["topic"], int(row["store_timestamp"].timestamp()) // 60
        counted[place] += row["messages"]
        summed[place] += row["store_size"]
    assert (counted, summed) == (messages, sizes)
    assert len(found) < 500 or held_max == 0


def test_a_sum_exceeds_the_column() -> None:
    rows = [("t", 0, 2**31 - 1)] * 3

    found = rows_of(BY_TOPIC_AND_MINUTE.grouped([batch(rows)], schema_of("store_size")))

    assert found == [{"store_size": 3 * (2**31 - 1)}]


def test_damage_stays_a_separate_row() -> None:
    schema = schema_of("topic", "messages", "damage")
    damage = {"file": "f", "commit_log_from": 0, "commit_log_to": 9, "reason": "r"}
    names = ("topic", "store_timestamp", "damage")
    torn = pa.record_batch(
        [
            pa.array(["t", None, "t"], COLUMN_TYPES["topic"]),
            pa.array([0, None, 1], COLUMN_TYPES["store_timestamp"]),
            pa.array([None, damage, None], DAMAGE_TYPE),
        ],
        names,
    )

    found = rows_of(BY_TOPIC_AND_MINUTE.grouped([torn], schema))

    assert found == [
        {"topic": None, "messages": None, "damage": damage},
        {"topic": "t", "messages": 2, "damage": None},
    ]


def test_reading_nothing_creates_no_group() -> None:
    schema = schema_of("topic", "messages")

    assert rows_of(BY_TOPIC_AND_MINUTE.grouped([], schema)) == []
    assert rows_of(BY_TOPIC_AND_MINUTE.grouped([batch([("t", 0, 1)]).slice(0, 0)], schema)) == []
