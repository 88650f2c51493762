"""Accept connections and distinguish TLS from plain ones by the first byte.

The listener reads a PROXY header off the socket, if configured and sent by a trusted proxy, and
peeks at the next byte: TLS begins with 0x16, a remoting frame with 0 or 1, HTTP/2 with "P". Only
then does it create the transport, which reads from the socket as soon as it exists.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from broker_core.errors import FrameError
from broker_core.listening.tls import HANDSHAKE
from broker_core.protocol import proxy_header
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.clock import Clock
    from broker_core.listening.limits import ListenerLimits
    from broker_core.listening.peer_log import PeerLog
    from broker_core.listening.proxies import TrustedProxies
    from broker_core.listening.tls import TlsGate

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 64
HANDSHAKE_SECONDS = 15.0
NO_DESCRIPTORS_PAUSE_S = 1.0
PROXY_BYTES_MAX = 16 + proxy_header.ADDRESS_BYTES_MAX
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


async def listen(host: str, port: int, limits: ListenerLimits) -> list[socket.socket]:
    """Return listening sockets for all addresses of a host, on one port.

    Accepted connections inherit their buffer sizes.

    Raises:
        OSError: the host or the port is not available.
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
            limits.apply_to(one)
            one.bind(address)
            one.listen(limits.backlog)
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


def listen_at_path(path: str, limits: ListenerLimits) -> socket.socket:
    """Return a listening unix socket that only this process's user can connect to.

    Replaces a socket that an earlier process left behind, but not a socket in use.

    Raises:
        OSError: the socket can't be created.
    """
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        if _is_stale(path):
            Path(path).unlink()
        one.bind(path)
        # Before any client can connect, which requires the call below.
        Path(path).chmod(0o600)
        one.listen(limits.backlog)
    except OSError:
        one.close()
        raise
    return one


def _close(listening: socket.socket) -> None:
    if listening.family == socket.AF_UNIX:
        Path(listening.getsockname()).unlink(missing_ok=True)
    listening.close()


