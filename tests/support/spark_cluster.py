"""A standalone cluster of Spark's own processes, as an operator would run it elsewhere."""

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

from tests.support.ports import accepts, free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Ended = TypeVar("Ended")

SPARK_HOME = Path(pyspark.__file__).parent
SECONDS = 60
TRIES = 4
# Workers of a machine that is busy with other tests take longer than anybody is let wait for them.
SLOW = ("took the work within", "did not say within")


def patiently(run: Callable[[], Ended], said: Callable[[Ended], str]) -> Ended:
    """Return what a run ended with, the first of a few whose sentence is not of slow workers.

    They are as they were after it, and warmer: that each run waits 30 s for them, and then says so,
    has tests of its own, by a clock.
    """
    for _ in range(TRIES - 1):
        ended = run()
        if not any(sign in said(ended) for sign in SLOW):
            return ended
    return run()


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A master with workers of one core each; `secret` is the file that lets a driver in."""

    master: str
    secret: Path
    directory: Path

    def apps_of_workers(self) -> list[set[str]]:
        """Return of each worker which applications it has worked for."""
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
    log = directory / f"{name}.log"
    with log.open("ab") as output:
        return subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            cwd=directory,
            env={**environment, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
