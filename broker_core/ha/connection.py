"""HaConnection: the master's connection to one slave.

The slave reports the offset from which it wants the log; from then on all committed data is sent,
file by file, straight from the mapping. A thread first reads data that is likely not in memory, so
that no page fault stops the loop. The amount buffered in the transport is bounded: the slave's
reading sets the pace.

Source: store/ha/HAConnection.java (4.9.8).
Differs: a report past the sent data, or below the previous report, ends the connection; a slave
that reads nothing for haHousekeepingInterval is disconnected, too. A slave that asks for deleted
data is sent the start of the log and disconnected, instead of getting heartbeats forever.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from broker_core.errors import ReplicationError
from broker_core.formats.ha_frames import ReportDecoder, encode_header

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from broker_core.clock import Clock, Timer
    from broker_core.config.ha import HaConfig
    from broker_core.store.commit_log import CommitLog

logger = logging.getLogger(__name__)

TURN_BYTES = 1 << 20
"""The maximum number of bytes sent to the transport per turn of the loop; about as much may be
buffered there.
"""
HOT_BYTES = 64 << 20
"""The most recently written bytes are in memory; older data is read ahead."""
READ_AHEAD_BYTES = 4 << 20
PACED_BYTES_PER_SECOND = 256 << 20
"""While the log grows, a slave that is more than HOT_BYTES behind is sent this much, or twice the
growth of the log: it catches up without starving puts.
"""
LATE_SECONDS_MAX = 0.01
QUIET_SECONDS = 0.25
"""If the log hasn't grown for this long, the slave gets full speed."""


class SlaveConnection(NamedTuple):
    """The state of one slave."""

    address: str
    requested_offset: int
    """The log offset from which it asked for data; -1 before its first report."""
    acknowledged_offset: int
    """The slave has the log up to here; -1 before its first report."""
    transferred_offset: int
    """The log was sent to the slave up to here."""
    behind_bytes: int
    behind_seconds: float
    """The age of the oldest byte that the slave lacks; 0 when it has everything."""
    last_contact_seconds: float
    """How long ago the slave last sent data."""
    transfer_bytes_per_second: int
    is_in_sync: bool
    """Whether it counts among the replicas that SYNC_MASTER waits for."""


class ConnectionOwner(Protocol):
    """The callbacks from a connection to its master."""

    def connected(self, connection: HaConnection) -> None:
        """Handle a new connection."""
        ...

    def acknowledged(self, connection: HaConnection) -> None:
        """Handle a report."""
        ...

    def sendable_where(self) -> int:
        """Return the offset up to which slaves may have the log."""
        ...

    def sent_everything(self) -> None:
        """Handle a slave that has the whole log; sending continues when the log grows."""
        ...

    def disconnected(self, connection: HaConnection, reason: str) -> None:
        """Drop a connection; the reason is empty when the slave closed it."""
        ...


