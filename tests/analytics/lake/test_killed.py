"""Kills of any process at any time: each message is in the lake once, and each file is complete."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from analytics.errors import LakeError
from analytics.lake.jobs import LakeJobs
from analytics.lake.place import STAGED_SUFFIX
from analytics.lake.writer import ARROW, SPARK
from analytics.spark_writer import SparkWriter
from broker_core.message import names
from tests.analytics.lake.killed_ingest import FAILED, JAVA, WORKER, WRITING, DeadlyPlace
from tests.analytics.lake.lakes import Lake, SmallBatches, put_offsets, traffic_of
from tests.analytics.lake.test_events import put_events
from tests.analytics.store_builder import START_MS, StoreBuilder
from tests.support.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from analytics.session import Spark
    from tests.analytics.store_builder import Stored

BATCH_BYTES = 4000
MESSAGES = 500
GOLD = "writing gold.traffic_minute"
KEYS = "writing gold.keys_day"
STEPS = (
    *("opened", "flushed", WRITING, "written", "noted", "committed", "checkpointed"),
    *(GOLD, "gold written", "gold committed"),
)
# The steps of Spark's processes; at the others both engines run the same code.
STEPS_OF_SPARK = (WRITING, "written", GOLD)
SECONDS_MAX = 600.0


@pytest.fixture
def store(tmp_path: Path) -> tuple[StoreBuilder, Stored]:
    """A log of many batches with a damaged record in the middle, which is returned, too."""
    builder = StoreBuilder(tmp_path / "store").put_many(MESSAGES)
    spoiled = builder.stored[MESSAGES // 2 + 10]
    builder.overwrite(spoiled.commit_log_offset, b"\xff" * 8)
    builder.write()
    return builder, spoiled


def lake_of(builder: StoreBuilder) -> Lake:
    return Lake(builder.root.parent / "lake", builder.root, batch_bytes=BATCH_BYTES)


def run(lake: Lake, engine: str, victim: str, step: str, nth: int) -> int:
    """Ingest until a process is killed; return the exit code."""
    command = [
        *(sys.executable, "-m", "tests.analytics.lake.killed_ingest"),
        *(lake.place.uri, str(lake.source.store), str(BATCH_BYTES)),
        *(engine, victim, step, str(nth)),
    ]
    return subprocess.run(command, cwd=ROOT, timeout=SECONDS_MAX).returncode


def expect_whole_files(lake: Lake) -> None:
    """Check that every file visible to a reader of the folders is complete."""
    for folder in ("bronze/messages", "bronze/events", "gold/traffic_minute"):
        for path in (lake.directory / folder).glob("**/*.parquet"):
            pq.read_table(path, partitioning=None)


def expect_each_once(
    lake: Lake, store: tuple[StoreBuilder, Stored], finish: Callable[[], object]
) -> None:
    """Check that after ingesting the rest, the lake has and counts each message once."""
    builder, spoiled = store
    finish()
    kept = [
        one for one in builder.stored if one is not spoiled and not names.is_system_topic(one.topic)
    ]
    expected = [at for at in put_offsets(builder) if at != spoiled.commit_log_offset]
    assert lake.offsets() == expected
    assert lake.traffic() == traffic_of(kept)
    assert [gap[:2] for gap in lake.gaps()] == [
        (spoiled.commit_log_offset, spoiled.commit_log_offset + spoiled.size)
    ]


def finish_here(lake: Lake) -> None:
    lake.take_all()
    lake.catch_up()


@pytest.mark.fault
@pytest.mark.parametrize(
    ("engine", "steps"),
    [
        pytest.param(ARROW, STEPS, id=ARROW),
        pytest.param(SPARK, STEPS_OF_SPARK, id=SPARK, marks=pytest.mark.spark),
    ],
)
def test_a_worker_killed_at_every_step_leaves_each_message_once(
    store: tuple[StoreBuilder, Stored], engine: str, steps: tuple[str, ...]
) -> None:
    lake = lake_of(store[0])

    for step in steps:
        # The damaged record is late enough for each step to be reached before.
        nth = 1 if step == "noted" else 2
        assert run(lake, engine, WORKER, step, nth) == -signal.SIGKILL, step
        if step == WRITING:
            assert list(lake.directory.rglob(f"*{STAGED_SUFFIX}"))
        expect_whole_files(lake)

    expect_each_once(lake, store, lambda: finish_here(lake))


@pytest.mark.fault
@pytest.mark.spark
def test_killing_sparks_java_loses_the_job_but_no_message(
    store: tuple[StoreBuilder, Stored],
) -> None:
    lake = lake_of(store[0])

    for step in STEPS_OF_SPARK:
        assert run(lake, SPARK, JAVA, step, 2) == FAILED, step
        expect_whole_files(lake)

    expect_each_once(lake, store, lambda: finish_here(lake))


@pytest.mark.fault
@pytest.mark.spark
def test_a_killed_spark_python_process_loses_the_job_but_no_message(
    running_spark: Spark, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(MESSAGES)
    put_events(builder, START_MS)
    spoiled = builder.stored[MESSAGES // 2 + 10]
    builder.overwrite(spoiled.commit_log_offset, b"\xff" * 8)
    builder.write()
    lake = lake_of(builder)
    place = DeadlyPlace.at(lake.place.uri)
    writer = SmallBatches(SparkWriter(running_spark), 20_000)
    jobs = LakeJobs(place, lambda: writer, seconds=SECONDS_MAX)

    for step in (WRITING, "writing bronze.events", GOLD, KEYS):
        place.kills(step.removeprefix("writing "), 1, None)
        with pytest.raises(LakeError):
            jobs.ingest(lake.source)
        expect_whole_files(lake)

    expect_each_once(lake, (builder, spoiled), lambda: jobs.ingest(lake.source))
