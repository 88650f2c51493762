"""Spark's tasks and our own process write the same tables, whatever happens to a lake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from analytics.errors import LakeError
from analytics.lake.bodies import BodyRule, BodyRules
from analytics.lake.body_columns import columns_of
from analytics.lake.gold import differences
from analytics.lake.ingest import Ingest
from analytics.lake.jobs import LakeJobs
from analytics.lake.maintenance import maintain
from analytics.lake.repair import forget, rebuild, verify
from analytics.lake.rewriting import stored_files_of
from analytics.lake.silver_tables import tables_in
from analytics.lake.tables import ENGINE, MESSAGES
from analytics.lake.writer import ARROW, SPARK, ArrowWriter
from analytics.session import SECRET_FILE_VARIABLE
from analytics.spark_writer import TOKEN_PREFIX, Sight, SparkWriter, write_seen
from tests.analytics.lake.lakes import Lake, SmallBatches, put_offsets, traffic_of
from tests.analytics.lake.test_events import put_events
from tests.analytics.store_builder import START_MS, StoreBuilder
from tests.support.quick_java import QUICK_SPARK
from tests.support.sources import ROOT
from tests.support.spark_cluster import retry_slow_workers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from analytics.lake.parts import WriteTask
    from analytics.lake.writer import Writer
    from analytics.session import Spark
    from analytics.store.plan import Split
    from tests.support.spark_cluster import SparkCluster

SECONDS = 600
DAY_MS = 86_400_000
FIRST_DAY = datetime.fromtimestamp(START_MS / 1000, UTC).date()
# Columns that differ between two lakes with the same rows.
OF_THE_RUN = {"found_at", "forgotten_at"}


def put_days(builder: StoreBuilder, days: range) -> None:
    """Put messages, keys and events of each kind on some days, and a damaged record."""
    for day in days:
        at = START_MS + DAY_MS * day
        for number in range(60):
            keys = b"KEYS\x01k%d all\x02UNIQ_KEY\x01U%d" % (number % 5, number)
            builder.put(
                ("orders", "bills")[number % 2],
                queue_id=number % 3,
                # Half of the bodies aren't JSON, for silver.
                body=b'{"number": %d}' % number if number % 4 else b"x" * number,
                properties=keys + b"\x02TAGS\x01t",
                store_timestamp=at + 7_000 * number,
                born_timestamp=at + 7_000 * number - number * 97 % 4000 + 20,
            )
        put_events(builder, at + 1)
    spoiled = builder.stored[40]
    builder.overwrite(spoiled.commit_log_offset, b"\xff" * 8)
    builder.write()


def tables_of(lake: Lake) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of each table, in a fixed order."""
    found = {}
    for table in tables_in(lake.place):
        names = [name for name in table.schema.names if name not in OF_THE_RUN]
        rows = lake.query(f"SELECT {', '.join(names)} FROM {table.name}")
        found[table.name] = sorted(rows, key=repr)
    return found


def engines_of(lake: Lake, name: str) -> set[str]:
    table = next(each for each in tables_in(lake.place) if each.name == name)
    history = table.existing(lake.place).history()
    return {commit[ENGINE] for commit in history if ENGINE in commit}


@pytest.mark.spark
def test_both_engines_create_equal_tables_whatever_happens_to_the_lake(
    running_spark: Spark, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path / "store", file_bytes=64 * 1024)
    put_days(builder, range(3))
    columns = columns_of("orders", {"number": "long not null"}, is_short=True)
    rules = BodyRules({"orders": BodyRule(columns=columns)})
    writers: dict[str, Writer] = {ARROW: ArrowWriter(), SPARK: SparkWriter(running_spark)}
    lakes = {
        name: (Lake(tmp_path / name, builder.root, rules=rules), SmallBatches(writer))
        for name, writer in writers.items()
    }

    def expect_equal(step: str) -> dict[str, list[tuple[Any, ...]]]:
        here, there = (tables_of(lake) for lake, _ in lakes.values())
        for name, rows in here.items():
            assert there[name] == rows, (step, name)
        return here

    for lake, writer in lakes.values():
        jobs = LakeJobs(lake.place, lambda writer=writer: writer, seconds=SECONDS)  # type: ignore[misc]
        assert jobs.ingest(lake.source).batches > 2
    found = expect_equal("ingested")
    assert len(found["bronze.messages"]) > 150
    assert all(found[name] for name in found if name not in {"bronze.samples", "bronze.forgotten"})
    for lake, writer in lakes.values():
        assert maintain(lake.place, FIRST_DAY + timedelta(days=9), writer, bronze_days=8).merged
        files = stored_files_of(MESSAGES.existing(lake.place))
        assert {file.day for file in files} == {FIRST_DAY + timedelta(days=day) for day in (1, 2)}
        assert len(files) == 2
    expect_equal("closed and dropped")
    for lake, writer in lakes.values():
        forget(lake.place, "k3")
        rebuild(lake.place, lake.source)
        LakeJobs(lake.place, lambda writer=writer: writer, seconds=SECONDS).ingest(lake.source)  # type: ignore[misc]
    expect_equal("rebuilt without a key")
    for name, (lake, writer) in lakes.items():
        assert verify(lake.place, lake.source).is_equal
        assert differences(lake.place, MESSAGES.existing(lake.place), writer) == []
        for table in ("bronze.messages", "bronze.events", "gold.keys_day", "silver.orders"):
            # This process does repairs, which aren't part of any job.
            assert engines_of(lake, table) >= {name}


