from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analytics import sink
from analytics.store.decode import UTC_TIMESTAMP

if TYPE_CHECKING:
    from pathlib import Path

TABLE = pa.table(
    {
        "topic": pa.array(["orders", "订单"]),
        "minute": pa.array([datetime(2026, 11, 21, 11, 5, tzinfo=UTC)] * 2, UTC_TIMESTAMP),
        "messages": pa.array([2**60, 1], pa.int64()),
    }
)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_a_result_appears_as_parquet_and_json(tmp_path: Path, work: Path) -> None:
    sink.publish(TABLE, {"report": "traffic"}, work=work, out=tmp_path)

    assert pq.read_table(tmp_path / "result.parquet").equals(TABLE)
    assert json.loads((tmp_path / "result.json").read_text()) == {
        "report": "traffic",
        "row_count": 2,
        "rows_omitted": 0,
        "rows": [
            {"topic": "orders", "minute": "2026-11-21T11:05:00Z", "messages": str(2**60)},
            {"topic": "订单", "minute": "2026-11-21T11:05:00Z", "messages": "1"},
        ],
    }
    assert list(work.iterdir()) == []


def test_rows_beyond_a_page_stay_in_the_parquet_file(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "JSON_ROWS_MAX", 1)

    sink.publish(TABLE, {}, work=work, out=tmp_path)

    found = json.loads((tmp_path / "result.json").read_text())
    assert [row["topic"] for row in found["rows"]] == ["订单"]
    assert (found["row_count"], found["rows_omitted"]) == (2, 1)
    assert pq.read_table(tmp_path / "result.parquet").num_rows == 2


def test_a_result_that_cannot_be_written_whole_does_not_appear(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(OSError, match="No space left"):
        sink.publish(TABLE, {}, work=work, out=tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["work"]
