"""SelfCheck: whether the store's files are still contiguous.

Only the broker may delete a file. SelfCheck finds a file that is missing in the middle before a
reader needs it; a start refuses such a log, or cuts the queue there.

Source: store/DefaultMessageStore.java checkSelf, store/MappedFileQueue.java checkSelf (4.9.7).
Differs: SelfCheck reads the directories; RocketMQ checks its in-memory list.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from broker_core.formats.paths import offset_file_name, parse_offset_file_name
from broker_core.message.names import is_legal_name
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker_core.clock import Clock
    from broker_core.formats.paths import StorePaths
    from broker_core.storage import Storage

logger = logging.getLogger(__name__)

FIRST_S = 60.0
PERIOD_S = 600.0


class Gap(NamedTuple):
    """Missing files in a directory, as the offsets [from, to) that they held."""

    directory: Path
    offset_from: int
    offset_to: int


class SelfCheck(Service):
    """Checks every ten minutes in a worker thread. Event loop only, except `gaps`.

    Attributes:
        known: the gaps found by the last check; each is logged once.
    """

    def __init__(
        self,
        paths: StorePaths,
        log_file_size: int,
        queue_file_size: int,
        clock: Clock,
        storage: Storage,
    ) -> None:
        super().__init__()
        self.known: frozenset[Gap] = frozenset()
        self._paths = paths
        self._log_file_size = log_file_size
        self._queue_file_size = queue_file_size
        self._clock = clock
        self._storage = storage

    def start(self) -> None:
        self.spawn_forever(self._clock, self._check_forever, name="self-check")

    async def check(self) -> None:
        """Check once; log new gaps."""
        found = frozenset(await asyncio.to_thread(lambda: list(self.gaps())))
        for gap in sorted(found - self.known):
            logger.error(
                "store files missing directory=%s from=%s to=%s",
                gap.directory,
                offset_file_name(gap.offset_from),
                offset_file_name(gap.offset_to),
            )
        self.known = found

    def gaps(self) -> Iterator[Gap]:
        """Yield the gaps. Any thread."""
        yield from self._gaps_in(self._paths.commit_log, self._log_file_size)
        for topic in self._directories_in(self._paths.consume_queue):
            for queue in self._directories_in(topic):
                yield from self._gaps_in(queue, self._queue_file_size)

    def _gaps_in(self, directory: Path, file_size: int) -> Iterator[Gap]:
        names = map(parse_offset_file_name, self._storage.list_directory(directory))
        offsets = sorted(offset for offset in names if offset is not None)
        for offset, following in pairwise(offsets):
            if following != offset + file_size:
                yield Gap(directory, offset + file_size, following)

    def _directories_in(self, directory: Path) -> Iterator[Path]:
        for name in self._storage.list_directory(directory):
            path = directory / name
            if is_legal_name(name) and self._storage.is_directory(path):
                yield path

    async def _check_forever(self) -> None:
        await self._clock.sleep(FIRST_S)
        while True:
            await self.check()
            await self._clock.sleep(PERIOD_S)
