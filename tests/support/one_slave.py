"""One slave's connection without a socket: the test is its master, its disk and its clock."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

from broker_core.config.ha import HaConfig
from broker_core.formats.ha_frames import HEADER, HEADER_SIZE, encode_report
from broker_core.ha.connection import HaConnection
from tests.support.memory_transport import MemoryTransport
from tests.support.time_steps import settle

if TYPE_CHECKING:
    from broker_core.store.message_store import MessageStore
    from tests.support.clock import ManualClock

ADDRESS = "10.0.0.2:4000"


class Reads(Executor):
    """Reads ahead when the test triggers it."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int]] = []
        """Position in a file, and size."""
        self.waiting: list[Future[None]] = []

    def submit(self, _: Any, /, *arguments: Any, **__: Any) -> Future[Any]:
        _, position, size = arguments
        self.requests.append((position, size))
        self.waiting.append(Future())
        return self.waiting[-1]

    async def finish(self) -> None:
        self.waiting.pop(0).set_result(None)
        await settle()


class OneSlave:
    """The connection of a slave, and the positions it reports to its master."""

    def __init__(self, store: MessageStore, clock: ManualClock, **keys: Any) -> None:
        self.store = store
        self.clock = clock
        self.reads = Reads()
        self.received: list[str] = []
        self.reasons: list[str] = []
        self.sendable: int | None = None
        self.connection = HaConnection(
            HaConfig(**{"sync_from_last_file": False, **keys}),
            clock,
            store.files.log,
            self.reads,
            self,
            ADDRESS,
        )
        self.wire = MemoryTransport(self.connection)
        self.connection.connection_made(self.wire)

    def connected(self, connection: HaConnection) -> None:
        self.received.append("connected")

    def acknowledged(self, connection: HaConnection) -> None:
        self.received.append(f"acknowledged {connection.acknowledged_offset}")

    def sendable_where(self) -> int:
        return self.end if self.sendable is None else self.sendable

    def sent_everything(self) -> None:
        self.received.append("sent everything")

    def disconnected(self, connection: HaConnection, reason: str) -> None:
        self.reasons.append(reason)

    @property
    def end(self) -> int:
        return self.store.max_commit_log_offset

    @property
    def sent(self) -> int:
        return self.connection.next_offset

    def report(self, offset: int) -> None:
        self.connection.data_received(encode_report(offset))

    def transfers(self) -> list[tuple[int, bytes]]:
        """Return the transfers since the previous call; heartbeats have no data."""
        written = self.wire.drain()
        found, position = [], 0
        while position < len(written):
            offset, size = HEADER.unpack_from(written, position)
            position += HEADER_SIZE
            found.append((offset, written[position : position + size]))
            position += size
        return found

    def tend_after_ms(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)
        self.connection.tend(self.clock.monotonic())

    async def lives(self) -> bool:
        await settle()
        return not self.reasons
