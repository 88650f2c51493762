"""A Spark Connect server with Spark's own processes, as an operator would run it.

It has PySpark and our dependencies but not our code, which the client must upload.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from analytics.low_priority import JAVA_OPTIONS
from tests.support.ports import accepts, free_port
from tests.support.spark_cluster import SECONDS, SPARK_HOME
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """Run a server until the block ends; yield its address, `sc://host:port`."""
    port = free_port()
    settings = directory / "server.conf"
    settings.write_text(
        "spark.connect.grpc.binding.address 127.0.0.1\n"
        f"spark.connect.grpc.binding.port {port}\n"
        "spark.driver.bindAddress 127.0.0.1\nspark.ui.enabled false\n"
        f"spark.driver.extraJavaOptions {JAVA_OPTIONS}\n"
        f"spark.local.dir {directory}\nspark.sql.warehouse.dir {directory / 'warehouse'}\n"
    )
    environment = {
        key: value
        for key, value in os.environ.items()
        if not re.match("SPARK_|PYSPARK_|PYTHONPATH", key)
    }
    with (directory / "server.log").open("ab") as output:
        server = subprocess.Popen(
            [
                *(SPARK_HOME / "bin" / "spark-submit", "--class", CLASS, "--master", "local[2]"),
                *("--properties-file", str(settings), "spark-internal"),
            ],
            cwd=directory,
            env={**environment, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: accepts(port), "the Spark Connect server", seconds=SECONDS)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=SECONDS)
