"""The lower bound for all brokers: a C program that only receives, stores and answers.

The program's cost is that of the kernel for the same requests from the same load generator, so
that the rest of a broker's cost is due to the broker. `floor.c` lists the omissions.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.ports import accepts, free_port
from tests.support.waiting import until
from tools.bench import loads
from tools.bench.cells import FLUSH, KIB, REQUESTS, Cell, a_send

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).with_suffix(".c")
SENDS = {"send-1", "send-64", "send-256", "send-16x16", "send-64x1", "small-4x64"}
TAKES_PART = (
    SENDS
    | {"batch-100", "batch-1k", "pull-32", "pull-1"}
    | {
        "flush-1",
        "flush-64",
        "flush-16x16",
    }
)
FILLED = Cell("filled", "", (a_send(KIB),), window=32)
FILLED_SECONDS = 0.3


def cell_of(cell: Cell) -> Cell | None:
    """Return a cell adapted to the floor, or None if answers depend on earlier sends."""
    is_known = cell.kind == REQUESTS and (cell.key in TAKES_PART or not cell.name)
    return cell if is_known else None


@functools.cache
def build() -> Path:
    """Compile the program; return its path."""
    program = Path(tempfile.mkdtemp()) / "floor"
    command = ["gcc", "-O2", "-o", str(program), str(SOURCE), "-lpthread"]
    subprocess.run(command, check=True)
    return program


@contextlib.contextmanager
def running(
    upstream_port: int, setting: str, directory: Path, queues: int = 0
) -> Iterator[tuple[int, int, float]]:
    """Run it in front of a broker, from which it gets the first answer of each kind.

    `queues` is the number of files that it writes entries to in turn, one entry per send. Yields
    its port, its process and its start time in seconds.
    """
    loads.run([upstream_port], FILLED, FILLED_SECONDS)
    directory.mkdir(parents=True)
    port = free_port()
    words = [port, upstream_port, directory, int(setting == FLUSH), queues]
    program = build()
    began = time.monotonic()
    with subprocess.Popen([program, *map(str, words)]) as process:
        try:
            until(lambda: accepts(port), "the floor server to listen")
            yield port, process.pid, time.monotonic() - began
        finally:
            process.kill()