class HaConnection(asyncio.Protocol):
    """Event loop only; a thread reads ahead.

    Attributes:
        address: the slave's, host:port.
        requested_offset, acknowledged_offset: see SlaveConnection.
        begin_offset, next_offset: where the first transfer began, and the next one begins.
        last_read: when the slave last sent data, by the monotonic clock.
    """

    def __init__(
        self,
        config: HaConfig,
        clock: Clock,
        log: CommitLog,
        cold_reads: Executor,
        owner: ConnectionOwner,
        address: str,
    ) -> None:
        self.address = address
        self.requested_offset = -1
        self.acknowledged_offset = -1
        self.begin_offset = -1
        self.next_offset = -1
        self.last_read = self.last_progress = self.last_write = clock.monotonic()
        self._config = config
        self._clock = clock
        self._log = log
        self._cold_reads = cold_reads
        self._owner = owner
        self._reports = ReportDecoder()
        self._transport: asyncio.Transport | None = None
        self._reason = ""
        self._is_paused = False
        self._warm_to = 0
        self._is_warming = False
        self._rate = _Rate(clock)
        self._pace = _Pace()
        self._pause: Timer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't derive from asyncio's classes.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=TURN_BYTES)
        one: socket.socket = transport.get_extra_info("socket")
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._owner.connected(self)

    def data_received(self, data: bytes) -> None:
        self.last_read = self._clock.monotonic()
        try:
            reports = self._reports.feed(data)
            for offset in reports:
                self._take_report(offset)
        except ReplicationError as error:
            self.close(str(error))
            return
        if reports:
            self._owner.acknowledged(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._pause is not None:
            self._pause.cancel()
        self._owner.disconnected(self, self._reason or ("" if error is None else str(error)))

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.last_progress = self._clock.monotonic()
        self.pump()

    def pump(self) -> None:
        """Send data that slaves may have, up to the limit of a turn."""
        transport = self._transport
        if self.next_offset < 0 or self._is_paused or transport is None or self._pause:
            return
        pieces: list[bytes | memoryview] = []
        room = self._room()
        if room <= 0:
            return
        view: memoryview | None = None
        end = self._owner.sendable_where()
        while room > 0:
            view = self._log.committed_view(self.next_offset) if self.next_offset < end else None
            if view is None:
                break
            size = min(
                *(len(view), self._config.ha_transfer_batch_size, room),
                *(self._warm_bytes(), end - self.next_offset),
            )
            if size <= 0:
                break
            pieces += encode_header(self.next_offset, size), view[:size]
            self.next_offset += size
            room -= size
        if pieces:
            self.last_write = self._clock.monotonic()
            self._rate.count(sum(map(len, pieces)))
            transport.writelines(pieces)
        if room <= 0:
            self._pump_again()
        elif view is None:
            if self.next_offset < self._log.min_offset:
                self._refuse_expired(transport)
            elif self.next_offset >= self._log.committed_where:
                self._owner.sent_everything()
            # Otherwise `flushed` continues when more is committed.

    def tend(self, now: float) -> None:
        """Send a heartbeat when it is due; end a connection that is silent or doesn't read."""
        housekeeping_s = self._config.ha_housekeeping_interval / 1000
        if now - self.last_read > housekeeping_s:
            self.close(f"the slave sent nothing for {housekeeping_s:g} s (haHousekeepingInterval)")
            return
        has_all = self.acknowledged_offset >= self.next_offset
        if has_all:
            self.last_progress = now
        elif now - self.last_progress > housekeeping_s:
            self.close(
                f"the slave acknowledged nothing for {housekeeping_s:g} s "
                f"(haHousekeepingInterval), with {self.next_offset - self.acknowledged_offset} "
                "sent bytes outstanding"
            )
            return
        heartbeat_s = self._config.ha_send_heartbeat_interval / 1000
        if self.next_offset >= 0 and not self._is_paused and now - self.last_write >= heartbeat_s:
            self._send_heartbeat(self.next_offset)

    def close(self, reason: str) -> None:
        """End the connection; unsent data is dropped."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    @property
    def transfer_bytes_per_second(self) -> int:
        """How many bytes were sent in the last whole second, including headers."""
        return self._rate.per_second()

    def _take_report(self, offset: int) -> None:
        if self.requested_offset < 0:
            self._take_request(offset)
        elif offset > self.next_offset:
            raise ReplicationError(
                f"the slave reported offset {offset}, but only {self.next_offset} was sent"
            )
        elif offset < self.acknowledged_offset:
            raise ReplicationError(
                f"the slave reported offset {offset} after {self.acknowledged_offset}; offsets "
                "must not decrease"
            )
        elif offset > self.acknowledged_offset:
            self.acknowledged_offset = offset
            self.last_progress = self.last_read

    def _take_request(self, offset: int) -> None:
        log = self._log
        if not 0 <= offset <= log.committed_where:
            raise ReplicationError(
                f"the slave requested offset {offset}, but the log ends at "
                f"{log.committed_where}; the slave has messages that this master lacks, or "
                "belongs to another master"
            )
        self.requested_offset = offset
        self.acknowledged_offset = offset
        self.next_offset = offset
        if offset == 0:
            self.next_offset = self._first_offset()
        self.begin_offset = self.next_offset
        logger.info("slave connected address=%s requested_offset=%d", self.address, offset)
        self.pump()

    def _first_offset(self) -> int:
        """Return where a slave without a log begins."""
        log = self._log
        if not self._config.sync_from_last_file:
            return log.min_offset
        return log.committed_where - log.committed_where % log.file_size

    def _refuse_expired(self, transport: asyncio.Transport) -> None:
        """Send the start of the log to a slave that asks for deleted data; the slave logs it."""
        self._send_heartbeat(self._log.min_offset)
        self._reason = (
            f"the slave requested offset {self.next_offset}, but the log begins at "
            f"{self._log.min_offset}; the files in between have expired. Stop the slave, move "
            "its store directory away and start it again, so that it copies the whole log"
        )
        transport.close()

    def _send_heartbeat(self, offset: int) -> None:
        if self._transport is not None:
            self.last_write = self._clock.monotonic()
            self._transport.write(encode_header(offset, 0))

    def _room(self) -> int:
        """Return how many bytes may be sent in this turn."""
        if not self._config.ha_flow_control_enable:
            return TURN_BYTES
        left = self._config.max_ha_transfer_byte_in_second - self._rate.this_second()
        if left <= 0:
            self._pause = self._clock.call_at(self._rate.second_ends, self._go_on)
        return min(left, TURN_BYTES)

    def _pump_again(self) -> None:
        """Schedule the next turn: immediately, or after a pause that leaves room for puts."""
        end, now = self._log.committed_where, self._clock.monotonic()
        is_far = end - self.next_offset > HOT_BYTES
        seconds = self._pace.pause(TURN_BYTES, now, end) if is_far else 0.0
        if seconds > 0:
            self._pause = self._clock.call_at(now + seconds, self._go_on)
        elif not self._is_paused:
            asyncio.get_running_loop().call_soon(self.pump)

    def _go_on(self) -> None:
        self._pause = None
        self.pump()

    def _warm_bytes(self) -> int:
        """Return how many of the next bytes are in memory; start reading more ahead if needed."""
        left = self._log.committed_where - self.next_offset
        if left <= HOT_BYTES:
            return left
        warm = self._warm_to - self.next_offset
        if warm < READ_AHEAD_BYTES // 2 and not self._is_warming:
            self._read_ahead(max(self._warm_to, self.next_offset))
        return warm

    def _read_ahead(self, offset: int) -> None:
        file = self._log.file_at(offset)
        if file is None:
            self._warm_to = offset + READ_AHEAD_BYTES
            return
        position = offset - file.file_from_offset
        size = min(READ_AHEAD_BYTES, file.size - position)
        self._is_warming = True
        reading = asyncio.get_running_loop().run_in_executor(
            self._cold_reads, file.file.read_ahead, file.buffer, position, size
        )
        reading.add_done_callback(lambda done: self._on_warm(done, offset + size))

    def _on_warm(self, done: asyncio.Future[None], end: int) -> None:
        self._is_warming = False
        if not done.cancelled():
            # If the file was deleted meanwhile, the mapping still has it, or reading the log
            # reports it.
            done.exception()
        self._warm_to = end
        self.pump()


class _Pace:
    """Spaces the turns of a slave that is far behind, while the log grows."""

    __slots__ = ("_due", "_end", "_grew_at", "_when")

    def __init__(self) -> None:
        self._when = self._grew_at = -1.0
        self._end = 0
        self._due = 0.0

    def pause(self, size: int, now: float, log_end: int) -> float:
        """Return how long to wait after this many bytes; 0 when the log doesn't grow."""
        grown, seconds = log_end - self._end, now - self._when
        is_first = self._when < 0
        self._when, self._end = now, log_end
        if grown > 0 and not is_first:
            self._grew_at = now
        if self._grew_at < 0 or now - self._grew_at >= QUIET_SECONDS or seconds >= 1.0:
            self._due = now
            return 0.0
        rate = max(PACED_BYTES_PER_SECOND, 2 * grown / max(seconds, 0.001))
        # Compensate for a late timer.
        self._due = max(self._due, now - LATE_SECONDS_MAX) + size / rate
        return self._due - now


class _Rate:
    """Counts bytes per whole second."""

    __slots__ = ("_before", "_clock", "_now", "second_ends")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.second_ends = clock.monotonic() + 1.0
        self._now = 0
        self._before = 0

    def count(self, size: int) -> None:
        self._turn()
        self._now += size

    def this_second(self) -> int:
        self._turn()
        return self._now

    def per_second(self) -> int:
        self._turn()
        return self._before

    def _turn(self) -> None:
        now = self._clock.monotonic()
        if now >= self.second_ends:
            self._before = self._now if now < self.second_ends + 1.0 else 0
            self._now = 0
            self.second_ends = now + 1.0
