"""The cost of the pipeline's one Spark session: start, reports, ingest, memory, other processes.

Verdicts on seconds use CPU time; wall time is printed next to it.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from analytics.class_archive import VARIABLE as CLASSES
from analytics.errors import ReportError
from analytics.lake.bodies import BodyRules
from analytics.lake.gold import catch_up
from analytics.lake.ingest import Ingest, Source
from analytics.lake.place import LakePlace
from analytics.pipeline import WarmSpark
from tests.support.spark_cluster import standalone_cluster
from tools.bench.analytics.figure import Figure
from tools.bench.analytics.sends import SENDS_A_SECOND, broker, p99_ms
from tools.bench.analytics.served import Served, pids_of, processor_seconds_below, pss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.bench.analytics.served import Done

BROKER = "bench"
AGAIN = 5
TURNS = 3
SENDS_SECONDS = 10.0
# As often as Celery beat polls (console/data/reports/beat.py).
LOOK_SECONDS = 30.0
LOOKS = 3
BATCHES = 6
REST_SECONDS = 8.0
SIMULATION_SECONDS_MAX = 600
MB = 1_000_000
ROOT = Path(__file__).parents[3]
SIMULATION = "tests/analytics/lake/test_constant_load.py"
EXECUTOR = "CoarseGrainedExecutorBackend"


def pipeline_figures(directory: Path, store: Path, span_ms: tuple[int, int]) -> Iterator[Figure]:
    """Measure the pipeline's service to a page and a lake; `span_ms` are whole minutes."""
    data = directory / "pipeline"
    data.mkdir()
    log = directory / "pipeline.log"
    environment = {
        "TREBUCHET_DATA": str(data),
        "TREBUCHET_LAKE_BROKER": BROKER,
        CLASSES: os.environ.get(CLASSES, str(data / "spark-classes")),
    }
    from_log = ("traffic", "--store", store, "--out", data / "out")
    from_gold = (*from_log, "--lake", data / "lake", "--from", span_ms[0], "--to", span_ms[1])
    with Served(log, environment) as served:
        served.job(*from_log)
        # Java writes its class archive now, if there is none yet.
        served.end_in_order()
    starts = []
    for _ in range(AGAIN):
        with Served(log, environment) as served:
            starts.append(served.job(*from_log))
    yield seconds_figure("traffic report, first run after start", starts, 12)
    with Served(log, environment) as served:
        served.job(*from_log)
        _fill(served, ("--lake", data / "lake", "--store", store))
        for work, words, target in (
            ("traffic report, warm, from gold", from_gold, 3),
            ("traffic report, warm, from the log", from_log, 6),
        ):
            found = [served.job(*words) for _ in range(AGAIN)]
            _require_reads(data / "out", "gold" if words is from_gold else "log")
            yield seconds_figure(work, found, target)
        yield from _beside_sends(directory, served, from_log)
        memory = served.memory_max
    worker = _memory_of("console.data.pipeline.worker", data)
    standby = _memory_of("console.data.pipeline.standby", data)
    yield Figure(
        "memory, idle", f"{standby / MB:.0f} MB", "≤ 20 MB", standby <= 20 * MB if standby else None
    )
    yield Figure(
        "memory, working: Spark with its worker",
        f"{memory / MB:.0f} + {worker / MB:.0f} MB",
        "≤ 1,200 MB",
        memory + worker <= 1200 * MB,
    )
    yield from _ingest_rates(data, store)
    yield _three_days()
    yield _two_workers(directory, store, environment)


def seconds_figure(work: str, found: list[Done], target: float) -> Figure:
    used = min(one.processor_seconds for one in found)
    best = min(one.seconds for one in found)
    return Figure(work, f"{used:.1f} s, {best:.1f} by the clock", f"≤ {target} s", used <= target)


def _require_reads(out: Path, target: str) -> None:
    """Raises ReportError if a report read anything other than its input."""
    engine = json.loads((out / "result.json").read_text())["engine"]
    if not engine["reads"].startswith(target):
        raise ReportError(f"the report read {engine['reads']}: {engine['because']}")


def _fill(served: Served, lake: tuple[object, ...]) -> None:
    while not served.job("lake", "ingest", "--broker", BROKER, *lake).event["is_all"]:
        pass


def _ingest_rates(directory: Path, store: Path) -> Iterator[Figure]:
    """Measure a warm session in this process, which can distinguish bronze from gold."""
    place = LakePlace.of(str(directory / "rates"), None, {})
    spark = WarmSpark({"TREBUCHET_DATA": str(directory)})
    try:
        writer = spark.writer()
        ingest = Ingest(place, Source(BROKER, store, None, BodyRules()), writer)
        rates: list[tuple[float, float]] = []
        for _ in range(BATCHES):
            before = _used_here()
            batch = ingest.batch()
            between = _used_here()
            if batch is None:
                break
            catch_up(place, writer)
            rates.append((batch.rows / (between - before), batch.rows / (_used_here() - before)))
    finally:
        spark.close()
    bronze, both = (max(found) for found in zip(*rates, strict=True))
    found = f"{bronze:,.0f} rows/s a core"
    yield Figure("ingest on Spark, warm, into bronze", found, "≥ 150,000", bronze >= 150e3)
    found = f"{both:,.0f} rows/s a core"
    yield Figure("the same with gold", found, "≥ 150,000", both >= 150e3)


