"""Report runs on samples, as the analytics program makes them; Django must be set up."""

from __future__ import annotations

import io
import json
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model

from analytics.lake.place import LakePlace
from analytics.lake.samples import HOUR_MS, SampledHours
from analytics.pipeline import WarmSpark
from analytics.progress import ProgressLines
from analytics.reports.catalog import REPORTS
from analytics.request import Request
from analytics.run import ReportRun as Making
from console.data.reports.models import ReportRun, RunState
from tests.support import sample_files
from tests.support.sample_files import HOUR, Line, put

if TYPE_CHECKING:
    from collections.abc import Iterator

HOURS = 6
# An hour without samples, as if the collector was stopped.
MISSING_HOUR = 2
MINUTES = range(60)
TOPIC_OF = {
    "order-service": "OrderEvents",
    "fraud-check": "OrderEvents",
    "search-index": "catalogue-changes",
    "warehouse-sync": "warehouse.stock-movements.v2",
    "loyalty": "OrderEvents",
    "mailer": "notifications",
    "monthly-archive-of-everything": "warehouse.stock-movements.v2",
}
VERSIONS = ("JAVA v4_9_7", "JAVA v5_3_1", "GO v5_1_2", "PYTHON v5_0_3")
CAME = 240


def make() -> dict[str, int | str]:
    """Create a finished run of each sample report, and one without rows; return their keys."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        folder, lake = directory / "samples", directory / "lake"
        folder.mkdir()
        for hour in range(HOURS):
            if hour != MISSING_HOUR:
                sample_files.write(folder, HOUR + hour, *_progress(hour), *_clients(hour))
        sampled = SampledHours(LakePlace.of(str(lake), None, {}), folder)
        while sampled.take() is not None:
            continue
        spark = WarmSpark({"TREBUCHET_DATA": made})
        try:
            return {
                "drain_run": _run(spark, lake, "drain"),
                "clients_run": _run(spark, lake, "clients"),
                "empty_run": _run(spark, lake, "drain", group="nobody"),
            }
        finally:
            spark.close()


def _run(spark: WarmSpark, lake: Path, name: str, **parameters: int | str) -> int:
    fields = {"hours": HOURS, "compare": 1, **parameters}
    out = lake.parent / f"out-{len(fields)}-{name}"
    to_ms = (HOUR + HOURS) * HOUR_MS
    request = Request(
        REPORTS[name],
        store=lake.parent / "store",
        out=out,
        from_ms=to_ms - HOURS * HOUR_MS,
        to_ms=to_ms,
        parameters=fields,
        lake=str(lake),
    )
    Making(request, ProgressLines(io.StringIO()), spark.engine).execute()
    result = json.loads((out / "result.json").read_text())
    began = datetime.fromtimestamp(to_ms / 1000, UTC)
    run = ReportRun.objects.create(
        report=name,
        requested_by=get_user_model().objects.filter(is_staff=True).first(),
        parameters=fields,
        state=RunState.DONE,
        started_at=began,
        finished_at=began + timedelta(seconds=1),
        result=result,
        result_rows=len(result["rows"]),
    )
    return run.pk


def _minutes(kind: str, metric: str, values: list[int], **others: Any) -> Line:
    """Return an hour of readings, one every ten seconds."""
    readings = {
        "kind": kind,
        "metric": metric,
        "is_counter": False,
        "weights": [6] * len(values),
        "sums": [6 * value for value in values],
        "maxima": values,
    }
    counted = put("", **{f"m{minute}": 0 for minute in range(len(values))})
    return counted | readings | others


def _progress(hour: int) -> Iterator[Line]:
    """Yield each group's progress and lag: some catch up, some never do."""
    for topic in sorted(set(TOPIC_OF.values())):
        yield put(topic, **{f"m{minute}": CAME for minute in MINUTES})
    for number, (group, topic) in enumerate(TOPIC_OF.items()):
        speed = CAME - 60 + 20 * number
        began = 90_000 // (number + 1)
        left = [max(0, began + (CAME - speed) * (60 * hour + minute)) for minute in MINUTES]
        known = {"topic": topic, "group": group}
        counter = put(topic, **{f"m{minute}": speed for minute in MINUTES})
        yield counter | known | {"kind": "progress", "metric": "consumed"}
        yield _minutes("progress", "lag", left, **known)


def _clients(hour: int) -> Iterator[Line]:
    """Yield the connected clients: one group upgrades, one uses several languages."""
    yield _minutes("broker", "log_bytes", [1] * 60, name="0", topic=None)
    for number, group in enumerate(TOPIC_OF):
        version = VERSIONS[1 if number == 0 and hour > 3 else number % len(VERSIONS)]
        known = {"topic": None, "group": group, "name": version}
        yield _minutes("consumers", "members", [number + 1] * 60, **known)
    for number, group in enumerate(("shop-frontend", "batch-import")):
        name = f"{group}@{VERSIONS[number]}"
        yield _minutes("producers", "members", [2] * 60, topic=None, name=name)
