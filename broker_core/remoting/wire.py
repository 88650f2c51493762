"""The state that all connections of one server or client share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker_core.clock import wait_within
from broker_core.listening.budgets import Budgets

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock
    from broker_core.listening.peer_log import PeerLog
    from broker_core.protocol.signature import RequestSigner
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Dispatcher
    from broker_core.remoting.intake import Intake
    from broker_core.remoting.limits import RemotingLimits
    from broker_core.remoting.plain_requests import PlainRequests
    from broker_core.service import Service

RECEIVE_BYTES = 256 * 1024


class Wire:
    """Shared state. Event loop only.

    The connections share one receive buffer: the loop asks a connection for it, fills it and hands
    it over in one step, and the connection copies the rest before the next connection's turn. So an
    idle connection holds no buffer.

    Attributes:
        plain_requests: gets each frame first; None if no such code is installed.
    """

    __slots__ = (
        "answered",
        "clock",
        "connections",
        "dispatcher",
        "drained",
        "in_flight",
        "kept_bytes",
        "kept_bytes_of_strangers",
        "limits",
        "memory",
        "on_lost",
        "on_made",
        "on_signed_in",
        "on_turn",
        "on_writable",
        "owner",
        "peer_log",
        "plain_requests",
        "receive_buffer",
        "signer",
        "turns",
    )

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        clock: Clock,
        limits: RemotingLimits,
        owner: Service,
        peer_log: PeerLog,
        on_made: Callable[[Connection], str | None],
        on_lost: Callable[[Connection], None],
        on_signed_in: Callable[[Connection], None] | None = None,
        on_turn: Callable[[float], None] | None = None,
        signer: RequestSigner | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.clock = clock
        # Receives the seconds that one connection's requests took in one turn of the loop.
        self.on_turn = on_turn
        self.limits = limits
        self.owner = owner
        self.peer_log = peer_log
        self.on_made = on_made
        self.on_lost = on_lost
        self.on_signed_in = on_signed_in
        # Called with each connection whose peer reads again.
        self.on_writable: Callable[[Intake], None] | None = None
        self.share(Budgets(clock))
        self.signer = signer
        self.plain_requests: PlainRequests | None = None
        self.receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        # In the order in which they were opened, so that a run with the same events is
        # reproducible.
        self.connections: dict[Connection, None] = {}
        self.kept_bytes = 0
        self.kept_bytes_of_strangers = 0
        self.in_flight = 0
        self.answered: asyncio.Future[None] | None = None
        self.drained: asyncio.Future[None] | None = None

    def share(self, budgets: Budgets) -> None:
        """Share budgets with other servers; call this before the first connection."""
        self.turns = budgets.turns
        self.memory = budgets.memory

    async def all_answered(self) -> None:
        """Wait for answers in progress, for at most `drain_s`."""
        if self.in_flight:
            self.answered = asyncio.get_running_loop().create_future()
            await wait_within(self.clock, self.answered, self.limits.drain_s)

    async def close_all(self) -> None:
        """Close every connection; abort any that doesn't end within `drain_s`."""
        if not self.connections:
            return
        self.drained = asyncio.get_running_loop().create_future()
        for connection in list(self.connections):
            connection.close()
        if not await wait_within(self.clock, self.drained, self.limits.drain_s):
            for connection in list(self.connections):
                connection.abort()
            await self.drained
