"""One shared Spark for all report tests, because starting a JVM takes ten seconds."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from analytics.errors import ReportError
from analytics.java import require_java
from analytics.session import start_spark
from analytics.sources.commitlog import CommitLogDataSource
from analytics.sources.rocketmq import RocketMqDataSource
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
    """The Java that Spark runs on."""
    try:
        return require_java()
    except ReportError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark_cluster(
    java_17: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkCluster]:
    """A master and two workers."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def running_spark(java_17: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    # One task at a time and one shuffle partition, which suffices for frames of three rows.
    running = start_spark(
        tmp_path_factory.mktemp("spark"),
        master="local[1]",
        more={"spark.sql.shuffle.partitions": "1"},
    )
    yield running
    # Frames collected later have no Java process to notify, which py4j would log.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    running.stop()


@pytest.fixture(scope="session")
def spark(running_spark: Spark) -> SparkSession:
    """The session with our data sources registered."""
    for source in (CommitLogDataSource, RocketMqDataSource):
        running_spark.session.dataSource.register(source)
    return running_spark.session


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the Spark sources, built with the build backend of the requirements."""
    directory = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-index"]
    pip += ["--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(ROOT)]
    subprocess.run(pip, check=True, capture_output=True)
    (built,) = directory.glob("*.whl")
    return built
