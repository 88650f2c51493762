"""A standalone Spark cluster with Spark's own processes, as an operator would run it."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyspark

from analytics.low_priority import JAVA_OPTIONS
from tests.support.ports import accepts, free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Ended = TypeVar("Ended")

SPARK_HOME = Path(pyspark.__file__).parent
SECONDS = 60
TRIES = 4
# On a machine that is busy with other tests, workers may exceed the time limits.
SLOW = ("accepted work within", "didn't report within")


def retry_slow_workers(run: Callable[[], Ended], text: Callable[[Ended], str]) -> Ended:
    """Return the first outcome in a few attempts that isn't a slow-worker message.

    The workers stay as they are between attempts, only warmer. Other tests cover the 30 s limit and
    its message, with a manual clock.
    """
    for _ in range(TRIES - 1):
        ended = run()
        if not any(sign in text(ended) for sign in SLOW):
            return ended
    return run()


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A master with workers of one core each; `secret` is the file that authenticates a driver."""

    master: str
    secret: Path
    directory: Path

    def apps_of_workers(self) -> list[set[str]]:
        """Return the applications that each worker has run."""
        return [
            {path.name for path in work.iterdir()} for work in sorted(self.directory.glob("work-*"))
        ]


@contextmanager
def standalone_cluster(directory: Path, workers: int = 2) -> Iterator[SparkCluster]:
    port = free_port()
    secret = directory / "secret"
    secret.write_text(secrets.token_hex(16))
    secret.chmod(0o600)
    settings = directory / "cluster.conf"
    settings.write_text(
        f"spark.authenticate true\nspark.authenticate.secret {secret.read_text()}\n"
        "spark.network.crypto.enabled true\nspark.ui.enabled false\n"
    )
    common = ("--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(settings))
    cluster = SparkCluster(f"spark://127.0.0.1:{port}", secret, directory)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.append(_daemon(directory, "master.Master", "--port", str(port), *common))
        until(lambda: accepts(port), "Spark's master", seconds=SECONDS)
        for number in range(workers):
            work = directory / f"work-{number}"
            work.mkdir()
            limits = ("--work-dir", str(work), "--cores", "1", "--memory", "1g")
            processes.append(_daemon(directory, "worker.Worker", *limits, *common, cluster.master))
        yield cluster
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=SECONDS)


def _daemon(directory: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {
        key: value
        for key, value in os.environ.items()
        if not re.match("SPARK_|PYSPARK_|PYTHONPATH", key)
    }
    environment |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
    }
    log = directory / f"{name}.log"
    with log.open("ab") as output:
        return subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            cwd=directory,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
