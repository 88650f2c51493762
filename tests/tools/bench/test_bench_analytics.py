"""`python -m tools.bench.analytics`: its log is valid, and its figures are based on it."""

from __future__ import annotations

import itertools
import subprocess
import sys
import uuid
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from analytics.lake.place import LakePlace
from analytics.lake.tables import MESSAGES
from analytics.sample_log import DAY_MS, DAYS, FILE_BYTES, uniq_key, write_log
from analytics.store.decode import COLUMN_TYPES, RowFilter
from analytics.store.reader import StoreReader
from tests.analytics.lake.lakes import Lake, rows_of
from tools.bench.analytics import __main__ as bench, pipeline
from tools.bench.analytics.bronze import write_bronze
from tools.bench.analytics.served import Done, pids_of, processor_seconds_below, pss

LAST_MS = 1_795_251_442_000
COLUMNS = ("queue_offset", "store_timestamp", "born_timestamp", "topic", "keys", "uniq_key")


def test_its_log_has_each_message_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analytics.sample_log.FILE_BYTES", 1 << 20)
    count = 5000

    size = write_log(tmp_path, count, LAST_MS)

    reader = StoreReader(tmp_path)
    schema = pa.schema([(name, COLUMN_TYPES[name]) for name in COLUMNS])
    plan = reader.plan()
    rows = pa.Table.from_batches(
        batch for split in plan.splits for batch in reader.read(split, schema, RowFilter())
    )
    stored = rows["store_timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    assert len(plan.splits) > 1
    assert size > 400 * count
    assert rows["uniq_key"].to_pylist() == [uniq_key(number) for number in range(count)]
    assert (stored[-1], stored[0]) == (LAST_MS, LAST_MS - (count - 1) * DAYS * DAY_MS // count)
    assert stored == sorted(stored)
    assert len(set(rows["topic"].to_pylist())) == 20
    assert FILE_BYTES > 1 << 20


def test_its_queues_have_each_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analytics.sample_log.FILE_BYTES", 1 << 20)
    monkeypatch.setattr("analytics.sample_log.UNITS_A_FILE", 10)
    count = 5000
    write_log(tmp_path, count, LAST_MS)
    reader = StoreReader(tmp_path)
    schema = pa.schema([(name, COLUMN_TYPES[name]) for name in ("topic", "queue_offset")])
    rows = RowFilter(topics=frozenset({"bench-07"}))

    plan = reader.plan(topics=rows.topics)

    found = pa.Table.from_batches(
        batch for part in plan.slices for batch in reader.read(part, schema, rows)
    )
    assert not plan.splits
    assert found.num_rows == count // 20
    assert sorted(found["queue_offset"].to_pylist()) == sorted(
        number // 160 for number in range(7, count, 20)
    )


def test_its_figures_are_reported_one_by_one(tmp_path: Path) -> None:
    found = list(itertools.islice(bench.figures(tmp_path, 5000, 5000), 4))

    assert [figure.work for figure in found] == [
        "source, headers and traffic, warm",
        "all columns",
        "ingest",
        "empty check",
    ]
    assert all(figure.target in figure.line() for figure in found)
    assert found[3].is_reached


def test_its_percentiles_cover_every_message() -> None:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.execute(
            "CREATE TABLE messages AS SELECT 'topic-' || (n % 3) AS topic, "
            "make_timestamp(1795251442000000 + n * 9000000) AS store_timestamp, "
            "store_timestamp - to_milliseconds(n * n % 257) AS born_timestamp FROM range(2000) t(n)"
        )
        found = connection.execute(f"{bench.PERCENTILES_SQL} ORDER BY ALL").fetchall()
        expected = connection.execute(
            "SELECT topic, date_trunc('hour', store_timestamp) AS hour, "
            "quantile_disc(ms, 0.5), quantile_disc(ms, 0.99) FROM (SELECT *, "
            "epoch_ms(store_timestamp) - epoch_ms(born_timestamp) AS ms FROM messages) "
            "GROUP BY ALL ORDER BY ALL"
        ).fetchall()

    assert len(found) > 12
    assert found == expected


@pytest.mark.parametrize("option", ["--messages", "--rows"])
@pytest.mark.parametrize("count", ["0", "999", "20000001", "many"])
def test_a_wrong_number_of_messages_is_rejected(
    option: str, count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench.main([option, count])

    assert option in capsys.readouterr().err


def test_its_bronze_has_each_message_of_its_log_once_like_an_ingest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.bench.analytics.bronze.ROWS_A_COMMIT", 2000)
    monkeypatch.setattr("tools.bench.analytics.bronze.ROWS_A_BATCH", 700)
    write_log(tmp_path / "store", 5000, LAST_MS)
    batches, made = (
        Lake(tmp_path / "taken", tmp_path / "store"),
        LakePlace.of(str(tmp_path), None, {}),
    )
    assert batches.take_all()

    write_bronze(made, 5000, LAST_MS)

    columns = (
        *("uniq_key", "topic", "queue_id", "queue_offset", "keys", "tags", "day", "body_size"),
        *("store_timestamp", "born_timestamp", "properties", "flag", "broker IS NULL"),
    )
    assert rows_of(made, MESSAGES, columns) == rows_of(batches.place, MESSAGES, columns)


def test_it_finishes_and_asks_duckdb_about_the_stated_number_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without Java, whose session takes minutes and has separate tests.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    found = list(bench.figures(tmp_path, 3000, 5000))

    assert [each.work for each in found if each.work.startswith("DuckDB")] == [
        "DuckDB, 5,000 rows: a key",
        "DuckDB, 5,000 rows: a day",
        "DuckDB, 5,000 rows: percentiles of hour and topic",
    ]
    assert (found[-1].work, found[-1].found) == ("the pipeline", "no Java")


def test_a_verdict_in_seconds_uses_cpu_time() -> None:
    jobs = [Done({}, 40.0, 2.9), Done({}, 31.0, 3.5)]

    figure = pipeline.seconds_figure("a report", jobs, 3)

    assert figure.found == "2.9 s, 31.0 by the clock"
    assert figure.is_reached


def test_a_processs_usage_includes_its_children() -> None:
    mark = uuid.uuid4().hex
    spin = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {spin!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", program, mark], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        used = processor_seconds_below(pids_of(mark))
        size = pss(Path(f"/proc/{process.pid}"))
        process.communicate(b"\n")

    assert used.keys() == {process.pid}
    assert used[process.pid] >= 0.15
    assert size > 1_000_000
    assert pss(Path(f"/proc/{process.pid}")) == 0
