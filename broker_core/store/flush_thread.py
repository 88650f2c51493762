"""FlushThread: the thread in which the log is flushed.

An executor would do, but each of its futures takes a dozen locks and two more turns of the loop,
which is most of what a flush costs when senders come one by one.
"""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.storage import StorageFile

    Done = Callable[[Exception | None], None]
    Work = tuple[list[StorageFile], asyncio.AbstractEventLoop, Done]

AGAIN_S = 0.1
"""A loop that lacks memory is told so much later; it hands over nothing until then."""


class FlushThread:
    """Flushes what it is handed, in that order. Event loop only."""

    def __init__(self) -> None:
        self._handed: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pause = threading.Event()

    def start(self) -> None:
        """Begin; else it does with the first it is handed, when there may be no thread to have."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="flush", daemon=True)
            thread.start()
            self._thread = thread

    def hand(self, files: list[StorageFile], done: Done) -> None:
        """Flush files; the loop then calls `done` with what went wrong, or None.

        What it raises for lack of a thread, or of memory, says that nothing was handed over.
        """
        self.start()
        self._handed.put((files, asyncio.get_running_loop(), done))

    def shutdown(self) -> None:
        """Wait for what it was handed, and end it."""
        if self._thread is not None:
            self._handed.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (work := self._handed.get()) is not None:
            files, loop, done = work
            error = sync(files)
            while True:
                try:
                    loop.call_soon_threadsafe(done, error)
                    break
                except MemoryError:
                    self._pause.wait(AGAIN_S)
                except RuntimeError:
                    return  # the loop was closed: nobody is left to be told


def sync(files: list[StorageFile]) -> Exception | None:
    """Flush files; return what went wrong, after which nothing of them counts as durable."""
    try:
        for file in files:
            file.fdatasync()
    except Exception as error:  # noqa: BLE001  the loop is told, and stops acknowledging
        return error
    return None
