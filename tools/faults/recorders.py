"""Real clients, in Java and Go, that write down what they do and see, as `operations`.

Each is a producer and a push consumer of a group of its own, in a process that goes on whatever
happens to the broker: `tests/interop/java/src/Recorder.java` and `tests/interop/go/record.go`. They
send plain and delayed messages and transactions; they give some back once or twice, and a few as
dead letters.
"""

from __future__ import annotations

import subprocess
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
"""It asks the name server each second."""
GO_LEARNS_NS = 32_000_000_000
"""It asks each half minute, and cannot be told otherwise."""


class Task(NamedTuple):
    """What a recorder is to do: send for so many seconds, or until it is to rest.

    `delay_ms` is what delay level 1 takes there, `pause_ms` lies between two sends.
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
    """A client's process. When the block ends it is killed, if it has not ended by itself."""

    def __init__(self, task: Task, process: subprocess.Popen[str], learns_ns: int) -> None:
        self.task = task
        self._learns_ns = learns_ns
        self._process = process

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        with self._process:
            pass  # Its pipes are closed, and it is waited for.

    def rest(self) -> None:
        """Have it send no more, once it has the answer to what it sent last; it still consumes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        # Its library may say something before.
        said = next((line for line in self._process.stdout if line == "rests\n"), "")
        assert said, f"the recorder of {self.task.group} ended with {self._process.wait()}"

    def end(self) -> None:
        """Have it end by itself; it takes some seconds to say goodbye."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self) -> None:
        """Wait until it has ended."""
        code = self._process.wait(END_SECONDS)
        assert code == 0, f"the recorder of {self.task.group} ended with {code}"

    def history(self, servers: Mapping[str, str] | None = None) -> list[Operation]:
        """Return what it wrote down until now; `servers` has names by address, for who answered."""
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
    """Start a Java client; `prefix` is what runs the command, such as `ip netns exec NAME`."""
    process = clients.start("Recorder", *task, stdin=subprocess.PIPE, prefix=prefix)
    return Recorder(task, process, JAVA_LEARNS_NS)


def go(program: Path, task: Task, prefix: Sequence[str] = ()) -> Recorder:
    """Start a Go client, `program` being what tests/interop/go builds."""
    command = [*prefix, str(program), "record", *map(str, task)]
    # It says each failed connection and each roll back.
    with task.history.with_suffix(".err").open("ab") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    return Recorder(task, process, GO_LEARNS_NS)
