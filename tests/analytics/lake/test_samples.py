"""bronze.samples: each hour that the collector has written, once."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from analytics.errors import LakeError
from analytics.lake.__main__ import main
from analytics.lake.jobs import LakeJobs
from analytics.lake.maintenance import maintain
from analytics.lake.rewriting import stored_files_of
from analytics.lake.samples import HOUR_MS, HOURS_AT_ONCE
from analytics.lake.status import Status
from analytics.lake.tables import SAMPLES
from analytics.lake.writer import ArrowWriter
from tests.analytics.lake.lakes import add_views, put_offsets
from tests.analytics.lake.sample_lake import Hours
from tests.support.sample_files import HOUR, put

if TYPE_CHECKING:
    from pathlib import Path


def row(hour: int, minute: int, topic: str, total: int) -> tuple[Any, ...]:
    return (hour * HOUR_MS + minute * 60_000, topic, "put", total)


@pytest.fixture
def hours(tmp_path: Path) -> Hours:
    return Hours(tmp_path)


def test_an_hour_becomes_a_row_for_each_figure_and_minute(hours: Hours) -> None:
    bucket = {
        **put("", m7=9),
        "kind": "broker",
        "topic": None,
        "name": "0",
        "metric": "put_took",
        "unit": "calls",
        "part": 3,
        "at_most_ms": 0.1,
    }
    hours.write(HOUR, put("orders", m0=5, m59=6), bucket)

    hours.take()

    assert hours.rows() == [
        row(HOUR, 0, "orders", 5),
        (HOUR * HOUR_MS + 7 * 60_000, None, "put_took", 9),
        row(HOUR, 59, "orders", 6),
    ]
    assert hours.lake.query(
        "SELECT day::VARCHAR, kind, broker, name, part, at_most_ms, is_counter, highest, weight "
        "FROM bronze.samples WHERE metric = 'put_took'"
    ) == [("2026-11-21", "broker", "broker-a", "0", 3, 0.1, True, 9, 60_000)]


def test_each_hour_is_processed_once_by_any_process(hours: Hours) -> None:
    hours.write(HOUR, put("orders", m0=5))
    hours.take()
    hours.write(HOUR + 1, put("orders", m0=7))

    hours.new()
    hours.take()
    hours.take()

    assert hours.rows() == [row(HOUR, 0, "orders", 5), row(HOUR + 1, 0, "orders", 7)]
    assert not hours.taking.waiting()


@pytest.mark.parametrize("step", ["samples written", "samples committed"])
def test_an_exit_at_any_step_neither_loses_nor_doubles_an_hour(hours: Hours, step: str) -> None:
    hours.write(HOUR, put("orders", m0=5))

    def stop_at(name: str) -> None:
        if name == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hours.new(stop_at).take()
    hours.new()
    hours.take()

    assert hours.rows() == [row(HOUR, 0, "orders", 5)]


def test_a_new_lake_loads_many_hours_in_few_commits_even_without_samples(
    hours: Hours,
) -> None:
    for number in range(HOURS_AT_ONCE + 3):
        hours.write(HOUR + number, *([put("orders", m1=number)] if number % 2 else []))

    hours.take()

    assert len(hours.rows()) == (HOURS_AT_ONCE + 3) // 2
    assert SAMPLES.existing(hours.lake.place).version() == 2
    assert not hours.taking.waiting()


def test_the_hours_of_two_histories_are_distinguished(hours: Hours) -> None:
    hours.write(HOUR + 5, put("orders", m0=1))
    hours.take()
    # Another appliance with the same file names, or a history that started over.
    hours.write(HOUR + 2, put("bills", m0=2), source="b" * 32)
    hours.new()

    hours.take()

    assert hours.rows() == [row(HOUR + 2, 0, "bills", 2), row(HOUR + 5, 0, "orders", 1)]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"no gzip", "Not a gzipped file"),
        (gzip.compress(b""), "it is empty"),
        (gzip.compress(b"{}\n"), "missing required field"),
        (gzip.compress(b'{"version": 2, "source": "a", "hour_ms": 0}\n'), "it has version 2"),
        (
            gzip.compress(
                b'{"version": 1, "source": "a", "hour_ms": 0}\n'
                + json.dumps({**put("orders", m0=1), "sums": []}).encode()
            ),
            "minutes without numbers",
        ),
        (
            gzip.compress(
                b'{"version": 1, "source": "a", "hour_ms": 0}\n'
                + json.dumps(put("orders", m60=1)).encode()
            ),
            "minutes without numbers",
        ),
    ],
    ids=["text", "empty", "no head", "newer", "uneven", "minute 60"],
)
def test_an_invalid_file_is_rejected_by_name_and_leaves_nothing_behind(
    hours: Hours, data: bytes, why: str
) -> None:
    path = hours.write(HOUR)
    path.write_bytes(data)

    with pytest.raises(LakeError) as refused:
        hours.taking.take()

    assert str(path) in str(refused.value)
    assert why in str(refused.value)
    assert hours.rows() == []


def test_a_torn_file_keeps_no_message_from_the_lake_and_is_repaired_by_deletion(
    hours: Hours,
) -> None:
    whole = hours.write(HOUR, put("orders", m0=5)).read_bytes()
    torn = hours.write(HOUR)
    torn.write_bytes(whole[:-9])
    lake = hours.lake
    jobs = LakeJobs(lake.place, ArrowWriter, samples=hours.taking)

    with pytest.raises(LakeError, match="Delete the file; the collector writes it again"):
        jobs.ingest(lake.source)
    refused = Status.of(lake.place).error
    torn.write_bytes(whole)
    jobs.ingest(lake.source)

    assert lake.offsets() == put_offsets(hours.builder)
    assert "Delete the file; the collector writes it again" in refused
    assert Status.of(lake.place).error == ""
    assert hours.rows() == [row(HOUR, 0, "orders", 5)]


def test_past_days_become_one_file_and_old_ones_are_dropped(hours: Hours) -> None:
    for number in (0, 1, 14, 15, 29):
        hours.write(HOUR + number, put("orders", m1=number))
        hours.take()
    first = datetime.fromtimestamp(HOUR * HOUR_MS / 1000, UTC).date()
    known = hours.rows()

    maintain(hours.lake.place, first + timedelta(days=5), ArrowWriter())
    tidied = hours.rows()
    files = stored_files_of(SAMPLES.existing(hours.lake.place))
    maintain(hours.lake.place, first + timedelta(days=5), ArrowWriter(), bronze_days=4)

    assert tidied == known
    assert sorted(file.day for file in files) == [first, first + timedelta(days=1)]
    assert hours.rows() == [each for each in known if each[0] >= (HOUR + 15) * HOUR_MS]
    # A dropped day isn't ingested again.
    hours.new()
    assert hours.taking.take() is None


def test_a_user_limited_to_topics_only_sees_their_samples(hours: Hours) -> None:
    of_no_topic = {**put("", m0=1), "kind": "process", "topic": None, "name": "web"}
    hours.write(HOUR, put("orders", m0=5), put("bills", m0=6), of_no_topic)
    hours.take()

    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        add_views(connection, hours.lake.place, ["orders"])
        seen = connection.execute("SELECT topic, total FROM bronze.samples").fetchall()

    assert seen == [("orders", 5)]


def test_the_commands_accept_the_collectors_data(
    hours: Hours, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hours.write(HOUR, put("orders", m0=5, m1=6))
    environment = {"TREBUCHET_DATA": str(tmp_path), "TREBUCHET_STORE": str(hours.builder.root)}

    assert main(["ingest"], environment) == 0
    assert "samples of 1 hours" in capsys.readouterr().out
    assert main(["ingest"], environment) == 0
    assert "samples" not in capsys.readouterr().out
