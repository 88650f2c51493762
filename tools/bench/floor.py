"""The floor under all brokers: a program in C that receives, keeps and answers, and does no more.

What it costs is what the kernel takes for the same requests from the same load generator, so that
the rest of a broker's cost is the broker's own. `floor.c` says what it leaves out.
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
    """Return a cell as it is put to the floor; None where answers follow from what was sent."""
    is_known = cell.kind == REQUESTS and (cell.key in TAKES_PART or not cell.name)
    return cell if is_known else None


@functools.cache
def build() -> Path:
    """Compile the program; return where it is."""
    program = Path(tempfile.mkdtemp()) / "floor"
    command = ["gcc", "-O2", "-o", str(program), str(SOURCE), "-lpthread"]
    subprocess.run(command, check=True)
    return program


@contextlib.contextmanager
def running(
    upstream_port: int, setting: str, directory: Path, queues: int = 0
) -> Iterator[tuple[int, int, float]]:
    """Run it before a broker, which it asks for the first answer of each kind.

    `queues`: into how many files in turn it writes an entry for each send.
    Yields its port, its process and the seconds that it took to start.
    """
    loads.run([upstream_port], FILLED, FILLED_SECONDS)
    directory.mkdir(parents=True)
    port = free_port()
    words = [port, upstream_port, directory, int(setting == FLUSH), queues]
    program = build()
    began = time.monotonic()
    with subprocess.Popen([program, *map(str, words)]) as process:
        try:
            until(lambda: accepts(port), "the floor to listen")
            yield port, process.pid, time.monotonic() - began
        finally:
            process.kill()