def _is_stale(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return Path(path).is_socket()
        except OSError:
            return False
        return False


def is_loopback(host: str) -> bool:
    """Return whether an address is a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AcceptedConnection(Protocol):
    """A server's connection on an accepted socket."""

    @property
    def protocol(self) -> asyncio.BaseProtocol:
        """The protocol of the socket's transport."""
        ...

    def cancel_setup(self) -> None:
        """Close a connection whose setup task was cancelled."""
        ...


class Listener(Service):
    """Accepts connections on its sockets for a server. Event loop only.

    `accepted` creates the server's connection; its argument is the address from a PROXY header, or
    None. `connections` returns the server's number of connections.
    """

    def __init__(
        self,
        accepted: Callable[[tuple[str, int] | None], AcceptedConnection],
        connections: Callable[[], int],
        sockets: Sequence[socket.socket],
        limits: ListenerLimits,
        clock: Clock,
        peer_log: PeerLog,
        *,
        tls: TlsGate | None,
        proxies: TrustedProxies | None,
    ) -> None:
        super().__init__()
        self._accepted = accepted
        self._connections = connections
        self._limits = limits
        self._clock = clock
        self._peer_log = peer_log
        self._sockets = list(sockets)
        self._tls = tls
        self._proxies = proxies
        self._greetings: dict[Greeting, None] = {}
        self._adopting: set[socket.socket] = set()

    def start(self) -> None:
        self._resume()

    async def shutdown(self) -> None:
        """Stop accepting; close the peers that haven't sent their first byte."""
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.remove_reader(one)
            _close(one)
        self._sockets.clear()
        for greeting in list(self._greetings):
            greeting.close()
        await super().shutdown()
        # A task cancelled before its first step runs no code, not even a finally.
        for peer in self._adopting:
            peer.close()
        self._adopting.clear()

    def sweep(self, now: float) -> None:
        """Close the peers that have sent nothing for `idle_s`."""
        limits = self._limits
        idle_s = (limits.strangers or limits).idle_s
        for greeting in list(self._greetings):
            if now - greeting.since >= idle_s:
                greeting.close()

    def adopt(self, peer: socket.socket, proxied: tuple[str, int] | None, *, is_tls: bool) -> None:
        """Create a connection from a socket; `proxied` is the address from a PROXY header."""
        self._adopting.add(peer)
        self.spawn(self._adopt(peer, proxied, is_tls=is_tls), name="accept")

    def forget(self, greeting: Greeting) -> None:
        self._greetings.pop(greeting, None)

    def report(self, peer: socket.socket, reason: object) -> None:
        """Log why a socket closes before it becomes a connection."""
        try:
            address = "{}:{}".format(*peer.getpeername()[:2])
        except (OSError, IndexError):
            # The peer has disconnected, or it used a unix socket.
            address = ""
        self._peer_log.report("connection closed", address, reason)

    def decide(self, first: int) -> bool | None:
        """Return whether a connection with this first byte is TLS, or None to refuse it."""
        tls = self._tls
        if first == HANDSHAKE and tls is not None and tls.takes_tls:
            return True
        if tls is not None and not tls.takes_plain:
            return None
        # The connection's decoder refuses an unwanted TLS hello, and reports that.
        return False

    def _is_full(self) -> str:
        """Return why no more peers are accepted, or an empty text."""
        limits, waiting = self._limits, len(self._greetings)
        if self._connections() + waiting >= limits.connections_max:
            return f"more than {limits.connections_max} connections"
        if limits.strangers is not None and waiting >= limits.strangers.connections_max:
            return (
                f"more than {limits.strangers.connections_max} connections that have sent nothing"
            )
        return ""

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                peer, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS:
                    raise
                logger.warning("connections not accepted reason=%s", error)
                self._pause()
                return
            peer.setblocking(False)
            full = self._is_full()
            if full:
                self.report(peer, full)
                peer.close()
                continue
            proxies = self._proxies
            if proxies is not None and not proxies.is_trusted(address[0]):
                reason = proxies.refusal(address[0])
                if reason is not None:
                    self.report(peer, reason)
                peer.close()
                continue
            if self._tls is None and proxies is None:
                self.adopt(peer, None, is_tls=False)
            else:
                now = self._clock.monotonic()
                greeting = Greeting(self, peer, now, is_proxied=proxies is not None)
                self._greetings[greeting] = None
                greeting.start()

    def _pause(self) -> None:
        """Pause for a second, because a listening socket stays ready without free descriptors."""
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.remove_reader(one)
        clock = self._clock
        clock.call_at(clock.monotonic() + NO_DESCRIPTORS_PAUSE_S, self._resume)

    def _resume(self) -> None:
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.add_reader(one, self._accept, one)

    async def _adopt(
        self, peer: socket.socket, proxied: tuple[str, int] | None, *, is_tls: bool
    ) -> None:
        context: ssl.SSLContext | None = None
        if is_tls:
            assert self._tls is not None
            context = await self._tls.context()
            if context is None:
                self._adopting.discard(peer)
                peer.close()
                return
        # From here on the loop owns the socket, and the transport closes it.
        self._adopting.discard(peer)
        connection = self._accepted(proxied)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection.protocol,
                peer,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if is_tls else None,
            )
        except (OSError, ssl.SSLError) as error:
            # The peer went away, or the TLS handshake failed.
            self._peer_log.report("connection closed", str(proxied or ""), error)
        except asyncio.CancelledError:
            connection.cancel_setup()
            raise


class Greeting:
    """A socket that waits for its first bytes. Event loop only."""

    __slots__ = ("_client_address", "_head", "_is_proxied", "_listener", "_peer", "since")

    def __init__(
        self, listener: Listener, peer: socket.socket, since: float, *, is_proxied: bool
    ) -> None:
        self.since = since
        self._listener = listener
        self._peer = peer
        self._is_proxied = is_proxied
        self._head = b""
        self._client_address: tuple[str, int] | None = None

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._peer, self._ready)
        # Most clients send immediately: read without waiting for the next turn of the loop.
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
                self._listener.report(self._peer, "this port accepts TLS only")
            self.close()
            return
        self._leave()
        self._listener.adopt(self._peer, self._client_address, is_tls=is_tls)

    def _leave(self) -> None:
        asyncio.get_running_loop().remove_reader(self._peer)
        self._listener.forget(self)

    def _read_proxy_header(self) -> bool:
        """Read only the header off the socket; False while it is incomplete."""
        seen = self._peer.recv(PROXY_BYTES_MAX, socket.MSG_PEEK)
        if not seen:
            raise ConnectionResetError("the peer closed the connection")
        header = proxy_header.parse(self._head + seen)
        if header is None:
            # All bytes seen belong to the header; read them, or the socket stays ready.
            self._head += self._peer.recv(len(seen))
            return False
        self._peer.recv(header.size - len(self._head))
        self._client_address = header.source
        self._is_proxied = False
        return True
