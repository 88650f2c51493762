"""Decide when to read from a peer, and count the bytes that a connection holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

    from broker_core.protocol.frame import FrameDecoder
    from broker_core.remoting.limits import RemotingLimits, StrangerLimits
    from broker_core.remoting.wire import Wire

T = TypeVar("T")

ANSWER_BYTES = 64 * 1024
"""Bytes counted for each answer in progress besides its request: as many as a cold pull reads."""
TIGHT_BYTES = 64 * 1024
"""While memory is tight, a connection with this many bytes of requests in progress doesn't read."""


class Intake:
    """The half of a connection that decides whether to read. Event loop only.

    The connection stops reading while its peer doesn't read answers, while too many of its requests
    are in progress, and while it waits for its turn. New bytes then wait in the socket.
    """

    __slots__ = (
        "_decoder",
        "_in_flight",
        "_in_flight_bytes",
        "_is_counted",
        "_is_crowded",
        "_is_long",
        "_is_reading",
        "_is_stopped",
        "_is_waiting",
        "_is_writable",
        "_kept_bytes",
        "_limits",
        "_serves_alone",
        "_transport",
        "_unread_bytes",
        "_wire",
        "remote_address",
    )

    def __init__(self, wire: Wire, decoder: FrameDecoder) -> None:
        self.remote_address = ""
        self._wire = wire
        self._decoder = decoder
        self._limits: RemotingLimits | StrangerLimits = wire.limits.strangers or wire.limits
        self._transport: asyncio.Transport | None = None
        self._is_reading = True
        self._is_writable = True
        self._is_stopped = False
        self._is_crowded = False
        # Whether the connection waits for its turn, and whether its last turn was long.
        self._is_waiting = False
        self._is_long = False
        self._serves_alone = False
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._kept_bytes = 0
        self._unread_bytes = 0
        # Whether the shared budget counts this connection.
        self._is_counted = False

    @property
    def is_open(self) -> bool:
        """Whether the transport still accepts frames."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_writable(self) -> bool:
        """Whether the peer keeps up with reading; check it before a push that can be dropped."""
        return self._is_writable and self.is_open

    @property
    def requests_in_flight(self) -> int:
        """Number of the peer's requests that haven't been answered."""
        return self._in_flight

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait in this process for the peer to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def held_bytes(self) -> int:
        """See Holder."""
        return self._kept_bytes + self._in_flight_bytes + self._unread_bytes

    @property
    def stuck_bytes(self) -> int:
        """See Holder."""
        return self._kept_bytes + self._unread_bytes

    def drop(self, reason: str) -> None:
        """See Holder."""
        self._is_counted = False
        self._abort_since(reason)

    def abort(self) -> None:
        """Close immediately and discard unsent frames."""
        self._decoder.discard()
        self._is_stopped = True
        if self._transport is not None:
            self._transport.abort()

    def stop_reading(self) -> None:
        """Accept no more requests, but send the answers in progress."""
        self._decoder.discard()
        self._is_stopped = True
        self._read_or_pause()

    def serve_alone(self) -> None:
        """Serve no other request of this connection until the current one is answered.

        A handler calls this before it returns a coroutine that later requests must not overtake.
        """
        self._serves_alone = True

    def run(self, steps: Generator[None, None, T]) -> asyncio.Future[T]:
        """Run a request's long work in steps between the turns of connections; see Turns."""
        return self._wire.turns.run(steps)

    def run_alone(self, steps: Generator[None, None, T]) -> asyncio.Future[T]:
        """Run steps while no other request of this connection is served; see serve_alone."""
        self.serve_alone()
        return self._wire.turns.run(steps)

    # Called by the transport.

    def pause_writing(self) -> None:
        self._is_writable = False
        self._count_unread()
        self._read_or_pause()

    def resume_writing(self) -> None:
        self._is_writable = True
        self._count_unread()
        if self._wire.on_writable is not None:
            self._wire.on_writable(self)
        # Deferred, because the transport may call this during a write.
        self._wait_for_turn()

    # Internal.

    def _serve_kept(self) -> None:
        """Serve the frames received before a pause."""
        raise NotImplementedError

    def _is_read_from(self) -> bool:
        return self.is_writable and not (self._is_crowded or self._is_waiting or self._is_stopped)

    def _read_or_pause(self) -> None:
        """Make the transport read or stop reading."""
        is_reading = self._is_read_from()
        if is_reading is self._is_reading or not self.is_open:
            return
        self._is_reading = is_reading
        assert self._transport is not None
        if is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _wait_for_turn(self) -> None:
        """Stop reading, and continue after the other connections' turns."""
        if not self._is_waiting:
            self._is_waiting = True
            self._read_or_pause()
            self._wire.turns.queue(self._take_turn, is_long=self._is_long)

    def _take_turn(self) -> None:
        self._is_waiting = False
        if self._is_read_from():
            self._serve_kept()
        self._read_or_pause()

    def _begin(self, frame_bytes: int, requests: int = 1) -> None:
        """Count dispatched requests as in flight."""
        wire = self._wire
        wire.in_flight += requests
        self._in_flight += requests
        self._in_flight_bytes += frame_bytes
        if self._is_counted:
            wire.memory.add(frame_bytes)
        limits = self._limits
        if not self._is_crowded and (
            self._in_flight >= limits.requests_in_flight_max
            or self._in_flight_bytes >= limits.in_flight_bytes_max
            or (self._in_flight_bytes >= TIGHT_BYTES and wire.memory.is_tight)
        ):
            self._is_crowded = True
            self._read_or_pause()

    def _end(self, frame_bytes: int, requests: int = 1) -> None:
        wire = self._wire
        wire.in_flight -= requests
        self._in_flight -= requests
        self._in_flight_bytes -= frame_bytes
        if self._is_counted:
            wire.memory.remove(frame_bytes)
            if self._transport is None and not self._in_flight:
                self._leave_budget()
        if wire.answered is not None and not wire.in_flight and not wire.answered.done():
            # Deferred, because the caller sends the answer first.
            asyncio.get_running_loop().call_soon(_set_done, wire.answered)
        limits = self._limits
        if (
            self._is_crowded
            and self._in_flight <= limits.requests_in_flight_max // 2
            and self._in_flight_bytes <= limits.in_flight_bytes_max // 2
        ):
            self._is_crowded = False
            # Deferred, because the caller sends the answer first.
            self._wait_for_turn()

    def _keep(self, kept_bytes: int) -> None:
        """Count the bytes of frames that are incomplete or wait for the connection's turn."""
        wire = self._wire
        more = kept_bytes - self._kept_bytes
        self._kept_bytes = kept_bytes
        wire.kept_bytes += more
        if self._limits is not wire.limits:
            wire.kept_bytes_of_strangers += more
        self._count(more)

    def _count_unread(self) -> None:
        """Count the bytes that wait for the peer to read.

        Only the sweep counts fewer than `write_buffer_high` bytes.
        """
        unread_bytes = self.unsent_bytes
        more = unread_bytes - self._unread_bytes
        self._unread_bytes = unread_bytes
        self._count(more)

    def _leave_budget(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._wire.memory.close(self)

    def _count(self, more: int) -> None:
        if not self._is_counted:
            return
        if more > 0:
            self._wire.memory.add(more)
        else:
            self._wire.memory.remove(-more)

    def _check_unread(self, written: int) -> None:
        """Close if too many bytes were already waiting before the last write."""
        self._count_unread()
        waited = self._unread_bytes - written
        if waited > self._limits.write_buffer_max and self.is_open:
            self._wire.memory.dropped += 1
            self._abort_since(f"the peer does not read: {waited} bytes wait for it")

    def _abort_since(self, reason: str) -> None:
        self._wire.peer_log.report("connection closed", self.remote_address, reason)
        self.abort()


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
