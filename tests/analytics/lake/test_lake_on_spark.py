"""Spark's tasks as the hands of the lake: the same tables, the same exactness."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from analytics.errors import LakeError
from analytics.lake.ingest import Ingest
from analytics.lake.repair import verify
from analytics.lake_on_spark import TOKEN_PREFIX, Sight, SparkExecutor, write_seen
from analytics.session import SECRET_FILE_VARIABLE
from tests.analytics.lake.lakes import Lake, put_offsets, traffic_of
from tests.analytics.store_builder import StoreBuilder
from tests.support.sources import ROOT
from tests.support.spark_cluster import patiently

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.lake.parts import WriteTask
    from analytics.session import Spark
    from analytics.store.plan import Split
    from tests.support.spark_cluster import SparkCluster

SECONDS = 600


@pytest.mark.spark
def test_tasks_write_what_our_own_process_writes(running_spark: Spark, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", file_bytes=64 * 1024).put_many(2000)
    spoiled = builder.stored[1000]
    builder.overwrite(spoiled.commit_log_offset, b"\xff" * 8)
    builder.write()
    here = Lake(tmp_path / "here", builder.root)
    there = Lake(tmp_path / "there", builder.root)
    here.take_all()

    executor = SparkExecutor(running_spark)
    ingest = Ingest(there.place, there.source, executor, batch_bytes=150_000)
    batches = 0
    while ingest.batch() is not None:
        batches += 1

    columns = ("commit_log_offset", "topic", "properties", "store_timestamp", "store_size", "day")
    assert batches > 1
    assert there.rows(*columns) == here.rows(*columns)
    assert there.gaps() == here.gaps() != []
    assert verify(there.place, there.source).is_equal


def ingest_on(
    cluster: SparkCluster, builder: StoreBuilder, lake: Lake
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "analytics.lake_on_spark", "ingest"),
            *("--store", str(builder.root), "--lake", str(lake.directory)),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "TREBUCHET_SPARK_MASTER": cluster.master,
            # A guest waits for as long as anybody else has work.
            "TREBUCHET_SPARK_GUEST": "false",
            SECRET_FILE_VARIABLE: str(cluster.secret),
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.mark.spark
def test_a_cluster_of_two_workers_fills_bronze_and_gold(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path / "store", file_bytes=64 * 1024).put_many(3000)
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root)
    before = spark_cluster.apps_of_workers()

    done = patiently(
        lambda: ingest_on(spark_cluster, builder, lake), lambda ended: str(ended.stderr)
    )

    assert done.returncode == 0, done.stderr
    assert "3000 messages in 1 batches" in done.stdout
    assert lake.offsets() == put_offsets(builder)
    assert lake.traffic() == traffic_of(builder.stored)
    assert not list(lake.directory.glob(f"{TOKEN_PREFIX}*"))
    now = spark_cluster.apps_of_workers()
    assert all(after - old for after, old in zip(now, before, strict=True))


def seen(builder: StoreBuilder, lake: Lake) -> tuple[WriteTask, list[Split]]:
    task = lake.source.task(lake.place)
    lake.directory.mkdir()
    return task, task.reader().plan().splits


def test_a_worker_that_sees_lake_and_store_writes(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(50)
    builder.write()
    task, splits = seen(builder, Lake(tmp_path / "lake", builder.root))

    with Sight.of(task, splits) as sight:
        part = write_seen(task, sight, splits)

    assert sum(file.rows for file in part.files) == 50


def test_a_worker_that_does_not_see_the_lake_writes_nothing(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(50)
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root)
    task, splits = seen(builder, lake)

    with Sight.of(task, splits) as sight:
        lake.directory.rename(tmp_path / "elsewhere")
        with pytest.raises(LakeError, match=r"does not see the lake .*/lake: each worker"):
            write_seen(task, sight, splits)
        (tmp_path / "elsewhere").rename(lake.directory)

    assert not list(lake.directory.rglob("*.parquet"))


@pytest.mark.parametrize("there", ["nothing", "another broker's store"])
def test_a_worker_that_does_not_see_the_store_writes_nothing(tmp_path: Path, there: str) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(50)
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root)
    task, splits = seen(builder, lake)

    with Sight.of(task, splits) as sight:
        builder.root.rename(tmp_path / "away")
        if there != "nothing":
            StoreBuilder(builder.root).put_many(60, ("other",)).write()
        with pytest.raises(LakeError, match=r"does not see the store .*`rocketmq`"):
            write_seen(task, sight, splits)

    assert not list(lake.directory.rglob("*.parquet"))
