"""Spark's tasks as the hands of the lake: the same tables, the same exactness."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from analytics.lake.ingest import Ingest
from analytics.lake.repair import verify
from analytics.lake_on_spark import SparkExecutor
from tests.analytics.lake.lakes import Lake, put_offsets
from tests.analytics.store_builder import StoreBuilder
from tests.support.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SECONDS = 300


def test_tasks_write_what_our_own_process_writes(spark: SparkSession, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", file_bytes=64 * 1024).put_many(2000)
    spoiled = builder.stored[1000]
    builder.overwrite(spoiled.commit_log_offset, b"\xff" * 8)
    builder.write()
    here = Lake(tmp_path / "here", builder.root)
    there = Lake(tmp_path / "there", builder.root)
    here.take_all()

    executor = SparkExecutor(spark.sparkContext)
    ingest = Ingest(there.place, there.source, executor, batch_bytes=150_000)
    batches = 0
    while ingest.batch() is not None:
        batches += 1

    columns = ("commit_log_offset", "topic", "properties", "store_timestamp", "store_size", "day")
    assert batches > 1
    assert there.rows(*columns) == here.rows(*columns)
    assert there.gaps() == here.gaps() != []
    assert verify(there.place, there.source).is_equal


def test_the_program_takes_what_is_new(java_17: Path, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(50)
    builder.write()

    done = subprocess.run(
        [
            *(sys.executable, "-m", "analytics.lake_on_spark", "ingest"),
            *("--store", str(builder.root), "--lake", str(tmp_path / "lake")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )

    assert done.returncode == 0, done.stderr
    assert "50 messages in 1 batches" in done.stdout
    assert Lake(tmp_path / "lake", builder.root).offsets() == put_offsets(builder)
