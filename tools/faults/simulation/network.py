"""Network: connections between the simulated hosts, with delay, loss and partitions.

Bytes of one direction arrive in order, in pieces of any size. A partition holds them back, as TCP
does until it gives up; connections are independent of each other. A killed process's kernel closes
its connections; a host without power is silent until it's back, and then resets any sender.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

from tools.faults.simulation.node import NOBODY, PROCESS, Process

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tools.faults.simulation.loop import SimulatedLoop

KERNEL_BYTES = 64 * 1024
QUICK_S, SLOW_S = 0.0003, 0.05
SLOW_SHARE, SPLIT_SHARE = 0.03, 0.1
TICK_S = 1e-7
CONNECT_AGAIN_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""A kernel's waits between connection attempts to a silent host."""
FIRST_PORT = 40_000
END = b""
"""Marks the end of the stream in a pipe."""


class Endpoint(asyncio.Transport):
    """One end of a connection: an accepted socket first, then a transport."""

    family = socket.AF_INET

    def __init__(
        self, network: Network, process: Process, here: tuple[str, int], there: tuple[str, int]
    ) -> None:
        super().__init__()
        self.process = process
        self.here, self.there = here, there
        self.peer: Endpoint
        self._network = network
        self._protocol: Any = None
        self._arrived: deque[bytes] = deque()
        self._watch: tuple[Callable[..., object], tuple[Any, ...]] | None = None
        self._high = KERNEL_BYTES
        self._on_the_way = 0
        self._last_at = 0.0
        self._is_closing = self._is_lost = False
        self._is_reading = True
        self._is_full = False

    # Socket methods.

    def fileno(self) -> int:
        """Return -1, so that no call bypasses the transport."""
        return -1

    def watch(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._watch = callback, arguments
        if self._arrived:
            self._network.loop.call_soon(callback, *arguments)

    def unwatch(self) -> None:
        self._watch = None

    def setblocking(self, flag: bool) -> None:
        """Do nothing; calls never block here."""

    def setsockopt(self, *_: object) -> None:
        """Do nothing; there are no options."""

    def getpeername(self) -> tuple[str, int]:
        return self.there

    def getsockname(self) -> tuple[str, int]:
        return self.here

    def recv(self, count: int, flags: int = 0) -> bytes:
        assert flags == socket.MSG_PEEK, "a greeting looks at the first byte"
        if not self._arrived:
            raise BlockingIOError
        return self._arrived[0][:count]

    def adopt(self, make: Callable[[], Any]) -> Any:
        """Become the transport of a new protocol."""
        self._protocol = make()
        self._protocol.connection_made(self)
        self._network.loop.call_soon(self._drain)
        return self._protocol

    # Transport methods.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": self, "peername": self.there, "sockname": self.here}.get(name, default)

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = KERNEL_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return max(0, self._on_the_way - KERNEL_BYTES)

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._network.loop.call_soon(self._drain)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not self.process.is_alive or not data:
            return
        copy = bytes(data)
        self._on_the_way += len(copy)
        self._network.carry(self, copy)
        if not self._is_full and self.get_write_buffer_size() > self._high:
            self._is_full = True
            self._protocol.pause_writing()

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._network.carry(self, END)
            self._network.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if not self._is_lost:
            self._is_closing = True
            self._network.reset(self)
            self._network.loop.call_soon(self._lose, None)

    # Network methods.

    def arrive(self, data: bytes) -> None:
        """Receive bytes, within the process."""
        if self._is_lost or self._is_closing:
            return
        self._arrived.append(data)
        if self._protocol is not None:
            self._drain()
        elif self._watch is not None:
            callback, arguments = self._watch
            callback(*arguments)

    def delivered(self, size: int) -> None:
        """Note that sent bytes have arrived."""
        self._on_the_way -= size
        if self._is_full and self.get_write_buffer_size() <= self._high // 4:
            self._is_full = False
            if not self._is_lost:
                self.process.run(self._protocol.resume_writing)

    def was_reset(self) -> None:
        """Lose the connection, within the process."""
        self._is_closing = True
        self._lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def next_time(self, earliest: float) -> float:
        """Return the arrival time of a write: not before earlier writes."""
        # Timers of the same time have no order.
        self._last_at = max(self._last_at + TICK_S, earliest)
        return self._last_at

    def _drain(self) -> None:
        protocol = self._protocol
        while self._arrived and self._is_reading and not self._is_closing:
            data = self._arrived.popleft()
            if data == END:
                self._is_closing = True
                self._network.carry(self, END)
                self._lose(None)
            elif isinstance(protocol, asyncio.BufferedProtocol):
                self._fill(data)
            else:
                protocol.data_received(data)

    def _fill(self, data: bytes) -> None:
        while data and not self._is_closing:
            room = memoryview(self._protocol.get_buffer(-1))
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self._protocol.buffer_updated(size)
            if data and not self._is_reading:
                self._arrived.appendleft(data)
                return

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._network.forget(self)
            if self._protocol is not None:
                self._protocol.connection_lost(error)


class Listening:
    """A listening socket."""

    family = socket.AF_INET

    def __init__(self, network: Network, process: Process, port: int) -> None:
        self.process = process
        self._network = network
        self._place = process.host, port
        self._waiting: deque[Endpoint] = deque()
        self._watch: tuple[Callable[..., object], tuple[Any, ...]] | None = None

    def watch(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._watch = callback, arguments
        for _ in self._waiting:
            self._network.loop.call_soon(callback, *arguments)

    def unwatch(self) -> None:
        self._watch = None

    def getsockname(self) -> tuple[str, int]:
        return self._place

    def accept(self) -> tuple[Endpoint, tuple[str, int]]:
        if not self._waiting:
            raise BlockingIOError
        one = self._waiting.popleft()
        return one, one.there

    def close(self) -> None:
        self._network.listening.pop(self._place, None)

    def take(self, one: Endpoint) -> None:
        """Queue a connection for `accept`, within the process."""
        self._waiting.append(one)
        if self._watch is not None:
            callback, arguments = self._watch
            callback(*arguments)


class Network:
    """All hosts of a run, and the data in flight between them.

    `log_event` receives each arrival, for the trace.
    """

    def __init__(self, loop: SimulatedLoop, dice: Random, log_event: Callable[[str], None]) -> None:
        self.loop = loop
        self.listening: dict[tuple[str, int], Listening] = {}
        self.without_power: set[str] = set()
        self._dice = dice
        self._log_event = log_event
        self._parted: set[frozenset[str]] = set()
        self._held: list[tuple[Endpoint, bytes]] = []
        self._endpoints: dict[Endpoint, None] = {}
        self._next_port = FIRST_PORT
        loop.connect = self._connect

    async def listen(self, host: str, port: int, limits: object) -> list[Listening]:
        """Replace `broker_core.listening.listener.listen`."""
        process = PROCESS.get()
        assert process is not None
        place = process.host, port
        known = self.listening.get(place)
        if known is not None and known.process.is_alive:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        one = self.listening[place] = Listening(self, process, port)
        return [one]

    def part(self, one: str, other: str) -> None:
        """Hold back all data between two hosts."""
        self._parted.add(frozenset((one, other)))

    def heal(self) -> None:
        """End all partitions; held-back data arrives."""
        self._parted.clear()
        held, self._held = self._held, []
        for one, data in held:
            self._send(one, data)

    def close_of(self, process: Process) -> None:
        """Close a killed process's connections, as its kernel does."""
        self._held = [one for one in self._held if one[0].process is not process]
        for one in [one for one in self._endpoints if one.process is process]:
            self._endpoints.pop(one, None)
            self.reset(one)

    def break_one(self) -> None:
        """Lose a connection: both ends are reset."""
        alive = [one for one in self._endpoints if one.process.is_alive]
        if alive:
            one = self._dice.choice(alive)
            for end in (one, one.peer):
                end.process.run(end.was_reset)

    def carry(self, one: Endpoint, data: bytes) -> None:
        """Deliver bytes, or the end of the stream, to the peer."""
        if len(data) > 1 and self._dice.random() < SPLIT_SHARE:
            cut = self._dice.randrange(1, len(data))
            self._send(one, data[:cut])
            data = data[cut:]
        self._send(one, data)

    def reset(self, one: Endpoint) -> None:
        """Notify the peer that the connection is lost."""
        when = one.next_time(self.loop.now + self._latency())
        NOBODY.run(self.loop.call_at, when, self._reset, one.peer)

    def forget(self, one: Endpoint) -> None:
        self._endpoints.pop(one, None)

    def _reset(self, one: Endpoint) -> None:
        self._log_event(f"reset {one.there}>{one.here}")
        one.process.run(one.was_reset)

    def _latency(self) -> float:
        is_slow = self._dice.random() < SLOW_SHARE
        return self._dice.random() * (SLOW_S if is_slow else QUICK_S)

    def _is_parted(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._parted

    def _send(self, one: Endpoint, data: bytes) -> None:
        if self._is_parted(one.here[0], one.there[0]):
            self._held.append((one, data))
            return
        when = one.next_time(self.loop.now + self._latency())
        NOBODY.run(self.loop.call_at, when, self._arrive, one, data)

    def _arrive(self, one: Endpoint, data: bytes) -> None:
        peer = one.peer
        if self._is_parted(one.here[0], one.there[0]):
            self._held.append((one, data))
            return
        if one.there[0] in self.without_power:
            return
        digest = hashlib.blake2b(data, digest_size=4).hexdigest()
        self._log_event(f"{one.here}>{one.there} {len(data)} {digest}")
        one.delivered(len(data))
        if peer.process.is_alive:
            peer.process.run(peer.arrive, data)
        elif one.process.is_alive:
            # The connection has no owner left.
            one.process.run(one.was_reset)

    async def _connect(self, make: Callable[[], Any], host: str, port: int) -> tuple[Endpoint, Any]:
        process = PROCESS.get()
        assert process is not None
        await asyncio.sleep(self._latency())
        for pause_s in CONNECT_AGAIN_S:
            if not self._is_parted(process.host, host) and host not in self.without_power:
                break
            await asyncio.sleep(pause_s)
        else:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        listening = self.listening.get((host, port))
        if listening is None or not listening.process.is_alive:
            await asyncio.sleep(self._latency())
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._next_port += 1
        here, there = (process.host, self._next_port), (host, port)
        one = Endpoint(self, process, here, there)
        other = Endpoint(self, listening.process, there, here)
        one.peer, other.peer = other, one
        self._endpoints[one] = self._endpoints[other] = None
        listening.process.run(listening.take, other)
        await asyncio.sleep(self._latency())
        if one.is_closing():
            # Reset before there was a protocol to notify.
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        return one, one.adopt(make)