def run_ingest(
    master: str, builder: StoreBuilder, lake: Lake, secret: Path | None = None
) -> tuple[dict[str, Any], str]:
    """Let the pipeline's process ingest new data; return its last event, and its log."""
    job = ["lake", "ingest", "--store", str(builder.root), "--lake", str(lake.directory)]
    environment = {**os.environ, "TREBUCHET_SPARK_MASTER": master, **QUICK_SPARK}
    if secret is not None:
        environment[SECRET_FILE_VARIABLE] = str(secret)
    with subprocess.Popen(
        [sys.executable, "-m", "analytics", "serve"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"job": job}) + "\n")
        process.stdin.flush()
        event: dict[str, Any] = json.loads(process.stdout.readline())
        _, output = process.communicate(timeout=SECONDS)
        return event, output


@pytest.mark.spark
def test_a_cluster_of_two_workers_fills_bronze_and_gold(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path / "store", file_bytes=64 * 1024).put_many(3000)
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root)
    before = spark_cluster.apps_of_workers()

    done, text = retry_slow_workers(
        lambda: run_ingest(spark_cluster.master, builder, lake, spark_cluster.secret),
        lambda ended: str(ended[0]),
    )

    assert (done["event"], done.get("rows"), done.get("batches")) == ("done", 3000, 1), text
    assert lake.offsets() == put_offsets(builder)
    assert lake.traffic() == traffic_of(builder.stored)
    assert not list(lake.directory.glob(f"{TOKEN_PREFIX}*"))
    now = spark_cluster.apps_of_workers()
    assert all(after - old for after, old in zip(now, before, strict=True))


@contextmanager
def seen(builder: StoreBuilder, lake: Lake) -> Iterator[tuple[WriteTask, list[Split], Sight]]:
    task = lake.source.task(lake.place)
    lake.directory.mkdir()
    splits = task.reader().plan().splits
    with Sight.of(task, splits) as sight:
        yield task, splits, sight


def test_a_worker_with_access_to_lake_and_store_writes(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(50)
    builder.write()

    with seen(builder, Lake(tmp_path / "lake", builder.root)) as (task, splits, sight):
        part = write_seen(task, sight, splits)

    assert sum(file.rows for file in part.files) == 50


def test_a_worker_without_access_to_the_lake_writes_nothing(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(50)
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root)

    with seen(builder, lake) as (task, splits, sight):
        lake.directory.rename(tmp_path / "elsewhere")
        with pytest.raises(LakeError, match=r"doesn't see the lake .*/lake\. Share it"):
            write_seen(task, sight, splits)
        (tmp_path / "elsewhere").rename(lake.directory)

    assert not list(lake.directory.rglob("*part-*"))


@pytest.mark.parametrize("there", ["nothing", "another broker's store"])
def test_a_worker_without_access_to_the_store_writes_nothing(tmp_path: Path, there: str) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(50)
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root)

    with seen(builder, lake) as (task, splits, sight):
        builder.root.rename(tmp_path / "away")
        if there != "nothing":
            StoreBuilder(builder.root).put_many(60, ("other",)).write()
        with pytest.raises(LakeError, match=r"doesn't see the store .*`rocketmq`"):
            write_seen(task, sight, splits)

    assert not list(lake.directory.rglob("*part-*"))


@pytest.mark.spark
def test_a_failing_task_leaves_no_file_but_an_explanation(
    running_spark: Spark, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(50)
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root)
    (tmp_path / "lake" / "bronze" / "messages").mkdir(parents=True)
    (tmp_path / "lake" / "bronze" / "messages" / "_staging").write_text("in the way")

    with pytest.raises(LakeError):
        Ingest(lake.place, lake.source, SparkWriter(running_spark)).batch()
    (tmp_path / "lake" / "bronze" / "messages" / "_staging").unlink()

    batches = Ingest(lake.place, lake.source, SparkWriter(running_spark)).batch()
    assert batches is not None
    assert lake.offsets() == put_offsets(builder)
