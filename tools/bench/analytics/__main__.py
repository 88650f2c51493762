"""`python -m tools.bench.analytics`: the cost of sources, lake and reports on this machine.

It creates a log and a lake in a temporary directory, measures, prints a line for each figure with
its target, and cleans up. Rates are by CPU time, so that other load counts little; seconds are
wall time, the best of several runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from analytics.errors import ReportError
from analytics.java import JavaMissingError, require_java
from analytics.lake.bodies import BodyRules
from analytics.lake.gold import catch_up
from analytics.lake.ingest import Ingest, Source
from analytics.lake.place import LakePlace
from analytics.lake.tables import MESSAGES
from analytics.lake.writer import ArrowWriter
from analytics.sample_log import DAY_MS, DAYS, uniq_key, write_log
from analytics.store.bulk import CompiledBulk, chosen
from analytics.store.decode import COLUMN_TYPES, RowFilter
from analytics.store.reader import StoreReader
from tools.bench.analytics.bronze import write_bronze
from tools.bench.analytics.figure import Figure
from tools.bench.analytics.pipeline import pipeline_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MESSAGES_DEFAULT = 1_000_000
ROWS_DEFAULT = 10_000_000
MESSAGES_MIN, MESSAGES_MAX = 1000, 20_000_000
GB = 1e9
BODY_OF_A_COLUMN_RUN = 1.1 * GB
CORES = 2
# When the log ends; an arbitrary time.
LAST_MS = 1_795_251_442_000
AGAIN = 3
MINUTE_MS = 60_000
_HEADERS = ("topic", "store_timestamp", "store_size", "body_size")
_EVERY_COLUMN = tuple(name for name in COLUMN_TYPES if name != "damage")
_TRAFFIC_SQL = (
    "SELECT topic, minute, messages, bytes FROM gold.traffic_minute "
    "ORDER BY messages DESC, topic, minute LIMIT 1000"
)
# Exact, and a third of the work of a sketch: there are few distinct milliseconds, counted first.
PERCENTILES_SQL = """
SELECT topic, make_timestamp(hour * 3600000000) AS hour,
    min(ms) FILTER (WHERE 100 * up_to >= 50 * in_all) AS p50,
    min(ms) FILTER (WHERE 100 * up_to >= 99 * in_all) AS p99
FROM (
    SELECT *, sum(number) OVER (alike ORDER BY ms) AS up_to, sum(number) OVER alike AS in_all
    FROM (
        SELECT topic, epoch_us(store_timestamp) // 3600000000 AS hour,
            (epoch_us(store_timestamp) - epoch_us(born_timestamp)) // 1000 AS ms, count(*) AS number
        FROM messages GROUP BY ALL
    )
    WINDOW alike AS (PARTITION BY topic, hour)
)
GROUP BY ALL
"""


def figures(directory: Path, messages: int, rows: int) -> Iterator[Figure]:
    """Measure in an empty directory, one figure after the other; DuckDB with `rows` of bronze."""
    store = directory / "store"
    log_bytes = write_log(store, messages, LAST_MS)
    reader = StoreReader(store)
    rate = log_bytes / _cpu_seconds(lambda: _headers_and_traffic(reader)) / GB * CORES
    yield Figure(
        "source, headers and traffic, warm", f"{rate:.2f} GB/s", "≥ 1 GB/s on two cores", rate >= 1
    )
    per_core = _cpu_seconds(lambda: _drained(reader, _EVERY_COLUMN))
    seconds = per_core * BODY_OF_A_COLUMN_RUN / log_bytes / CORES
    yield Figure("all columns", f"{seconds:.2f} s a 1.1 GB", "≤ 1.5 s on two cores", seconds <= 1.5)
    place = LakePlace.of(str(directory / "lake"), None, {})
    ingest = Ingest(place, Source("bench", store, None, BodyRules()))
    begun = time.process_time()
    ingested = 0
    while (batch := ingest.batch()) is not None:
        ingested += batch.rows
    rate = ingested / (time.process_time() - begun)
    yield Figure("ingest", f"{rate:,.0f} rows/s a core", "≥ 200,000", rate >= 200_000)
    look = ingest.look()
    seconds = _wall_seconds(lambda: ingest.look(look))
    yield Figure("empty check", f"{seconds:.4f} s", "≤ 0.05 s", seconds <= 0.05)
    catch_up(place, ArrowWriter())
    seconds = _wall_seconds(lambda: _query(directory, place, _TRAFFIC_SQL))
    yield Figure("SQL over gold, cold", f"{seconds:.2f} s", "≤ 1 s", seconds <= 1)
    bronze = LakePlace.of(str(directory / "bronze"), None, {})
    write_bronze(bronze, rows, LAST_MS)
    yield from _duckdb(bronze, rows)
    yield from _pipeline(directory, store)


def _read(reader: StoreReader, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([(name, COLUMN_TYPES[name]) for name in names])
    for split in reader.plan().splits:
        yield from reader.read(split, schema, RowFilter())


def _drained(reader: StoreReader, names: tuple[str, ...]) -> None:
    for _ in _read(reader, names):
        pass


def _headers_and_traffic(reader: StoreReader) -> None:
    for batch in _read(reader, _HEADERS):
        rows = pa.table(batch)
        minutes = pc.floor_temporal(rows["store_timestamp"], unit="minute")
        rows.append_column("minute", minutes).group_by(["topic", "minute"]).aggregate(
            [("store_size", "sum"), ("body_size", "sum"), ("topic", "count")]
        )


def _pipeline(directory: Path, store: Path) -> Iterator[Figure]:
    try:
        require_java()
    except JavaMissingError:
        yield Figure("the pipeline", "no Java", "-", None)
        return
    minutes = [(LAST_MS - DAYS * DAY_MS) // MINUTE_MS, LAST_MS // MINUTE_MS + 1]
    yield from pipeline_figures(directory, store, (minutes[0] * MINUTE_MS, minutes[1] * MINUTE_MS))


def _query(directory: Path, place: LakePlace, sql: str) -> None:
    limits = {"rows_max": 10_000, "bytes_max": 1 << 24, "seconds_max": 60}
    request: dict[str, object] = {"sql": sql, "zone": "UTC", "topics": None, "masks": [], **limits}
    with (directory / "rows").open("wb") as rows, (directory / "parquet").open("wb") as parquet:
        files = (rows.fileno(), parquet.fileno())
        _run(
            [
                *(sys.executable, "-m", "analytics.query", "--lake", place.uri),
                *("--rows-fd", str(files[0]), "--parquet-fd", str(files[1])),
            ],
            json.dumps(request).encode() + b"\n",
            files,
        )


def _run(command: list[str], given: bytes | None = None, files: tuple[int, ...] = ()) -> None:
    """Raises ReportError if one of our processes fails."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=files,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        if given:
            process.stdin.write(given)
            process.stdin.flush()
        # The input stays open, because a query ends with the process that started it.
        output = process.stdout.read()
        errors = process.stderr.read()
    if process.returncode:
        raise ReportError(f"{' '.join(command[1:4])} failed: {(output + errors)[-400:].decode()}")


