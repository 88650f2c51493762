"""Reports of the collector's samples: equal to a recount of its files, or a sentence what to do."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from analytics import guest
from analytics.__main__ import main
from analytics.errors import ReportError
from analytics.lake.samples import HOUR_MS
from analytics.progress import ProgressLines
from analytics.report_from_samples import answer_from_samples
from analytics.reports.catalog import REPORTS
from analytics.request import Request
from tests.analytics import run_report
from tests.analytics.lake.sampled import Hours
from tests.support.sample_files import HOUR, Line, put

if TYPE_CHECKING:
    from pathlib import Path

MINUTES = range(60)
STEP = 5


def arrived(hour: int, minute: int) -> int:
    return 100 + (hour * 60 + minute) * 7 % 13


def consumed(hour: int, minute: int) -> int:
    return 90 + (hour * 60 + minute) * 11 % 37


def line(metric: str, totals: list[int], **others: Any) -> Line:
    """Return an hour of billing's progress in orders."""
    made = put("orders", **{f"m{minute}": total for minute, total in enumerate(totals)})
    if metric == "put":
        return made
    progress = {"kind": "progress", "group": "billing", "metric": metric}
    return made | progress | others


def lag(totals: list[int]) -> Line:
    readings = {"is_counter": False, "weights": [6] * 60, "maxima": totals}
    return line("lag", [6 * total for total in totals], **readings)


@pytest.fixture(autouse=True)
def beside_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    # A guest steps back for good, and this process has more tests to run.
    monkeypatch.setenv(guest.VARIABLE, "false")


@pytest.fixture
def hours(tmp_path: Path) -> Hours:
    """Three hours of a group that falls behind and catches up."""
    made = Hours(tmp_path)
    for hour in range(3):
        made.write(
            HOUR + hour,
            line("put", [arrived(hour, minute) for minute in MINUTES]),
            line("consumed", [consumed(hour, minute) for minute in MINUTES]),
            lag(backlogs()[hour * 60 : hour * 60 + 60]),
        )
    made.take()
    return made


def backlogs() -> list[int]:
    found, behind = [], 5_000
    for at in range(180):
        behind += arrived(*divmod(at, 60)) - consumed(*divmod(at, 60))
        found.append(behind)
    return found


def ask(hours: Hours, name: str = "drain", **changed: Any) -> dict[str, Any]:
    out = hours.lake.directory.parent / "out"
    values: dict[str, Any] = {
        "report": REPORTS[name],
        "store": hours.builder.root,
        "out": out,
        "from_ms": (HOUR + 1) * HOUR_MS,
        "to_ms": (HOUR + 2) * HOUR_MS,
        "lake": str(hours.lake.directory),
    }
    answer_from_samples(Request(**values | changed), ProgressLines(io.StringIO()))
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    return found


def test_its_numbers_are_those_of_the_collectors_files(hours: Hours) -> None:
    result = ask(hours, parameters={"compare": 1})

    every = backlogs()
    step = result["step_seconds"] // 60
    assert step == STEP
    assert len(result["rows"]) == 60 // step
    for row, first in zip(result["rows"], range(60, 120, step), strict=True):
        minutes = [divmod(at, 60) for at in range(first, first + step)]
        came, read = (sum(of(*each) for each in minutes) for of in (arrived, consumed))
        left = every[first + step - 1]
        assert (int(row["backlog"]), int(row["consumed"]), int(row["arrived"])) == (
            left,
            read,
            came,
        )
        assert int(row["highest"]) == max(every[first : first + step])
        if read > came:
            assert abs(int(row["drain_ms"]) - left * step * 60_000 / (read - came)) <= 1
        else:
            assert row["drain_ms"] is None
    assert result["totals"]["consumed"] == str(sum(consumed(1, minute) for minute in MINUTES))
    assert result["before"]["totals"]["consumed"] == str(
        sum(consumed(0, minute) for minute in MINUTES)
    )
    assert result["engine"] == {"name": "duckdb", "because": None, "reads": "bronze.samples"}
    table = pq.read_table(hours.lake.directory.parent / "out" / "result.parquet")
    assert table.num_rows == len(result["rows"])


def test_versions_of_clients_are_told_and_compared(tmp_path: Path) -> None:
    made = Hours(tmp_path)
    for hour, version in enumerate(("v4_9_7", "v4_9_7", "v5_3_1")):
        billing = lag([3] * 60) | {
            "kind": "consumers",
            "topic": None,
            "name": f"JAVA {version}",
            "metric": "members",
        }
        size = lag([3] * 60) | {"kind": "broker", "group": None, "metric": "log_bytes"}
        made.write(HOUR + hour, billing, size)
    made.take()

    result = ask(
        made,
        "clients",
        from_ms=HOUR * HOUR_MS + HOUR_MS * 3 // 2,
        to_ms=(HOUR + 3) * HOUR_MS,
        parameters={"compare": 1},
    )

    changed = [(row["change"], row["client"]) for row in result["rows"] if row["change"]]
    assert changed == [("gone", "JAVA v4_9_7"), ("new", "JAVA v5_3_1")]
    assert result["totals"] | {"came": "1", "went": "1", "kinds": "2"} == result["totals"]
    assert result["before"]["totals"]["came"] == "0"


def test_samples_that_begin_later_are_not_compared(hours: Hours) -> None:
    result = ask(hours, parameters={"compare": 1}, from_ms=HOUR * HOUR_MS)

    assert "totals" not in result["before"]


def test_all_that_was_sampled_is_there_without_a_range(hours: Hours) -> None:
    result = ask(hours, from_ms=None, to_ms=None)

    arrivals = sum(arrived(hour, minute) for hour in range(3) for minute in MINUTES)
    assert result["totals"]["arrived"] == str(arrivals)


def test_without_a_lake_a_sentence_says_what_to_set(hours: Hours) -> None:
    with pytest.raises(ReportError, match="set TREBUCHET_LAKE=true and start deploy/up again"):
        ask(hours, lake=None)


def test_a_lake_without_samples_says_when_they_come(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="has no samples yet: the console's collector writes"):
        ask(Hours(tmp_path))


@pytest.mark.parametrize(
    ("from_hour", "to_hour"), [(HOUR + 3, HOUR + 4), (HOUR - 2, HOUR), (HOUR + 3, None)]
)
def test_a_time_without_samples_names_the_time_that_has_some(
    hours: Hours, from_hour: int, to_hour: int | None
) -> None:
    to_ms = None if to_hour is None else to_hour * HOUR_MS
    with pytest.raises(ReportError, match="from 2026-11-21 09:00 to 2026-11-21 11:59 UTC"):
        ask(hours, from_ms=from_hour * HOUR_MS, to_ms=to_ms)


def test_an_unreadable_file_is_refused_with_its_reason(hours: Hours) -> None:
    for file in (hours.lake.directory / "bronze" / "samples").rglob("*.parquet"):
        file.write_bytes(b"nothing")

    with pytest.raises(ReportError, match="cannot be read: "):
        ask(hours)


def test_the_program_needs_neither_java_nor_a_log(hours: Hours, tmp_path: Path) -> None:
    code, events, errors = run_report.run(
        *("drain", "--store", tmp_path / "none", "--out", tmp_path / "out"),
        *("--lake", hours.lake.directory),
        environment={"PATH": "/nowhere"},
    )

    assert code == 0, errors
    assert events[-1]["event"] == "done"


def test_the_program_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drain", "--store", "a", "--out", "b"]) == 1

    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["event"] == "failed"
    assert "set TREBUCHET_LAKE=true" in said["message"]
