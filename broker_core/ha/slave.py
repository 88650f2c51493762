"""HaSlave: a slave's HA client, which replicates the master's log.

It connects, reports where its log ends, and appends the data it receives; the store checks and
dispatches the data immediately, and the slave reports checked data. After a failed connection it
waits, longer after each consecutive failure, and reconnects.

Source: store/ha/HAService.java HAClient (4.9.8).
Differs: the first report is sent immediately, not after five seconds; a master that is silent for
haHousekeepingInterval is disconnected; data is checked before it is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from broker_core.clock import wait_within
from broker_core.errors import RemotingConnectError, ReplicationError, StoreError
from broker_core.formats.ha_frames import HEADER_SIZE, decode_header, encode_report
from broker_core.remoting.broker_hosts import refuse_peer
from broker_core.remoting.client import split_address
from broker_core.service import Service

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from broker_core.clock import Clock
    from broker_core.config.ha import HaConfig
    from broker_core.counted_log import CountedLog
    from broker_core.store.message_store import MessageStore

logger = logging.getLogger(__name__)

READ_BYTES = 1 << 20
CONNECT_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.25
PAUSE_SECONDS_MAX = 5.0
TEND_SECONDS = 1.0

State = Literal["idle", "waiting", "connecting", "following"]


class SlaveState(NamedTuple):
    """The state of following."""

    state: State
    """idle: no master is known, or this isn't a slave; waiting: for the next attempt."""
    master_address: str
    """The master's HA address; empty when unknown."""
    max_offset: int
    """Where this log ends."""
    reported_offset: int
    """The last offset reported over this connection; -1 before the first report."""
    last_contact_seconds: float
    """How long ago the master last sent something; -1 when it hasn't yet."""
    transferred_bytes: int
    """Bytes of the log received since the start."""
    failures: int
    """Number of consecutive failed connections."""
    reason: str
    """Why the last connection failed; empty if no connection has failed."""
    local_address: str
    """The local address of the connection, as the master sees it; empty while disconnected."""