def _duckdb(place: LakePlace, rows: int) -> Iterator[Figure]:
    files = MESSAGES.existing(place).file_uris()
    day = (datetime.fromtimestamp(LAST_MS / 1000, UTC) - timedelta(days=1)).date()
    key = uniq_key(rows // 2)
    for work, sql, values, target in (
        ("a key", "SELECT * FROM messages WHERE uniq_key = ?", [key], 0.05),
        (
            "a day",
            "SELECT topic, count(*), sum(store_size) FROM messages WHERE day = ? GROUP BY topic",
            [day],
            0.3,
        ),
        (
            "percentiles of hour and topic",
            PERCENTILES_SQL,
            [],
            1.5,
        ),
    ):
        with duckdb.connect(":memory:", config={"threads": CORES}) as connection:
            connection.read_parquet(files, hive_partitioning=True).create_view("messages")
            answer = partial(connection.sql, sql, params=values)
            seconds = _wall_seconds(lambda: answer().to_arrow_table())  # noqa: B023
        yield Figure(
            f"DuckDB, {rows:,} rows: {work}",
            f"{seconds:.3f} s",
            f"{target} s on 10,000,000",
            seconds <= target,
        )


def _cpu_seconds(work: Callable[[], object]) -> float:
    """Return the lowest CPU time of several runs."""
    return min(_timed(work, time.process_time) for _ in range(AGAIN))


def _wall_seconds(work: Callable[[], object]) -> float:
    return min(_timed(work, time.perf_counter) for _ in range(AGAIN))


def _timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    begun = clock()
    work()
    return clock() - begun


def run(messages: int, rows: int, parent: Path | None) -> None:
    """Print every figure.

    Raises:
        ReportError: one of our processes failed.
    """
    load = os.getloadavg()[0]
    twin = "compiled code" if isinstance(chosen(), CompiledBulk) else "numpy"
    _say(f"{messages:,} messages, {os.cpu_count()} cores, load {load:.1f}, read by {twin}")
    with tempfile.TemporaryDirectory(prefix="trebuchet-bench-", dir=parent) as directory:
        for figure in figures(Path(directory), messages, rows):
            _say(figure.line())


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.analytics",
        description="Measure sources, lake and reports on this machine.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--messages",
        type=int,
        default=MESSAGES_DEFAULT,
        metavar="N",
        help=f"number of messages in the log, 512 bytes each (default {MESSAGES_DEFAULT})",
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=ROWS_DEFAULT,
        metavar="N",
        help=f"number of generated bronze rows for the DuckDB queries (default {ROWS_DEFAULT})",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="directory with enough space for the log and the lake",
    )
    given = parser.parse_args(arguments)
    for name, number in (("--messages", given.messages), ("--rows", given.rows)):
        if not MESSAGES_MIN <= number <= MESSAGES_MAX:
            parser.error(f"{name} must be from {MESSAGES_MIN} to {MESSAGES_MAX}")
    try:
        run(given.messages, given.rows, given.dir)
    except (ReportError, OSError) as error:
        sys.stderr.write(f"python -m tools.bench.analytics: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
