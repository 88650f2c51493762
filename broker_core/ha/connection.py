"""HaConnection: one slave, as its master sees it.

The slave says where it wants the log from; from then on everything that is committed goes out, file
by file, straight from the mapping. What is likely not in memory is read by a thread first, so that
no page fault stops the loop. What waits in the transport is bounded: the slave's reading sets the
pace.

Source: store/ha/HAConnection.java (4.9.8).
Differs: a report beyond what was sent, or below the one before, ends the connection; so does a
slave that takes nothing for haHousekeepingInterval. A slave that wants what is not there is told
where the log begins and disconnected, instead of getting heartbeats for ever.
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
"""So much goes to the transport in one turn of the loop, and about as much waits there at most."""
HOT_BYTES = 64 << 20
"""What was written last is in memory; the rest is read ahead."""
READ_AHEAD_BYTES = 4 << 20
PACED_BYTES_PER_SECOND = 256 << 20
"""A slave that lacks more than HOT_BYTES gets so much while the log grows, or twice what the log
grows by: it catches up, and sends keep the machine."""
LATE_SECONDS_MAX = 0.01
QUIET_SECONDS = 0.25
"""A log that has not grown for so long leaves the machine to the slave."""


class SlaveConnection(NamedTuple):
    """The state of one slave."""

    address: str
    requested_offset: int
    """Where it wanted the log from; -1 before it said so."""
    acknowledged_offset: int
    """Up to here it has the log; -1 before its first report."""
    transferred_offset: int
    """Up to here the log was sent to it."""
    behind_bytes: int
    behind_seconds: float
    """0 when it has everything; how old the oldest byte is that it lacks, else."""
    last_contact_seconds: float
    """How long ago it last said something."""
    transfer_bytes_per_second: int
    is_in_sync: bool
    """Whether it counts among the replicas that SYNC_MASTER waits for."""


class ConnectionOwner(Protocol):
    """What a connection tells its master."""

    def connected(self, connection: HaConnection) -> None:
        """Take a new connection."""
        ...

    def acknowledged(self, connection: HaConnection) -> None:
        """Take note of a report."""
        ...

    def sendable_where(self) -> int:
        """Return up to where slaves may have the log."""
        ...

    def sent_everything(self) -> None:
        """Take note that there is nothing to send until the log grows."""
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
        last_read: when the slave last said something, by the monotonic clock.
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
        # uvloop's transports are none of asyncio's classes.
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
        """Send what slaves may have and was not sent, as much as a turn may."""
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
            # Else the flush of the rest tells.

    def tend(self, now: float) -> None:
        """Send a heartbeat when it is time; end a connection that is silent or takes nothing."""
        housekeeping_s = self._config.ha_housekeeping_interval / 1000
        if now - self.last_read > housekeeping_s:
            self.close(f"it has said nothing for {housekeeping_s:g} s (haHousekeepingInterval)")
            return
        has_all = self.acknowledged_offset >= self.next_offset
        if has_all:
            self.last_progress = now
        elif now - self.last_progress > housekeeping_s:
            self.close(
                f"it has taken nothing for {housekeeping_s:g} s (haHousekeepingInterval), and "
                f"lacks {self.next_offset - self.acknowledged_offset} bytes that were sent"
            )
            return
        heartbeat_s = self._config.ha_send_heartbeat_interval / 1000
        if self.next_offset >= 0 and not self._is_paused and now - self.last_write >= heartbeat_s:
            self._send_heartbeat(self.next_offset)

    def close(self, reason: str) -> None:
        """End the connection; what waits to be sent is dropped."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    @property
    def transfer_bytes_per_second(self) -> int:
        """How much was sent in the last whole second, headers included."""
        return self._rate.per_second()

    def _take_report(self, offset: int) -> None:
        if self.requested_offset < 0:
            self._take_request(offset)
        elif offset > self.next_offset:
            raise ReplicationError(
                f"it reports offset {offset}, though only {self.next_offset} was sent"
            )
        elif offset < self.acknowledged_offset:
            raise ReplicationError(
                f"it reports offset {offset} after {self.acknowledged_offset}, which falls"
            )
        elif offset > self.acknowledged_offset:
            self.acknowledged_offset = offset
            self.last_progress = self.last_read

    def _take_request(self, offset: int) -> None:
        log = self._log
        if not 0 <= offset <= log.committed_where:
            raise ReplicationError(
                f"it asks for offset {offset}, but the log ends at {log.committed_where}: it has "
                "messages that this master lacks, or it is no slave of it"
            )
        self.requested_offset = offset
        self.acknowledged_offset = offset
        self.next_offset = offset
        if offset == 0:
            self.next_offset = self._first_offset()
        self.begin_offset = self.next_offset
        logger.info("slave connected: address=%s requested_offset=%d", self.address, offset)
        self.pump()

    def _first_offset(self) -> int:
        """Return where a slave without a log begins."""
        log = self._log
        if not self._config.sync_from_last_file:
            return log.min_offset
        return log.committed_where - log.committed_where % log.file_size

    def _refuse_expired(self, transport: asyncio.Transport) -> None:
        """Tell a slave that wants what is gone where the log begins; it logs that."""
        self._send_heartbeat(self._log.min_offset)
        self._reason = (
            f"it asks for offset {self.next_offset}, but the log begins at {self._log.min_offset}: "
            "the files between have expired. Stop the slave, move its store directory away and "
            "start it, so that it begins anew"
        )
        transport.close()

    def _send_heartbeat(self, offset: int) -> None:
        if self._transport is not None:
            self.last_write = self._clock.monotonic()
            self._transport.write(encode_header(offset, 0))

    def _room(self) -> int:
        """Return how much may be sent in this turn."""
        if not self._config.ha_flow_control_enable:
            return TURN_BYTES
        left = self._config.max_ha_transfer_byte_in_second - self._rate.this_second()
        if left <= 0:
            self._pause = self._clock.call_at(self._rate.second_ends, self._go_on)
        return min(left, TURN_BYTES)

    def _pump_again(self) -> None:
        """Send the next turn's bytes: at once, or after a pause that leaves sends the machine."""
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
        """Return how much of what comes next is in memory; see to it that more gets there."""
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
        reading.add_done_callback(lambda done: self._warmed(done, offset + size))

    def _warmed(self, done: asyncio.Future[None], end: int) -> None:
        self._is_warming = False
        if not done.cancelled():
            # A file that was deleted meanwhile: the mapping has it still, or the log tells.
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
        """Return how long to wait after so many bytes; 0 when the log does not grow."""
        grown, seconds = log_end - self._end, now - self._when
        is_first = self._when < 0
        self._when, self._end = now, log_end
        if grown > 0 and not is_first:
            self._grew_at = now
        if self._grew_at < 0 or now - self._grew_at >= QUIET_SECONDS or seconds >= 1.0:
            self._due = now
            return 0.0
        rate = max(PACED_BYTES_PER_SECOND, 2 * grown / max(seconds, 0.001))
        # A timer that came late is made good.
        self._due = max(self._due, now - LATE_SECONDS_MAX) + size / rate
        return self._due - now


class _Rate:
    """Counts bytes by whole seconds."""

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
