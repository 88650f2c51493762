"""Liar: a client of a master's HA port that sends false reports next to the true slave.

It reports offsets that the master can't have sent, negative or falling offsets, and garbage, at
once or after following for a while, and it holds as many silent connections as it can get. A lie
must end its connection and release no sender: `copies` compares each acknowledged offset with the
true slave's reports. A plausible report isn't a lie, because any reader of the log may claim to
have it.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from broker_core.formats.ha_frames import encode_report
from tools.faults.simulation.host import HA_PORT
from tools.faults.simulation.node import Process

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tools.faults.simulation.host import Host
    from tools.faults.simulation.loop import SimulatedLoop

LIAR = "10.0.0.8"
BEYOND = 1 << 20
"""No run writes this much, so an offset this far past the end can't become true in flight."""
OFFSET_MAX = (1 << 63) - 1
PART_OF_A_RECORD = 80
"""No record ends before it, so no sender waits for it."""
CROWD = 70
PAUSE_S = 0.6
REFUSED_S = 2.0
TRANSFER_S = 0.5
ENDED_S = 3.0


class Lie(StrEnum):
    """A lying slave's report instead of its offset."""

    BEYOND = "beyond"
    NEGATIVE = "negative"
    STRANGER = "stranger"
    AHEAD = "ahead"
    FALLING = "falling"
    GARBAGE = "garbage"


class FalseReport(NamedTuple):
    """The first report, and the one after the first transfer, if any."""

    first: bytes
    after: bytes = b""


class Liar:
    """The liar, which ends with its process.

    Attributes:
        wrong: lies that the master accepted.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        master: Host,
        dice: Random,
        log_event: Callable[[str], None],
        reported: Callable[[], int],
    ) -> None:
        """`reported` returns the true slave's reported offset; `log_event` adds to the trace."""
        self.wrong: list[str] = []
        self.process = Process(LIAR)
        self._loop = loop
        self._master = master
        self._dice = dice
        self._log_event = log_event
        self._reported = reported

    async def run(self) -> None:
        """Lie repeatedly, next to the silent connections."""
        crowd = [self._loop.create_task(self._hold()) for _ in range(CROWD)]
        while True:
            await self._lie(self._dice.choice(list(Lie)))
            await asyncio.sleep(self._dice.random() * PAUSE_S)
            for one in crowd:
                if one.done():
                    one.result()

    async def _hold(self) -> None:
        """Hold a connection that sends nothing, or less than a report; reopen it when it ends."""
        while True:
            began = self._loop.now
            end = await self._connected()
            began = self._loop.now
            if end is not None:
                end.transport.write(bytes(self._dice.randrange(8)))
                await end.lost
            if end is None or self._loop.now - began < 1.0:
                await asyncio.sleep(REFUSED_S)

    async def _lie(self, lie: Lie) -> None:
        end = await self._connected()
        if end is None:
            return
        report = self._drawn(lie)
        end.transport.write(report.first)
        if report.after:
            # An empty log has nothing to send.
            await asyncio.wait([end.transferred, end.lost], timeout=TRANSFER_S)
            end.transport.write(report.after)
        self._log_event(f"lie {lie}")
        life = self._life()
        await asyncio.wait([end.lost], timeout=ENDED_S)
        if not end.lost.done() and life is not None and life == self._life():
            self.wrong.append(f"I27: the liar ({lie}) is still connected after {ENDED_S:g} s")
        end.transport.abort()

    def _drawn(self, lie: Lie) -> FalseReport:
        dice = self._dice
        begin = encode_report(0)
        beyond = encode_report(dice.choice((dice.randrange(BEYOND, 2 * BEYOND), OFFSET_MAX)))
        match lie:
            case Lie.BEYOND:
                return FalseReport(beyond)
            case Lie.NEGATIVE:
                return FalseReport(encode_report(-dice.choice((1, dice.randint(2, OFFSET_MAX)))))
            case Lie.STRANGER:
                return FalseReport(b"GET / HTTP/1.1\r\n\r\n")
            case Lie.AHEAD:
                return FalseReport(begin, beyond)
            case Lie.FALLING:
                high = min(dice.randint(1, PART_OF_A_RECORD), self._reported())
                return FalseReport(
                    begin, encode_report(high) + encode_report(dice.randrange(-1, high))
                )
            case Lie.GARBAGE:
                return FalseReport(begin, dice.randbytes(dice.randint(8, 100)))

    def _life(self) -> int | None:
        """Return the run number of the master's process, or None while it's down."""
        return self._master.starts if self._master.process.is_alive else None

    async def _connected(self) -> _End | None:
        end = _End(self._loop)
        try:
            await self._loop.create_connection(lambda: end, self._master.name, HA_PORT)
        except OSError:
            return None
        return end


class _End(asyncio.Protocol):
    """The liar's end of a connection."""

    transport: asyncio.Transport

    def __init__(self, loop: SimulatedLoop) -> None:
        self.transferred: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self.transferred.done():
            self.transferred.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
