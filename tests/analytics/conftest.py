"""One Spark for all tests of the reports: a JVM costs ten seconds, so they share it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from analytics import guest
from analytics.errors import ReportError
from analytics.java import require_java
from analytics.session import start_spark
from tests.support.sources import ROOT
from tests.support.spark_cluster import standalone_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from analytics.session import Spark
    from tests.support.spark_cluster import SparkCluster


@pytest.fixture(scope="session")
def java_17() -> Path:
    """The Java that Spark runs on, with the archive of Spark's classes that all runs share."""
    try:
        java = require_java()
    except ReportError as error:
        pytest.skip(str(error))
    # In a process of its own: a process has one Spark in its life.
    environment = {**os.environ, guest.VARIABLE: "false"}
    subprocess.run([sys.executable, "-m", "analytics.class_archive"], env=environment, check=True)
    return java


@pytest.fixture(scope="session")
def spark_cluster(
    java_17: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkCluster]:
    """A master and two workers."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def running_spark(java_17: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    # One task at a time and one shuffle partition: frames of three rows need no more.
    running = start_spark(
        tmp_path_factory.mktemp("spark"),
        master="local[1]",
        more={"spark.sql.shuffle.partitions": "1"},
    )
    yield running
    running.stop()


@pytest.fixture(scope="session")
def spark(running_spark: Spark) -> SparkSession:
    return running_spark.session


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Spark sources as people build them, with the build backend of the requirements."""
    directory = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-index"]
    pip += ["--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(ROOT)]
    subprocess.run(pip, check=True, capture_output=True)
    (built,) = directory.glob("*.whl")
    return built
