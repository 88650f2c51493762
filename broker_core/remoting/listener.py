"""Listener: accepts connections, learns from their first bytes what they are.

A PROXY header (when asked for) is read off the socket, then one byte is looked at, not taken: TLS
begins with 0x16, a frame with 0 or 1. Only then is the transport made, since a transport that
exists has already read.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import ssl
from typing import TYPE_CHECKING

from broker_core.errors import FrameError
from broker_core.protocol import proxy_header
from broker_core.remoting.connection import Connection
from broker_core.remoting.tls import HANDSHAKE
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.remoting.connection import Wire
    from broker_core.remoting.tls import TlsGate

logger = logging.getLogger(__name__)

BACKLOG = 1024
ACCEPTS_PER_TURN = 64
HANDSHAKE_SECONDS = 15.0
NO_DESCRIPTORS_PAUSE_S = 1.0
PROXY_BYTES_MAX = 16 + proxy_header.ADDRESS_BYTES_MAX
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


async def listen(host: str, port: int) -> list[socket.socket]:
    """Return listening sockets of an address, all on one port.

    Raises:
        OSError: it cannot be listened on.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            sockets.append(one)
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.listen(BACKLOG)
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


def is_loopback(host: str) -> bool:
    """Say whether an address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Listener(Service):
    """Takes what connects to its sockets and makes Connections of it. Event loop only."""

    def __init__(
        self,
        wire: Wire,
        sockets: Sequence[socket.socket],
        *,
        tls: TlsGate | None,
        is_proxied: bool,
    ) -> None:
        super().__init__()
        self._wire = wire
        self._sockets = list(sockets)
        self._tls = tls
        self._is_proxied = is_proxied
        self._greetings: set[Greeting] = set()
        self._adopting: set[socket.socket] = set()

    def start(self) -> None:
        self._resume()

    async def shutdown(self) -> None:
        """Accept nothing more; who has not said what it is yet is closed."""
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.remove_reader(one)
            one.close()
        self._sockets.clear()
        for greeting in list(self._greetings):
            greeting.close()
        await super().shutdown()
        # Of a task that was cancelled before its first step nothing has run, not even a finally.
        for peer in self._adopting:
            peer.close()
        self._adopting.clear()

    def sweep(self, now: float) -> None:
        """Close those that have said nothing for as long as a connection may be idle."""
        for greeting in list(self._greetings):
            if now - greeting.since >= self._wire.limits.idle_s:
                greeting.close()

    def adopt(self, peer: socket.socket, told: tuple[str, int] | None, *, is_tls: bool) -> None:
        """Make a Connection of a socket whose kind is known."""
        self._adopting.add(peer)
        self.spawn(self._adopt(peer, told, is_tls=is_tls), name="accept")

    def forget(self, greeting: Greeting) -> None:
        self._greetings.discard(greeting)

    def report(self, peer: socket.socket, reason: object) -> None:
        """Log why a connection is closed that was not a Connection yet."""
        try:
            address = "{}:{}".format(*peer.getpeername()[:2])
        except OSError:
            address = ""
        self._wire.peer_log.report("connection closed", address, reason)

    def decide(self, first: int) -> bool | None:
        """Return whether a connection with this first byte is TLS, None when it is not welcome."""
        tls = self._tls
        if first == HANDSHAKE and tls is not None and tls.takes_tls:
            return True
        if tls is not None and not tls.takes_plain:
            return None
        # A TLS hello that nobody wants is a frame of 369 MB to the decoder, which says so.
        return False

    def _accept(self, listening: socket.socket) -> None:
        wire = self._wire
        for _ in range(ACCEPTS_PER_TURN):
            try:
                peer, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS:
                    raise
                logger.warning("no connection can be accepted: %s", error)
                self._pause()
                return
            peer.setblocking(False)
            if len(wire.connections) + len(self._greetings) >= wire.limits.connections_max:
                self.report(peer, f"more than {wire.limits.connections_max} connections")
                peer.close()
                continue
            if self._tls is None and not self._is_proxied:
                self.adopt(peer, None, is_tls=False)
            else:
                greeting = Greeting(self, peer, wire.clock.monotonic(), is_proxied=self._is_proxied)
                self._greetings.add(greeting)
                greeting.start()

    def _pause(self) -> None:
        """Without descriptors a listening socket stays ready: look again in a second."""
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.remove_reader(one)
        clock = self._wire.clock
        clock.call_at(clock.monotonic() + NO_DESCRIPTORS_PAUSE_S, self._resume)

    def _resume(self) -> None:
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.add_reader(one, self._accept, one)

    async def _adopt(
        self, peer: socket.socket, told: tuple[str, int] | None, *, is_tls: bool
    ) -> None:
        context: ssl.SSLContext | None = None
        if is_tls:
            assert self._tls is not None
            context = await self._tls.context()
            if context is None:
                self._adopting.discard(peer)
                peer.close()
                return
        # From here on the socket is the loop's, and its transport closes it.
        self._adopting.discard(peer)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Connection(self._wire, told),
                peer,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if is_tls else None,
            )
        except (OSError, ssl.SSLError) as error:
            # The peer went away, or cannot agree on how to be secured.
            self._wire.peer_log.report("connection closed", str(told or ""), error)


class Greeting:
    """A socket of which the first bytes are awaited. Event loop only."""

    __slots__ = ("_head", "_is_proxied", "_listener", "_peer", "_told", "since")

    def __init__(
        self, listener: Listener, peer: socket.socket, since: float, *, is_proxied: bool
    ) -> None:
        self.since = since
        self._listener = listener
        self._peer = peer
        self._is_proxied = is_proxied
        self._head = b""
        self._told: tuple[str, int] | None = None

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._peer, self._ready)
        # Most clients send at once: what is there already need not wait for the next turn.
        self._ready()

    def close(self) -> None:
        self._leave()
        self._peer.close()

    def _ready(self) -> None:
        try:
            if self._is_proxied and not self._read_proxy_header():
                return
            first = self._peer.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        except FrameError as error:
            self._listener.report(self._peer, error)
            self.close()
            return
        is_tls = self._listener.decide(first[0]) if first else None
        if is_tls is None:
            if first:
                self._listener.report(self._peer, "this port takes TLS only")
            self.close()
            return
        self._leave()
        self._listener.adopt(self._peer, self._told, is_tls=is_tls)

    def _leave(self) -> None:
        asyncio.get_running_loop().remove_reader(self._peer)
        self._listener.forget(self)

    def _read_proxy_header(self) -> bool:
        """Take the header off the socket and nothing behind it; False while it is not whole."""
        seen = self._peer.recv(PROXY_BYTES_MAX, socket.MSG_PEEK)
        if not seen:
            raise ConnectionResetError("the peer closed the connection")
        header = proxy_header.parse(self._head + seen)
        if header is None:
            # Everything seen is of the header. Taken, lest the socket stay ready all the time.
            self._head += self._peer.recv(len(seen))
            return False
        self._peer.recv(header.size - len(self._head))
        self._told = header.source
        self._is_proxied = False
        return True
