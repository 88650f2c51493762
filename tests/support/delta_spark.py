"""delta-spark and Iceberg, whose releases need an older Spark than ours.

The jars come from Maven. The older Spark comes from PyPI (455 MB) and is unpacked, not installed,
so that no environment has two versions. Both stay in the test cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from analytics.low_priority import JAVA_OPTIONS
from tests.support.broker_process import ROOT
from tests.support.peer import classpath_of

if TYPE_CHECKING:
    from pathlib import Path

DELTA = "io.delta:delta-spark_2.13:4.2.0"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
# Spark includes their other dependencies.
JARS_OF = ("io/delta/", "io/unitycatalog/", "org/apache/iceberg/")
SPARK = "pyspark-4.1.1"
SPARK_HASH = "77f78984aa84fbe865c717dd37b49913b4e5c97d76ef6824f932f1aefa6621ec"
CACHE = ROOT / ".pytest_cache"
DOWNLOAD_SECONDS = 600
QUERY_SECONDS = 300
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": f"'{JAVA_OPTIONS}'",
}


def answer(script: Path, directory: Path, *arguments: str) -> Any:
    """Run a script with a SparkSession that has both; return the JSON of its last line.

    Spark writes its files to `directory`.
    """
    spark = unpacked()
    jars = [
        jar
        for jar in classpath_of(DELTA, ICEBERG).split(":")
        if any(each in jar for each in JARS_OF)
    ]
    options = {**SETTINGS, "spark.jars": ",".join(jars), "spark.local.dir": str(directory)}
    options["spark.sql.warehouse.dir"] = str(directory / "warehouse")
    words = [part for item in options.items() for part in ("--conf", "=".join(item))]
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark / "deps"),
        "PYTHONPATH": str(spark),
        "PYSPARK_PYTHON": sys.executable,
        "TZ": "UTC",
        "PYSPARK_SUBMIT_ARGS": " ".join(["--master", "local[1]", *words, "pyspark-shell"]),
    }
    ran = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=QUERY_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def unpacked() -> Path:
    """Return the directory of delta-spark's Spark, downloading it from PyPI if needed."""
    home = CACHE / SPARK
    if home.is_dir():
        return home
    CACHE.mkdir(exist_ok=True)
    target = CACHE / f"{SPARK}.txt"
    target.write_text(f"{SPARK.replace('-', '==')} --hash=sha256:{SPARK_HASH}\n")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
            *("--no-build-isolation", "--dest", str(CACHE), "--requirement", str(target)),
        ],
        timeout=DOWNLOAD_SECONDS,
        check=True,
    )
    archive = CACHE / f"{SPARK}.tar.gz"
    unpacking = CACHE / "unpacking"
    unpacking.mkdir(exist_ok=True)
    subprocess.run(["tar", "xzf", archive, "-C", unpacking], timeout=DOWNLOAD_SECONDS, check=True)
    (unpacking / SPARK).rename(home)
    archive.unlink()
    return home
