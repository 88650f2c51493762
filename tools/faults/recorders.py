"""Real clients, in Java and Go, that record their operations, as `operations`.

Each is a producer and a push consumer with a separate group, in a process that survives every
broker fault: `tests/interop/java/src/Recorder.java` and `tests/interop/go/record.go`. They send
plain and delayed messages and transactions; they return some once or twice, and a few as dead
letters.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from tools.faults import operations
from tools.faults.operations import Sent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.support.java_clients import JavaClients
    from tools.faults.operations import Operation

END_SECONDS = 60.0
JAVA_LEARNS_NS = 2_000_000_000
"""It polls the name server each second."""
GO_LEARNS_NS = 32_000_000_000
"""It polls every 30 s, which can't be changed."""


class Task(NamedTuple):
    """A recorder's task: send for some seconds, or until it's asked to rest.

    `delay_ms` is the duration of delay level 1, `pause_ms` the time between two sends.
    """

    namesrv: str
    topic: str
    group: str
    history: Path
    seed: int
    seconds: int
    delay_ms: int
    pause_ms: int


class Recorder:
    """A client's process. When the block ends, it's killed if it's still running."""

    def __init__(self, task: Task, process: subprocess.Popen[str], learns_ns: int) -> None:
        self.task = task
        self._learns_ns = learns_ns
        self._process = process

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        with self._process:
            pass  # Close the pipes and wait for the process.

    def rest(self) -> None:
        """Stop its sends once the last one is answered; it still consumes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        output = ""
        # The assertion below reports how the process ended.
        with suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            # The client library may print something before.
            output = next((line for line in self._process.stdout if line == "rests\n"), "")
        assert output, f"the recorder of {self.task.group} ended with {self._process.wait()}"

    def end(self) -> None:
        """Ask it to exit, which takes some seconds."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self) -> None:
        """Wait until it has ended."""
        code = self._process.wait(END_SECONDS)
        assert code == 0, f"the recorder of {self.task.group} ended with {code}"

    def history(self, servers: Mapping[str, str] | None = None) -> list[Operation]:
        """Return its records so far; `servers` has names by address, for the answering server."""
        found: list[Operation] = []
        if not self.task.history.exists():
            return found
        for one in operations.read(self.task.history):
            if isinstance(one, Sent):
                server = (servers or {}).get(one.server, "")
                found.append(replace(one, server=server, learns_ns=self._learns_ns))
            else:
                found.append(one)
        return found


def java(clients: JavaClients, task: Task, prefix: Sequence[str] = ()) -> Recorder:
    """Start a Java client; `prefix` is a command prefix such as `ip netns exec NAME`."""
    process = clients.start("Recorder", *task, stdin=subprocess.PIPE, prefix=prefix)
    return Recorder(task, process, JAVA_LEARNS_NS)


def go(program: Path, task: Task, prefix: Sequence[str] = ()) -> Recorder:
    """Start a Go client; `program` is the executable built from tests/interop/go."""
    command = [*prefix, str(program), "record", *map(str, task)]
    # It logs each failed connection and each rollback.
    with task.history.with_suffix(".err").open("ab") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    return Recorder(task, process, GO_LEARNS_NS)
