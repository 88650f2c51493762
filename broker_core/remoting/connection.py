"""Read one peer's frames; send responses and requests to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from broker_core.errors import FrameError, RemotingSendError
from broker_core.isolation import isolated
from broker_core.listening.peer_address import peer_of
from broker_core.listening.turns import LONG_S, TURN_S
from broker_core.protocol.codes import ONEWAY_FLAG, RESPONSE_FLAG
from broker_core.protocol.frame import FrameDecoder
from broker_core.remoting.intake import ANSWER_BYTES, Intake
from broker_core.remoting.pending import PendingRequests
from broker_core.remoting.started_coroutine import resumed
from broker_core.remoting.wire import RECEIVE_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.deferred_answer import DeferredAnswer
    from broker_core.remoting.plain_requests import PlainRequests
    from broker_core.remoting.wire import Wire

FLUSH_BYTES = 256 * 1024
"""Collected responses of this size are written before the batch of requests ends."""
JOIN_BYTES = 128 * 1024
"""Above this size, joining the responses costs more than the transport's scatter write."""


class Connection(Intake, asyncio.BufferedProtocol):
    """A connection to one peer. Event loop only.

    Attributes:
        remote_address: the peer as "ip:port".
        remote_host: the peer in the form of stored messages: 4 or 16 bytes, then an int32 port.
        on_close: functions called once, with this connection, after it has ended.
        attributes: the owner's data about the peer.
        turn_began: when the current requests arrived, by the monotonic clock; 0 if the wire
            doesn't time turns.
    """

    __slots__ = (
        "__weakref__",
        "_active_at",
        "_dispatch",
        "_half_frame_since",
        "_is_flush_due",
        "_is_handling",
        "_out",
        "_out_bytes",
        "_peer",
        "_pending",
        "_was_active",
        "attributes",
        "on_close",
        "remote_host",
        "turn_began",
    )

    def __init__(self, wire: Wire, peer: tuple[str, int] | None = None) -> None:
        super().__init__(wire, FrameDecoder(wire.limits.frame))
        self.remote_host = b""
        self._peer = peer
        self.on_close: list[Callable[[Connection], None]] = []
        self.attributes: dict[str, Any] = {}
        self.turn_began = 0.0
        self._dispatch = wire.dispatcher.dispatch
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_handling = False
        self._is_flush_due = False
        self._was_active = True
        self._active_at = 0.0
        self._half_frame_since = -1.0
        self._pending = PendingRequests(wire.clock)

    def __repr__(self) -> str:
        return f"<Connection {self.remote_address}>"

    # Called by owners.

    @property
    def protocol(self) -> asyncio.BufferedProtocol:
        """Return the transport's protocol: the compiled receiver if there is one."""
        plain_requests = self._wire.plain_requests
        return self if plain_requests is None else plain_requests.protocol_of(self)

    def send(self, command: RemotingCommand | bytes, *, at_once: bool = False) -> None:
        """Send a command or a frame; one write carries everything sent in one turn of the loop.

        A closed connection silently drops it, because the peer has disconnected. `at_once` sends
        without waiting for the turn to end; under load, uvloop's transport joins these writes.
        """
        if self._transport is None:
            return
        for piece in (command,) if isinstance(command, bytes) else command.pieces(JOIN_BYTES):
            self._out.append(piece)
            self._out_bytes += len(piece)
        if at_once and not self._is_handling:
            self._flush()
        elif not self._is_handling and not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def oneway(self, command: RemotingCommand, *, at_once: bool = False) -> None:
        """Send a request without a response; see `send`."""
        command.flag |= ONEWAY_FLAG
        command.opaque = self._pending.new_opaque()
        self._sign(command)
        self.send(command, at_once=at_once)

    async def request(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and return the response. Both sides number their opaques independently.

        Raises:
            RemotingTimeoutError: no response arrived in time.
            RemotingSendError: the connection has ended.
        """
        if not self.is_open:
            raise RemotingSendError(f"the connection to {self.remote_address} is closed")
        pending, peer = self._pending, self.remote_address
        awaited = pending.expect(command, peer)
        self._sign(command)
        self.send(command)
        return await pending.answer_to(command, awaited, timeout_s, peer)

    def close(self) -> None:
        """Send everything passed to `send`, then close. Drop frames that weren't served."""
        self._decoder.discard()
        self._is_stopped = True
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def cancel_setup(self) -> None:
        """Close a connection whose setup task was cancelled.

        uvloop closes a transport created in that turn without calling `connection_lost`.
        """
        self.abort()
        self.connection_lost(None)

    # Called by the guard.

    @property
    def is_signed_in(self) -> bool:
        """Whether the limits for accounts apply."""
        return self._limits is self._wire.limits

    def sign_in(self) -> None:
        """Apply the limits for accounts; call this on the first authorized request."""
        wire = self._wire
        self._limits = wire.limits
        wire.kept_bytes_of_strangers -= self._kept_bytes
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=wire.limits.write_buffer_high)
        if wire.on_signed_in is not None:
            wire.on_signed_in(self)

    # Called by the dispatcher.

    def answer_later(
        self, command: RemotingCommand, answer: Coroutine[Any, Any, bytes | None]
    ) -> None:
        """Send the frame that a coroutine returns.

        The coroutine runs to its first wait immediately, so this work counts towards the turn.
        Closing the connection doesn't cancel it, because its work may be half done. With too many
        requests in flight the connection stops reading: once a handler has started a request, the
        broker can no longer answer "busy".
        """
        frame_bytes = self._decoder.frame_bytes + ANSWER_BYTES
        try:
            waits_for = answer.send(None)
        except StopIteration as end:
            self._serves_alone = False
            if end.value is not None:
                self.send(end.value)
            return
        # A request that is served alone counts as the maximum, so the connection stops reading.
        requests = self._limits.requests_in_flight_max if self._serves_alone else 1
        self._serves_alone = False
        self._begin(frame_bytes, requests)
        self._wire.owner.spawn(
            self._finish(resumed(answer, waits_for), frame_bytes, requests),
            name=f"answer to request {command.code}",
        )

    def answer_when(self, command: RemotingCommand, answer: DeferredAnswer) -> None:
        """Send an answer's frame when it is finished, like `answer_later` but without a task."""
        answer.command = command
        answer.frame_bytes = self._decoder.frame_bytes
        self._begin(answer.frame_bytes)
        answer.when_done(self._answered)

    def _answered(self, done: DeferredAnswer) -> None:
        self._end(done.frame_bytes)
        frame = self._wire.dispatcher.frame_of(done.command, self, done.outcome)
        if frame is not None:
            self.send(frame)

    def _answered_together(self, done: DeferredAnswer) -> None:
        self._end(done.frame_bytes, done.requests)
        self.send(done.outcome, at_once=True)

    async def _finish(
        self, answer: Awaitable[bytes | None], frame_bytes: int, requests: int
    ) -> None:
        try:
            frame = await answer
        finally:
            self._end(frame_bytes, requests)
        if frame is not None:
            self.send(frame)

    # Called by the sweep of the server or client.

    def sweep(self, now: float) -> None:
        """Close if the peer was silent, or left a frame unfinished, for too long."""
        limits = self._limits
        self._count_unread()
        if self._was_active:
            self._was_active = False
            self._active_at = now
        elif now - self._active_at >= limits.idle_s:
            self.close()
            # If the peer doesn't read either, a closing transport never finishes.
            if not self._is_writable:
                self.abort()
            return
        if self._half_frame_since >= 0 and self._is_read_from():
            waited = now - self._half_frame_since
            if waited >= limits.half_frame_s:
                self._wire.peer_log.report(
                    "connection closed",
                    self.remote_address,
                    f"the rest of a frame did not arrive within {limits.half_frame_s:g} s",
                )
                self.close()

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = self._wire
        self._transport = cast("asyncio.Transport", transport)
        self.remote_address, self.remote_host = peer_of(self._peer, transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_high)
        wire.connections[self] = None
        wire.memory.open(self)
        self._is_counted = True
        refusal = wire.on_made(self)
        if refusal is not None:
            wire.peer_log.report("connection refused", self.remote_address, refusal)
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._wire.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Serve the received bytes; the compiled version is in `native/receive.pxi`."""
        if self._is_stopped:
            return
        self._was_active = True
        plain_requests = self._wire.plain_requests
        size, is_tried = 0, False
        try:
            if (
                plain_requests is not None
                and self._is_writable
                and not (self._kept_bytes or self._out or self._is_crowded)
            ):
                size = self._serve_received(plain_requests, nbytes)
                if size == nbytes:
                    if nbytes == RECEIVE_BYTES:
                        self.end_full_buffer()
                    return
                is_tried = size == 0
            self.serve_rest(size, nbytes, is_tried=is_tried)
        except MemoryError:
            self.give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            # Never connected, or already closed.
            return
        wire = self._wire
        self._transport = None
        self._is_stopped = True
        self._out.clear()
        self._decoder.discard()
        self._keep(0)
        self._count_unread()
        if not self._in_flight:
            self._leave_budget()
        wire.connections.pop(self, None)
        if wire.drained is not None and not wire.connections and not wire.drained.done():
            wire.drained.set_result(None)
        self._pending.fail(self.remote_address)
        for callback in (wire.on_lost, *self.on_close):
            # Each callback removes the peer from another table.
            with isolated("cleaning up a closed connection", self.remote_address):
                callback(self)
        self.on_close.clear()

    # Called by the code that receives for this connection.

    def serve_rest(self, size: int, nbytes: int, *, is_tried: bool) -> None:
        """Serve the bytes received after the first `size`; `is_tried` means they aren't plain."""
        if self._is_stopped:
            return
        wire = self._wire
        self._decoder.feed(wire.receive_buffer[size:nbytes])
        if wire.turns.is_spent:
            self._settle(is_served=False)
            self._wait_for_turn()
        else:
            self._handle_frames(is_tried=is_tried)

    def end_full_buffer(self) -> None:
        """End the turn if full buffers used it up; more bytes are likely to wait in the socket."""
        turns = self._wire.turns
        if self.turn_began:
            turns.note(self._wire.clock.monotonic() - self.turn_began)
        if turns.is_spent:
            self._wait_for_turn()

    def send_answers(self, answers: bytes | DeferredAnswer | None) -> None:
        """Send the answers to plain requests, or queue them after earlier answers."""
        transport = self._transport
        if not isinstance(answers, bytes) or transport is None or self._out or self._is_stopped:
            if answers:
                self._collect(answers)
            self._flush()
        elif answers:
            transport.write(answers)
            if not self._is_writable:
                self._check_unread(len(answers))

    def give_up(self) -> None:
        """Close for lack of memory, without a response, because the work may be half done."""
        self._abort_since("there is no memory for its requests")

    # Internal.

    def _serve_received(self, plain_requests: PlainRequests, nbytes: int) -> int:
        """Serve the plain requests at the start of the received bytes; return their size.

        Most turns end here without decoder or dispatcher, so every call made here affects them all.
        """
        wire = self._wire
        on_turn = wire.on_turn
        started = self.turn_began = wire.clock.monotonic() if on_turn is not None else 0.0
        self._is_handling = True
        answers = plain_requests.serve(
            self,
            wire.receive_buffer,
            nbytes,
            self._decoder.frame_max,
            wire.dispatcher,
            FLUSH_BYTES,
            self._limits.requests_in_flight_max - self._in_flight,
        )
        size = plain_requests.served_bytes
        self._is_handling = False
        if on_turn is not None:
            on_turn(wire.clock.monotonic() - started)
        self.send_answers(answers)
        return size

    def _handle_frames(self, *, is_tried: bool = False) -> None:
        """Serve every complete frame received; send the answers that are ready in one write.

        `is_tried`: the first frame isn't plain.
        """
        dispatch = self._dispatch
        out = self._out
        wire = self._wire
        decoder = self._decoder
        plain_requests = wire.plain_requests
        monotonic = wire.clock.monotonic
        started = self.turn_began = monotonic()
        self._is_handling = True
        is_over = is_served = False
        if plain_requests is not None and not is_tried:
            is_served = self._serve_plain(plain_requests, started + TURN_S)
        has_room = (
            self._is_writable and not self._is_crowded and not (is_served and decoder.is_spent)
        )
        try:
            for command in decoder.commands() if has_room else ():
                if is_served and monotonic() - started >= TURN_S:
                    decoder.put_back()
                    is_over = True
                    break
                is_served = True
                if command.flag & RESPONSE_FLAG:
                    self._pending.resolve(command)
                    continue
                frame = dispatch(command, self)
                if frame is None:
                    if self._is_crowded:
                        break
                else:
                    out.append(frame)
                    self._out_bytes += len(frame)
                    if self._out_bytes >= FLUSH_BYTES:
                        self._flush()
                        if not self._is_writable:
                            break
                if plain_requests is not None:
                    self._serve_plain(plain_requests, started + TURN_S)
                    if self._is_crowded or not self._is_writable:
                        break
        except FrameError as error:
            wire.peer_log.report("connection closed", self.remote_address, error)
            self._is_handling = False
            self.close()
            return
        except MemoryError:
            self.give_up()
            return
        finally:
            # The frames served before an invalid frame count, too.
            took = monotonic() - started
            if wire.on_turn is not None:
                wire.on_turn(took)
        self._is_handling = False
        if out:
            self._flush()
        if not self._is_stopped:
            self._settle(is_served=is_served)
            if took >= LONG_S:
                self._is_long = True
                wire.turns.note(took)
                if is_over or wire.turns.is_spent:
                    self._wait_for_turn()
            elif self._is_long:
                self._is_long = False

    def _serve_plain(self, plain_requests: PlainRequests, until: float) -> bool:
        """Serve the plain requests that are next in the decoder; return whether there were any."""
        decoder = self._decoder
        monotonic = self._wire.clock.monotonic
        is_served = False
        while self._is_writable and not self._is_crowded and (rest := decoder.rest) is not None:
            answers = plain_requests.serve(
                self,
                rest,
                len(rest),
                decoder.frame_max,
                self._wire.dispatcher,
                FLUSH_BYTES - self._out_bytes,
                self._limits.requests_in_flight_max - self._in_flight,
            )
            size = plain_requests.served_bytes
            if not size:
                break
            decoder.skip(size)
            is_served = True
            if answers:
                self._collect(answers)
            if self._out_bytes >= FLUSH_BYTES:
                self._flush()
            if monotonic() >= until:
                break
        return is_served

    def _collect(self, answers: bytes | DeferredAnswer) -> None:
        """Collect the answers to plain requests; deferred answers follow once finished."""
        if isinstance(answers, bytes):
            self._out.append(answers)
            self._out_bytes += len(answers)
        else:
            self._begin(answers.frame_bytes, answers.requests)
            answers.when_done(self._answered_together)

    def _serve_kept(self) -> None:
        self._decoder.resume()
        self._half_frame_since = -1.0
        self._handle_frames()

    def _settle(self, *, is_served: bool) -> None:
        """Keep the start of the next frame and its time; abort above the limit for all peers."""
        wire = self._wire
        kept_bytes = self._decoder.settle()
        if kept_bytes == self._kept_bytes == 0:
            self._half_frame_since = -1.0
            return
        self._keep(kept_bytes)
        if kept_bytes == 0:
            self._half_frame_since = -1.0
        elif is_served or self._half_frame_since < 0:
            self._half_frame_since = wire.clock.monotonic()
        strangers = wire.limits.strangers
        if (
            kept_bytes
            and strangers is not None
            and not self.is_signed_in
            and wire.kept_bytes_of_strangers > strangers.kept_bytes_max
        ):
            self._abort_since(
                f"unfinished frames of peers that have not signed in hold "
                f"{wire.kept_bytes_of_strangers} bytes"
            )

    def _flush(self) -> None:
        self._is_flush_due = False
        out = self._out
        transport = self._transport
        if not out or transport is None:
            return
        if transport.is_closing():
            out.clear()
            self._out_bytes = 0
            return
        if self._is_writable:
            # Pushing to a peer that doesn't read must not count as activity.
            self._was_active = True
        if len(out) == 1:
            transport.write(out[0])
        elif self._out_bytes <= JOIN_BYTES:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)
        if not self._is_writable:
            self._check_unread(self._out_bytes)
        out.clear()
        self._out_bytes = 0

    def _sign(self, command: RemotingCommand) -> None:
        if self._wire.signer is not None:
            self._wire.signer.sign(command)
