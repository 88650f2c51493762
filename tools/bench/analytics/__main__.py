"""`python -m tools.bench.analytics`: what sources, lake and reports take on this machine.

It makes a log and a lake in a directory of its own, measures, prints a line for each figure with
what is to be reached, and takes everything away again. Rates are by processor time, so that others
on the machine count little; seconds are by the clock, the best of several.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from analytics import class_archive
from analytics.errors import ReportError
from analytics.java import JavaMissingError, require_java
from analytics.lake.bodies import BodyRules
from analytics.lake.gold import bring_up
from analytics.lake.ingest import Ingest, Source
from analytics.lake.place import LakePlace
from analytics.lake.tables import MESSAGES
from analytics.sample_log import uniq_key, write_log
from analytics.store.bulk import CompiledBulk, chosen
from analytics.store.decode import COLUMN_TYPES, RowFilter
from analytics.store.reader import StoreReader
from tools.bench.analytics.bronze import write_bronze
from tools.bench.analytics.sends import broker, p99_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

MESSAGES_DEFAULT = 1_000_000
ROWS_DEFAULT = 10_000_000
MESSAGES_MIN, MESSAGES_MAX = 1000, 20_000_000
GB = 1e9
BODY_OF_A_COLUMN_RUN = 1.1 * GB
CORES = 2
# When the log ends: as good as any time.
LAST_MS = 1_795_251_442_000
AGAIN = 3
SENDS_SECONDS = 10.0
_BESIDE, _TWICE = "sends' p99 at 2,000/s, {} beside them", "≤ twice as idle"
_HEADERS = ("topic", "store_timestamp", "store_size", "body_size")
_EVERY_COLUMN = tuple(name for name in COLUMN_TYPES if name != "damage")
_TRAFFIC_SQL = (
    "SELECT topic, minute, messages, bytes FROM gold.traffic_minute "
    "ORDER BY messages DESC, topic, minute LIMIT 1000"
)
# Exact, and a third of the work of a sketch: milliseconds that occur are few, and counted first.
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


@dataclass(frozen=True, slots=True)
class Figure:
    """One line: what was done, what it took, and what is to be reached."""

    work: str
    found: str
    wanted: str
    is_reached: bool | None

    def line(self) -> str:
        sign = {True: "yes", False: "no", None: "-"}[self.is_reached]
        return f"{self.work:<52} {self.found:>26}   {self.wanted:<24} {sign}"


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
    with place.locked():
        bring_up(place)
    yield from _reports(directory, store, place)
    bronze = LakePlace.of(str(directory / "bronze"), None, {})
    write_bronze(bronze, rows, LAST_MS)
    yield from _duckdb(bronze, rows)
    yield from _sends(directory)


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


def _reports(directory: Path, store: Path, place: LakePlace) -> Iterator[Figure]:
    work = "traffic report, cold, from the log"
    try:
        require_java()
    except JavaMissingError:
        yield Figure(work, "no Java", "≤ 12 s", None)
    else:
        # An appliance's worker has made it before anybody asks for a report.
        os.environ[class_archive.VARIABLE] = str(directory / "classes")
        _run([sys.executable, "-m", "analytics.class_archive"])
        begun = time.perf_counter()
        arguments = ("traffic", "--store", str(store), "--out", str(directory / "out"))
        _run([sys.executable, "-m", "analytics", *arguments])
        seconds = time.perf_counter() - begun
        yield Figure(work, f"{seconds:.1f} s", "≤ 12 s", seconds <= 12)
    seconds = _wall_seconds(lambda: _query(directory, place, _TRAFFIC_SQL))
    yield Figure("traffic, cold, from gold", f"{seconds:.2f} s", "≤ 1 s", seconds <= 1)


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
    """Raises ReportError where a process of ours fails."""
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
        # Its input stays open: a query ends with whoever started it.
        said = process.stdout.read()
        errors = process.stderr.read()
    if process.returncode:
        raise ReportError(f"{' '.join(command[1:4])} failed: {(said + errors)[-400:].decode()}")


def _duckdb(place: LakePlace, rows: int) -> Iterator[Figure]:
    files = MESSAGES.existing(place).file_uris()
    day = (datetime.fromtimestamp(LAST_MS / 1000, UTC) - timedelta(days=1)).date()
    key = uniq_key(rows // 2)
    for work, sql, values, wanted in (
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
            f"{wanted} s on 10,000,000",
            seconds <= wanted,
        )


def _sends(directory: Path) -> Iterator[Figure]:
    store = directory / "store"
    with broker(directory / "broker", (_free_port(), _free_port())) as namesrv_addr:
        lakes = _again("analytics.lake", "ingest", "--lake", directory / "lakes", "--store", store)
        yield _beside(namesrv_addr, "ingest", lakes, SENDS_SECONDS / AGAIN)
        try:
            require_java()
        except JavaMissingError:
            yield Figure(_BESIDE.format("a report"), "no Java", _TWICE, None)
            return
        reports = _again("analytics", "traffic", "--out", directory / "outs", "--store", store)
        # A whole report, from the start of its Java on.
        yield _beside(namesrv_addr, "a report", reports, SENDS_SECONDS)


def _beside(
    namesrv_addr: str,
    what: str,
    working: Callable[[], AbstractContextManager[None]],
    seconds: float,
) -> Figure:
    """Measure sends in turn without and with work beside them, so that both have the same day."""
    idle: list[float] = []
    busy: list[float] = []
    for _ in range(AGAIN):
        idle.append(p99_ms(namesrv_addr, seconds))
        with working():
            busy.append(p99_ms(namesrv_addr, seconds))
    still, loaded = statistics.median(idle), statistics.median(busy)
    return Figure(
        _BESIDE.format(what),
        f"{loaded:.1f} ms, idle {still:.1f}",
        _TWICE,
        loaded <= 2 * still,
    )


def _again(
    module: str, verb: str, target_option: str, targets: Path, *more: str | Path
) -> Callable[[], AbstractContextManager[None]]:
    """Return what has a guest, as an appliance's are, run one command after the other meanwhile.

    Each has a target of its own.
    """
    command = (
        "import itertools, subprocess, sys\n"
        "from analytics.guest import step_back\n"
        "step_back()\n"
        "module, verb, option, targets, *more = sys.argv[1:]\n"
        "for number in itertools.count():\n"
        "    target = f'{targets}/{number}'\n"
        "    command = [sys.executable, '-m', module, verb, option, target, *more]\n"
        "    if subprocess.run(command).returncode:\n"
        "        sys.exit(1)\n"
    )
    arguments = (module, verb, target_option)

    @contextmanager
    def working() -> Iterator[None]:
        directory = tempfile.mkdtemp(dir=targets.parent)
        # What is killed in its midst complains: that is of interest only where it ended by itself.
        with tempfile.TemporaryFile() as words:
            process = subprocess.Popen(
                [sys.executable, "-c", command, *arguments, directory, *map(str, more)],
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
            try:
                yield
                if process.poll() is not None:
                    words.seek(0)
                    said = words.read().decode(errors="replace").splitlines() or ["nothing"]
                    raise ReportError(f"{module} {verb} failed, and said: {said[-1]}")
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    return working


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _cpu_seconds(work: Callable[[], object]) -> float:
    """Return the least processor time of several runs."""
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
        ReportError: a process of ours failed.
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
        help=f"how many messages the log has, half a kilobyte each (default {MESSAGES_DEFAULT})",
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=ROWS_DEFAULT,
        metavar="N",
        help="how many rows of bronze DuckDB is asked about, made without a log "
        f"(default {ROWS_DEFAULT})",
    )
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="where there is room for log and lake"
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
