"""FlushThread: the thread in which the log is flushed.

An executor would do, but each of its futures takes a dozen locks and two more turns of the loop,
which is most of the cost of a flush when messages arrive one at a time.
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
"""When memory is too low to notify the loop, retry after this long."""


class FlushThread:
    """Flushes files in the order of the calls to `submit`. Event loop only."""

    def __init__(self) -> None:
        self._handed: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pause = threading.Event()

    def start(self) -> None:
        """Start the thread now; otherwise `submit` starts it, when resources may be short."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="flush", daemon=True)
            thread.start()
            self._thread = thread

    def submit(self, files: list[StorageFile], done: Done) -> None:
        """Flush files; the loop then calls `done` with the error, or None.

        If no thread can be started or memory is short, this raises and queues nothing.
        """
        self.start()
        self._handed.put((files, asyncio.get_running_loop(), done))

    def shutdown(self) -> None:
        """Wait for the queued flushes, then end the thread."""
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
                    return  # the loop was closed, so the result isn't needed


def sync(files: list[StorageFile]) -> Exception | None:
    """Flush files; return the error, after which none of the files counts as durable."""
    try:
        for file in files:
            file.fdatasync()
    except Exception as error:  # noqa: BLE001  the loop stops acknowledging
        return error
    return None
