"""The real Apache Kafka, from its published jars, for comparison: one node in combined mode."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from tests.support.peer import HEAP, classpath_of
from tests.support.ports import accepts, free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

PACKAGES = ("org.apache.kafka:kafka_2.13", "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3")
"""The second makes Kafka log errors, as in its own distribution."""
CLUSTER_ID = "VHJlYnVjaGV0QmVuY2gxMg"
START_SECONDS = 240
STOP_SECONDS = 60
# The options that bin/kafka-run-class.sh passes to the server.
OPTIONS = (
    *("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)


class Kafka:
    """A broker of a published version on free loopback ports; it reuses an existing store."""

    def __init__(self, version: str, directory: Path, store: Path, **keys: object) -> None:
        self.version = version
        self.port = free_port()
        self.start_seconds = 0.0
        """How long it took until it listened."""
        self._directory = directory
        self._store = store
        self._file = directory / "server.properties"
        directory.mkdir(parents=True)
        controller = free_port()
        table: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "log.dirs": store,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            **keys,
        }
        self._file.write_text("".join(f"{key}={value}\n" for key, value in table.items()))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Kafka:
        if not self._store.exists():
            self._store.mkdir(parents=True)
            self._run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._file))
        command = [*self._java(), "kafka.Kafka", str(self._file)]
        began = time.monotonic()
        with self._output.open("ab") as output:
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        until(
            lambda: process.poll() is not None or accepts(self.port),
            "Kafka to listen",
            seconds=START_SECONDS,
        )
        self.start_seconds = time.monotonic() - began
        words = self._output.read_text(errors="replace")
        assert process.poll() is None, f"Kafka ended at its start:\n{words}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def _output(self) -> Path:
        return self._directory / "kafka.out"

    def _run(self, main: str, *arguments: str) -> None:
        with self._output.open("ab") as output:
            code = subprocess.run(
                [*self._java(), main, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        words = self._output.read_text(errors="replace")
        assert code == 0, f"{main} failed:\n{words}"

    def _java(self) -> list[str]:
        kafka, logging = PACKAGES
        jars = classpath_of(f"{kafka}:{self.version}", logging)
        return ["java", f"-Xms{HEAP}", f"-Xmx{HEAP}", *OPTIONS, "-cp", jars]
