"""HaMaster: serves the log to slaves on the HA port.

Source: store/ha/HAService.java (4.9.8).
Differs: the peer's address is checked against haAllowedAddresses before a byte is read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from broker_core.errors import RemotingError
from broker_core.ha.connection import HaConnection, SlaveConnection
from broker_core.isolation import isolated
from broker_core.listening.listener import listen
from broker_core.remoting.limits import RemotingLimits
from broker_core.service import Service

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from broker_core.clock import Clock
    from broker_core.config.ha import HaConfig
    from broker_core.counted_log import CountedLog
    from broker_core.listening.tls import TlsGate
    from broker_core.remoting.allowed_peers import AllowedPeers
    from broker_core.store.commit_log import CommitLog

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
"""Slaves and any other connections."""
CONNECTIONS_OF_HOST_MAX = 16
"""A host's limit leaves room for slaves on other hosts, which reconnect after each start."""
COLD_READ_THREADS = 2
HANDSHAKE_SECONDS = 15.0
TEND_SECONDS = 1.0
SAMPLES_MAX = 3_600
"""How many seconds of history are kept of where the log ended."""
ANY_END = 1 << 62
GONE = -1
"""The reported offset of a slave whose connection has ended."""


class HaMaster(Service):
    """Event loop only. A slave serves the log, too, to its own slaves.

    Attributes:
        on_acknowledged: called when a slave has reported, connected or disconnected, and each
            second.
        on_report: called with a slave and the offset that it reported; None if unused.
    """

    def __init__(
        self,
        config: HaConfig,
        clock: Clock,
        log: CommitLog,
        counted_log: CountedLog,
        allowed: AllowedPeers,
        tls: TlsGate | None,
        sendable_where: Callable[[], int] | None = None,
    ) -> None:
        """With tls, connections are encrypted and plaintext connections are refused.

        Slaves get the log up to `sendable_where()`, by default everything in the files; call
        `flushed` when it has grown.
        """
        super().__init__()
        self.on_acknowledged: Callable[[], None] = _nothing
        self.on_report: Callable[[str, int], None] | None = None
        self._config = config
        self._clock = clock
        self._log = log
        self._counted_log = counted_log
        self._allowed = allowed
        self._tls = tls
        self._sendable_where = sendable_where
        self._connections: list[HaConnection] = []
        self._adopting: dict[socket.socket, str] = {}
        """Sockets whose connections are being set up -> host."""
        self._sockets: list[socket.socket] = []
        self._cold_reads = ThreadPoolExecutor(COLD_READ_THREADS, "ha-read")
        self._ends: deque[tuple[float, int]] = deque(maxlen=SAMPLES_MAX)
        self._is_pump_due = False

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which the system chooses if `port` is 0.

        Raises:
            RemotingError: it can't listen there; the text is one sentence.
        """
        limits = RemotingLimits(backlog=CONNECTIONS_MAX)
        try:
            self._sockets = await listen(host, port, limits)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise RemotingError(
                f"the HA service cannot listen on {host}:{port}: {reason.lower()}; "
                "haListenPort sets another port"
            ) from error
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.add_reader(one, self._accept, one)
        self._log.on_growth = self._grown
        self.spawn_forever(self._clock, self._maintain_forever, name="ha-tend")
        bound: int = self._sockets[0].getsockname()[1]
        return bound

    async def shutdown(self) -> None:
        """Stop listening and end all connections."""
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.remove_reader(one)
            one.close()
        self._sockets.clear()
        for connection in list(self._connections):
            connection.close("")
        await super().shutdown()
        # A task cancelled before its first step runs nothing, not even a finally.
        while self._adopting:
            self._adopting.popitem()[0].close()
        self._cold_reads.shutdown()

    def connections(self) -> list[SlaveConnection]:
        """Return the state of each connected slave."""
        now = self._clock.monotonic()
        return [self._state_of(connection, now) for connection in self._connections]

    def replicated_where(self, slaves: int) -> int:
        """Return the offset up to which this many slaves have the log; -1 when there are fewer."""
        if slaves <= 0:
            return ANY_END
        found = sorted((one.acknowledged_offset for one in self._connections), reverse=True)
        return found[slaves - 1] if len(found) >= slaves else -1

    def in_sync_slaves(self, commit_log_offset: int) -> int:
        """Return how many slaves are connected and less than haSlaveFallbehindMax behind."""
        least = commit_log_offset - self._config.ha_slave_fallbehind_max
        return sum(
            one.acknowledged_offset > least and one.requested_offset >= 0
            for one in self._connections
        )

    def needed_from(self) -> int:
        """Return the first offset that a connected slave still needs."""
        return min(
            (
                max(one.acknowledged_offset, one.begin_offset)
                for one in self._connections
                if one.requested_offset >= 0
            ),
            default=ANY_END,
        )

    def disconnect_all(self, reason: str) -> None:
        """End all connections; slaves reconnect."""
        for connection in list(self._connections):
            with isolated("closing a slave's connection", connection.address):
                connection.close(reason)

    def connected(self, connection: HaConnection) -> None:
        self._connections.append(connection)
        self.on_acknowledged()

    def acknowledged(self, connection: HaConnection) -> None:
        if self.on_report is not None:
            self.on_report(connection.address, connection.acknowledged_offset)
        self.on_acknowledged()

    def sendable_where(self) -> int:
        if self._sendable_where is None:
            return self._log.committed_where
        return self._sendable_where()

    def flushed(self) -> None:
        """Send the data that slaves may have now."""
        if self._connections:
            self._grown()

    def sent_everything(self) -> None:
        self._log.watch_growth()

    def disconnected(self, connection: HaConnection, reason: str) -> None:
        self._connections.remove(connection)
        if self.on_report is not None:
            self.on_report(connection.address, GONE)
        host = connection.address.rpartition(":")[0]
        if reason:
            self._report("HA connection closed", host, reason)
        if connection.requested_offset >= 0:
            logger.info(
                "slave disconnected address=%s acknowledged_offset=%d",
                connection.address,
                connection.acknowledged_offset,
            )
        self.on_acknowledged()

    def _state_of(self, one: HaConnection, now: float) -> SlaveConnection:
        end = self._log.committed_where
        behind = end - max(one.acknowledged_offset, 0)
        least = end - self._config.ha_slave_fallbehind_max
        return SlaveConnection(
            address=one.address,
            requested_offset=one.requested_offset,
            acknowledged_offset=one.acknowledged_offset,
            transferred_offset=one.next_offset,
            behind_bytes=behind,
            behind_seconds=self._behind_seconds(one.acknowledged_offset, now) if behind else 0.0,
            last_contact_seconds=now - one.last_read,
            transfer_bytes_per_second=one.transfer_bytes_per_second,
            is_in_sync=one.requested_offset >= 0 and one.acknowledged_offset > least,
        )

    def _behind_seconds(self, commit_log_offset: int, now: float) -> float:
        """Return how long ago the log ended at an offset, as far as known."""
        for when, end in reversed(self._ends):
            if end <= commit_log_offset:
                return now - when
        return now - self._ends[0][0]

    def _grown(self) -> None:
        """Send after the current turn of the loop, so that the puts of a turn go out together."""
        if not self._is_pump_due:
            self._is_pump_due = True
            asyncio.get_running_loop().call_soon(self._pump_all)

    def _pump_all(self) -> None:
        self._is_pump_due = False
        for connection in list(self._connections):
            self._serve(connection, connection.pump)

    @staticmethod
    def _serve(connection: HaConnection, serve: Callable[[], None]) -> None:
        """Serve one slave; if that fails, close only its connection, and it reconnects."""
        with isolated("the transfer to a slave", connection.address) as one:
            serve()
        if one.error is not None:
            connection.close("this broker failed; see its log")

    async def _maintain_forever(self) -> None:
        while True:
            now = self._clock.monotonic()
            self._ends.append((now, self._log.committed_where))
            # Apply configuration that may change while the broker runs.
            with isolated("reporting the slaves' offsets"):
                self.on_acknowledged()
            for connection in list(self._connections):
                self._serve(connection, partial(connection.tend, now))
            pause = min(TEND_SECONDS, self._config.ha_send_heartbeat_interval / 1000)
            await self._clock.sleep(pause)

    def _accept(self, listening: socket.socket) -> None:
        try:
            peer, address = listening.accept()
        except OSError:
            # The peer has disconnected, or no descriptors are free; the kernel then keeps the
            # connection waiting.
            return
        peer.setblocking(False)
        host = str(address[0])
        reason = self._allowed.refusal(host)
        if reason is None:
            reason = self._lack_of_room(host)
        if reason is not None:
            self._report("HA connection refused", host, reason)
            peer.close()
            return
        self._adopting[peer] = host
        self.spawn(self._adopt(peer, host, address[1]), name="ha-accept")

    def _lack_of_room(self, host: str) -> str | None:
        """Return why there is no room for one more connection from a host, or None."""
        hosts = [one.address.rpartition(":")[0] for one in self._connections]
        hosts += self._adopting.values()
        if len(hosts) >= CONNECTIONS_MAX:
            return f"there are {CONNECTIONS_MAX} connections"
        if hosts.count(host) >= CONNECTIONS_OF_HOST_MAX:
            return f"there are {CONNECTIONS_OF_HOST_MAX} connections from this host"
        return None

    async def _adopt(self, peer: socket.socket, host: str, port: int) -> None:
        context: ssl.SSLContext | None = None
        if self._tls is not None:
            context = await self._tls.context()
            if context is None:
                self._adopting.pop(peer, None)
                peer.close()
                reason = "haTls is set, but there is no certificate (tls.server.certPath)"
                self._report("HA connection refused", host, reason)
                return
        self._adopting.pop(peer, None)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: HaConnection(
                    self._config,
                    self._clock,
                    self._log,
                    self._cold_reads,
                    self,
                    f"{host}:{port}",
                ),
                peer,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if context is not None else None,
            )
        except (OSError, ssl.SSLError) as error:
            self._report("HA connection refused", host, str(error))

    def _report(self, event: str, host: str, reason: str) -> None:
        self._counted_log.report(
            logger, logging.WARNING, event, f"host={host}", "reason=%s", reason
        )


def _nothing() -> None:
    """Do nothing; the default callback."""