class HaSlave(Service):
    """Event loop only.

    Attributes:
        before_transfer: awaited with the master's HA address once connected and before any report
            is sent; a ReplicationError means that the master must not be followed.
    """

    def __init__(
        self,
        config: HaConfig,
        clock: Clock,
        store: MessageStore,
        counted_log: CountedLog,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__()
        self.before_transfer: Callable[[str], Awaitable[None]] | None = None
        self._config = config
        self._clock = clock
        self._store = store
        self._counted_log = counted_log
        self._tls = tls
        self._address: str | None = None
        self._wire: _Wire | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._state: State = "idle"
        self._failures = 0
        self._reason = ""
        self._transferred = 0

    def start(self) -> None:
        """Start following the master set with `follow`; may be called again after `stop`."""
        if self._task is None:
            if self._flushed not in self._store.on_flushed:
                self._store.on_flushed.append(self._flushed)
            self._task = self.spawn_forever(self._clock, self._follow_forever, name="ha-slave")

    async def stop(self) -> None:
        """Stop following; nothing is appended once this returns."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._state = "idle"

    async def shutdown(self) -> None:
        """Stop."""
        await self.stop()
        await super().shutdown()

    def follow(self, master_ha_address: str | None) -> None:
        """Follow the master at this host:port; None when unknown."""
        if master_ha_address == self._address:
            return
        self._address = master_ha_address
        self._failures = 0
        self._changed.set()
        if self._wire is not None:
            self._wire.end("the master has another address now")

    def state(self) -> SlaveState:
        """Return the state of following."""
        wire = self._wire
        is_heard = wire is not None and wire.has_read
        return SlaveState(
            state=self._state,
            master_address=self._address or "",
            max_offset=self._store.max_commit_log_offset,
            reported_offset=-1 if wire is None else wire.reported_offset,
            last_contact_seconds=(
                self._clock.monotonic() - wire.last_read if wire is not None and is_heard else -1.0
            ),
            transferred_bytes=self._transferred + (0 if wire is None else wire.transferred_bytes),
            failures=self._failures,
            reason=self._reason,
            local_address="" if wire is None else wire.local_address,
        )

    async def _follow_forever(self) -> None:
        while True:
            self._changed.clear()
            address = self._address
            if not address:
                self._state = "idle"
                await self._changed.wait()
                continue
            self._reason = await self._follow_once(address)
            if self._changed.is_set():
                continue
            self._failures += 1
            self._counted_log.report(
                logger,
                logging.WARNING,
                "not following the master",
                f"address={address}",
                "reason=%s",
                self._reason,
            )
            self._state = "waiting"
            await self._pause()

    async def _pause(self) -> None:
        seconds = min(FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 16), PAUSE_SECONDS_MAX)
        timer = self._clock.call_at(self._clock.monotonic() + seconds, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    async def _follow_once(self, address: str) -> str:
        """Follow until the connection ends; return why it ended."""
        self._state = "connecting"
        wire = _Wire(self._config, self._clock, self._store)
        self._wire = wire
        try:
            await self._connect(address, wire)
            if self.before_transfer is not None:
                await self.before_transfer(address)
            if self._config.ha_ack_mode == "flushed" and not await self._store.flush():
                raise ReplicationError(
                    "the broker can't write to its disk; see its log, then restart it"
                )
            wire.begin()
            self._state = "following"
            logger.info(
                "following the master address=%s commit_log_offset=%d",
                address,
                wire.reported_offset,
            )
            return await self._tend(wire)
        except (ReplicationError, OSError) as error:
            return str(error) or type(error).__name__
        finally:
            self._wire = None
            self._transferred += wire.transferred_bytes
            wire.end("this slave stops following")

    async def _connect(self, address: str, wire: _Wire) -> None:
        making = self.spawn(self._make(address, wire), name="ha-connect")
        try:
            if not await wait_within(self._clock, making, CONNECT_SECONDS):
                raise ReplicationError(f"no connection within {CONNECT_SECONDS:g} s")
        finally:
            making.cancel()
        if wire.ended.done():
            raise ReplicationError(wire.ended.result())

    async def _make(self, address: str, wire: _Wire) -> None:
        try:
            host, port = split_address(address)
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: wire, host, port, ssl=self._tls
            )
        except (OSError, UnicodeError, RemotingConnectError) as error:
            wire.end(f"no connection: {error}")
            return
        if address != self._config.ha_master_address:
            # The master's address was provided by a name server.
            refusal = refuse_peer(transport)
            if refusal is not None:
                wire.end(f"no connection: {refusal}")

    async def _tend(self, wire: _Wire) -> str:
        """Send heartbeats, leave a silent master; return why the connection ended."""
        while not wire.ended.done():
            now = self._clock.monotonic()
            wire.tend(now)
            if wire.transferred_bytes:
                self._failures = 0
            pause = min(TEND_SECONDS, self._config.ha_send_heartbeat_interval / 1000)
            timer = self._clock.call_at(now + pause, wire.wake)
            try:
                await wire.wait_for_wake()
            finally:
                timer.cancel()
        return wire.ended.result()

    def _flushed(self) -> None:
        if self._wire is not None:
            self._wire.report()


class _Wire(asyncio.BufferedProtocol):
    """A connection to a master."""

    def __init__(self, config: HaConfig, clock: Clock, store: MessageStore) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Completes with the reason when the connection has ended."""
        self.reported_offset = -1
        self.local_address = ""
        self.transferred_bytes = 0
        self.has_read = False
        self.last_read = clock.monotonic()
        self._last_write = self.last_read
        self._config = config
        self._clock = clock
        self._store = store
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._left = 0
        """Remaining bytes of the current transfer."""
        self._waker = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't derive from asyncio's classes.
        transport = cast("asyncio.Transport", transport)
        if self.ended.done():
            transport.abort()
            return
        self._transport = transport
        one: socket.socket = transport.get_extra_info("socket")
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = transport.get_extra_info("sockname")[:2]
        self.local_address = f"{host}:{port}"

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, count: int) -> None:
        if self.ended.done():
            return
        self.last_read = self._clock.monotonic()
        self.has_read = True
        self._filled += count
        try:
            self._take()
            self._store.replay.advance()
        except (ReplicationError, StoreError, OSError) as error:
            self.end(str(error))
            return
        self.report()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.end("the master closed the connection" if error is None else str(error))

    def begin(self) -> None:
        """Report where the log ends: the master sends from there on."""
        if self.ended.done():
            raise ReplicationError(self.ended.result())
        self._send(self._store.max_commit_log_offset)

    def report(self) -> None:
        """Report the checked, or the flushed, offset to the master if it has grown."""
        where = self._where()
        if 0 <= self.reported_offset < where:
            self._send(where)

    def tend(self, now: float) -> None:
        """Send a heartbeat when it is due; end the connection when the master is silent."""
        housekeeping_s = self._config.ha_housekeeping_interval / 1000
        if now - self.last_read > housekeeping_s:
            self.end(f"the master sent nothing for {housekeeping_s:g} s (haHousekeepingInterval)")
        elif now - self._last_write >= self._config.ha_send_heartbeat_interval / 1000:
            self._send(max(self._where(), self.reported_offset))

    def end(self, reason: str) -> None:
        """End the connection."""
        if not self.ended.done():
            self.ended.set_result(reason)
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self.wake()

    def wake(self) -> None:
        self._waker.set()

    async def wait_for_wake(self) -> None:
        """Wait until `wake` is called."""
        await self._waker.wait()
        self._waker.clear()

    def _where(self) -> int:
        store = self._store
        if self._config.ha_ack_mode == "flushed":
            return min(store.flushed_where, store.max_commit_log_offset)
        return store.max_commit_log_offset

    def _send(self, commit_log_offset: int) -> None:
        if self._transport is not None:
            self.reported_offset = commit_log_offset
            self._last_write = self._clock.monotonic()
            self._transport.write(encode_report(commit_log_offset))

    def _take(self) -> None:
        """Append the data of the transfers in the buffer; keep an incomplete header."""
        log = self._store.files.log
        position, filled, view = 0, self._filled, self._view
        appended = 0
        while True:
            if self._left:
                size = min(self._left, filled - position)
                if size:
                    log.append_data(view[position : position + size])
                    position += size
                    self._left -= size
                    appended += size
                if self._left:
                    break
            if filled - position < HEADER_SIZE:
                break
            header = decode_header(self._buffer, position, log.file_size)
            position += HEADER_SIZE
            self._check(header.commit_log_offset, header.size)
            self._left = header.size
        rest = filled - position
        self._buffer[:rest] = self._buffer[position:filled]
        self._filled = rest
        if appended:
            self.transferred_bytes += appended
            if self._config.ha_ack_mode == "flushed":
                self._store.flush_soon()

    def _check(self, commit_log_offset: int, size: int) -> None:
        """Read the header of the data that follows.

        Raises:
            ReplicationError: the data doesn't belong at this log's end.
        """
        log = self._store.files.log
        end = log.max_offset
        if not log.files and end == 0 and commit_log_offset:
            if commit_log_offset % log.file_size:
                raise ReplicationError(
                    f"the master begins at offset {commit_log_offset}, where no file of "
                    f"mappedFileSizeCommitLog={log.file_size} begins; set the master's value"
                )
            log.begin_at(commit_log_offset)
            self._store.replay.start()
            end = commit_log_offset
        if commit_log_offset != end:
            raise ReplicationError(_mismatch(commit_log_offset, end))
        if size > log.file_size - end % log.file_size:
            raise ReplicationError(
                f"{size} bytes for offset {end} cross the end of a file of "
                f"mappedFileSizeCommitLog={log.file_size}; set the master's value"
            )


def _mismatch(offered: int, end: int) -> str:
    if offered > end:
        return (
            f"the master's log offers offset {offered}, but this log ends at {end}; the files "
            "in between have expired on the master. Stop this slave, move its store directory "
            "away and start it again, so that it copies the whole log"
        )
    return (
        f"the master offers offset {offered}, but this log ends at {end}; the master belongs to "
        "another log, or has lost messages that this slave has"
    )