def _used_here() -> float:
    """Return the CPU time of this process and its Java and Python workers."""
    here = os.getpid()
    return processor_seconds_below({here})[here]


def _beside_sends(directory: Path, served: Served, report: tuple[object, ...]) -> Iterator[Figure]:
    """Measure sends while the pipeline works, and the pipeline during sends."""
    lake = directory / "beside"
    with broker(directory / "broker") as namesrv_addr:
        store = directory / "broker" / "store"
        ingest = ("lake", "ingest", "--broker", BROKER, "--lake", lake, "--store", store)
        idle, busy = [], []
        for _ in range(TURNS):
            idle.append(p99_ms(namesrv_addr, SENDS_SECONDS))
            with _working(served, report, ingest):
                busy.append(p99_ms(namesrv_addr, SENDS_SECONDS))
        still, loaded = statistics.median(idle), statistics.median(busy)
        yield Figure(
            f"sends' p99 at {SENDS_A_SECOND:,}/s beside the pipeline",
            f"{loaded:.1f} ms, idle {still:.1f}",
            "≤ twice the idle value",
            loaded <= 2 * still,
        )
        sends = threading.Thread(target=p99_ms, args=(namesrv_addr, LOOK_SECONDS * (LOOKS + 1)))
        sends.start()
        longest = 0.0
        for _ in range(LOOKS):
            newest = _newest(lake)
            time.sleep(LOOK_SECONDS)
            served.job(*ingest)
            longest = max(longest, (datetime.now(UTC) - newest).total_seconds())
        sends.join()
        yield Figure(
            f"ingest delay at {SENDS_A_SECOND:,}/s", f"{longest:.0f} s", "≤ 90 s", longest <= 90
        )


@contextmanager
def _working(served: Served, *jobs: tuple[object, ...]) -> Iterator[None]:
    """Run pipeline jobs one after the other until the block ends."""
    ends = threading.Event()
    errors: list[Exception] = []

    def work() -> None:
        try:
            while not ends.is_set():
                for words in jobs:
                    served.job(*words)
        except ReportError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
    if errors:
        raise errors[0]


def _newest(lake: Path) -> datetime:
    """Return the store time of the newest message in a lake."""
    table = DeltaTable(str(lake / "bronze" / "messages")).to_pyarrow_dataset()
    newest: datetime = max(table.to_table(columns=["store_timestamp"])[0].to_pylist())
    return newest


def _memory_of(module: str, data: Path) -> int:
    """Return the resident memory of one of our processes that waits for a Redis."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "TREBUCHET_DATA": str(data),
        "TREBUCHET_REDIS_URL": f"redis+socket://{data / 'redis.sock'}",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(REST_SECONDS)
    try:
        return pss(Path(f"/proc/{process.pid}"))
    finally:
        process.kill()
        process.wait()


def _three_days() -> Figure:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", SIMULATION],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SIMULATION_SECONDS_MAX,
        check=False,
    )
    files = [int(number) for number in re.findall(r"files_per_day=(\d+)", ran.stdout)]
    return Figure(
        "three days at 0.58 TB/day, simulated",
        f"{max(files, default=0)} files a day",
        "≤ 500, upkeep current",
        ran.returncode == 0,
    )


def _two_workers(directory: Path, store: Path, environment: dict[str, str]) -> Figure:
    """Measure by CPU time how evenly two workers share an ingest.

    With one worker per core an ingest takes the time of its driver and the busier worker; with one
    worker, that of the driver and both.
    """
    place = directory / "cluster"
    place.mkdir()
    with standalone_cluster(place) as cluster:
        variables = {
            **environment,
            "TREBUCHET_SPARK_MASTER": cluster.master,
            "TREBUCHET_SPARK_SECRET_FILE": str(cluster.secret),
        }
        with Served(directory / "pipeline.log", variables) as served:
            lake = ("--lake", directory / "shared", "--store", store)
            words = ("lake", "ingest", "--broker", BROKER, *lake)
            served.job(*words)
            before = processor_seconds_below(pids_of(EXECUTOR))
            driver = 0.0
            while True:
                done = served.job(*words)
                driver += done.processor_seconds
                if done.event["is_all"]:
                    break
            after = processor_seconds_below(pids_of(EXECUTOR))
    workers = [after[pid] - before.get(pid, 0.0) for pid in after]
    alone, together = driver + sum(workers), driver + max(workers, default=0.0)
    return Figure(
        "ingest by two workers instead of one",
        f"{alone / together:.2f} times",
        "1.7 times",
        alone >= 1.7 * together,
    )
