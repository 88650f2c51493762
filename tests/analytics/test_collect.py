"""A report's reading, in the shared Spark with the settings of real runs."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

import pytest

from analytics.collect import collect
from analytics.errors import ReportError
from analytics.inputs import log_input
from analytics.progress import ProgressLines
from analytics.reports import traffic
from analytics.reports.report import step_for
from analytics.request import Request
from analytics.session import require_executor
from analytics.store.decode import FILE_GONE
from tests.analytics.store_builder import FILE_BYTES, START_MS, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.collect import Outcome
    from analytics.inputs import Input
    from analytics.session import Spark

HOUR_MS = 3_600_000


def request_of(root: Path, **values: Any) -> Request:
    return Request(report=traffic.REPORT, store=root, out=root / "out", **values)


def collected(spark: Spark, request: Request, given: Input | None = None) -> Outcome:
    return collect(spark, request, given or log_input(request), ProgressLines(io.StringIO()))


@pytest.mark.spark
def test_a_store_without_a_message_gives_a_report_without_a_row(
    running_spark: Spark, tmp_path: Path
) -> None:
    found = collected(running_spark, request_of(tmp_path))

    assert (found.table.num_rows, found.rows_read, found.damages) == (0, 0, [])


@pytest.mark.spark
@pytest.mark.parametrize(
    "values",
    [
        {"from_ms": START_MS + 900 * HOUR_MS},
        {"from_ms": START_MS + 1, "to_ms": START_MS + 2},
    ],
    ids=["idle range behind the log", "idle range inside it"],
)
def test_a_report_without_results_has_no_row_and_no_error(
    running_spark: Spark, tmp_path: Path, values: dict[str, Any]
) -> None:
    root = StoreBuilder(tmp_path).put_many(300).write()

    found = collected(running_spark, request_of(root, **values))

    assert (found.table.num_rows, found.rows_read, found.damages) == (0, 0, [])


@pytest.mark.spark
def test_a_long_range_uses_longer_steps_and_loses_nothing(
    running_spark: Spark, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path)
    for number in range(720):
        builder.put(store_timestamp=START_MS + number * HOUR_MS)
    request = request_of(
        builder.write(), from_ms=START_MS - HOUR_MS, to_ms=START_MS + 720 * HOUR_MS
    )

    step_seconds = step_for(traffic.REPORT, 30 * 86_400)
    found = collected(running_spark, request)

    # For a range that ends in the future, only elapsed time counts.
    assert 60 <= found.step_seconds <= step_seconds
    assert sum(found.table["messages"].to_pylist()) == 720
    assert {at.timestamp() % found.step_seconds for at in found.table["time"].to_pylist()} == {0}


@pytest.mark.spark
def test_data_that_expires_after_the_plan_is_named_in_the_result(
    running_spark: Spark, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    request = request_of(builder.write())
    given = log_input(request)

    builder.path_of(0).unlink()
    found = collected(running_spark, request, given)

    left = [one for one in builder.stored if one.commit_log_offset >= FILE_BYTES]
    assert found.rows_read == sum(found.table["messages"].to_pylist()) == len(left)
    assert [
        (each["commit_log_from"], each["commit_log_to"], each["reason"]) for each in found.damages
    ] == [(0, FILE_BYTES, FILE_GONE)]


class Workers:
    """A cluster's Spark whose first executor arrives after some seconds, by a manual clock."""

    def __init__(self, come_after: float) -> None:
        self.now = 100.0
        self._come_at = self.now + come_after

    def executors(self) -> int:
        return int(self.now >= self._come_at)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("seconds", [31.0, math.inf])
def test_a_cluster_without_a_worker_is_reported_after_thirty_seconds(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    workers = Workers(seconds)
    monkeypatch.setattr("analytics.session.time", workers)

    with pytest.raises(ReportError) as refused:
        require_executor(workers, "spark://127.0.0.1:7077")  # type: ignore[arg-type]

    assert str(refused.value) == (
        "No worker of the Spark cluster at spark://127.0.0.1:7077 accepted work within 30 s. "
        "Reports need a worker with a free core and 1g of memory."
    )
    assert 30 < workers.now - 100.0 < 31


def test_a_worker_that_arrives_in_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(29.0)
    monkeypatch.setattr("analytics.session.time", workers)

    require_executor(workers, "spark://127.0.0.1:7077")  # type: ignore[arg-type]

    assert 29 <= workers.now - 100.0 < 30
