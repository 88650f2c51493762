"""The state that all connections of one server share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.http2.deadlines import Deadlines
from broker_core.http2.dispatch import give_up
from broker_core.http2.engine import PYTHON, Engine
from broker_core.http2.routes import route

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from broker_core.clock import Clock
    from broker_core.http2.connection import Connection
    from broker_core.http2.limits import Http2Limits
    from broker_core.http2.methods import Method
    from broker_core.listening.budgets import Budgets
    from broker_core.listening.peer_log import PeerLog
    from broker_core.service import Service

RECEIVE_BYTES = 256 * 1024


class Wire:
    """Shared state. Event loop only.

    The connections share one receive buffer: the loop asks a connection for it, fills it and
    hands it over in one step, and the connection copies the bytes it keeps. So an idle
    connection holds no buffer.

    Attributes:
        streams: open calls of all connections.
        buffered_bytes: bytes of unfinished requests and frames of all connections.
        strangers_buffered_bytes: the same for connections that haven't signed in.
        unsent_bytes: bytes of answers that wait for a window, of all connections.
        turns: decides when a connection processes its frames; shared with the other ports.
        memory: counts the bytes that connections hold; shared with the other ports.
    """

    __slots__ = (
        "buffered_bytes",
        "clock",
        "connections",
        "deadlines",
        "drained",
        "engine",
        "limits",
        "memory",
        "on_lost",
        "on_made",
        "on_signed_in",
        "owner",
        "peer_log",
        "receive_buffer",
        "routes",
        "strangers_buffered_bytes",
        "streams",
        "turns",
        "unsent_bytes",
    )

    def __init__(
        self,
        *,
        methods: Mapping[str, Method],
        clock: Clock,
        limits: Http2Limits,
        owner: Service,
        budgets: Budgets,
        peer_log: PeerLog,
        on_made: Callable[[Connection], str | None],
        on_lost: Callable[[Connection], None],
        on_signed_in: Callable[[Connection], None],
        engine: Engine = PYTHON,
    ) -> None:
        self.routes = {path: route(path, method) for path, method in methods.items()}
        self.clock = clock
        self.limits = limits
        self.owner = owner
        self.turns = budgets.turns
        self.memory = budgets.memory
        self.peer_log = peer_log
        self.on_made = on_made
        self.on_lost = on_lost
        self.on_signed_in = on_signed_in
        self.engine = engine
        self.receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.deadlines = Deadlines(clock, give_up)
        # In the order in which they were opened, so that a run with the same events is
        # reproducible.
        self.connections: dict[Connection, None] = {}
        self.streams = 0
        self.buffered_bytes = 0
        self.strangers_buffered_bytes = 0
        self.unsent_bytes = 0
        self.drained: asyncio.Future[None] | None = None
