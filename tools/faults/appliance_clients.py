"""Clients of an appliance's broker during faults, and the check of their history.

Raw clients send to a queue and read it. With `programs`, RocketMQ's own Java and Go clients work
next to them. All record their operations in one history, which `checker` checks at the end.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.support import raw_remoting
from tests.support.waiting import until
from tools.faults import checker, real_clients
from tools.faults.clients import Book, Reader, Sender, Server, as_stored
from tools.faults.operations import Cause, Happened

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.appliance import Appliance
    from tools.faults.operations import Operation, Stored
    from tools.faults.real_clients import Programs, RealClients

TOPIC, GROUP = "counted", "readers"
PACE_SECONDS = 0.02
REAL_PAUSE_MS = 50
"""The run tests faults, not load: the appliance's processes share two cores."""
END_SECONDS_MAX = 180.0


class ApplianceClients:
    """Clients that work from `start` to `rest`; call `judge` after the faults, always `end`."""

    def __init__(self, appliance: Appliance, directory: Path, programs: Programs | None) -> None:
        """Prepare clients and configure the broker for them, before the appliance starts."""
        self._appliance = appliance
        self._directory = directory
        self._programs = programs
        self._book = Book()
        place = (self._book, (TOPIC, 0))
        # One unanswered send at a time, so that every rejection is seen and messages stay in order.
        self._sender = Sender(self._find, "sender", *place, window=1, pace=PACE_SECONDS)
        self._reader = Reader(self._find, "reader", *place, group=GROUP)
        self._real: RealClients | None = None
        self._processes = ExitStack()
        if programs is not None:
            appliance.set_keys(**real_clients.KEYS)

    def start(self) -> None:
        """Start the clients; return at once."""
        raw_remoting.create_topic(self._appliance.port, TOPIC, queues=1)
        self._sender.start()
        self._reader.start()
        if self._programs is not None:
            self._directory.mkdir(exist_ok=True)
            where = (self._directory, self._appliance.namesrv, lambda: self._appliance.port)
            real = real_clients.beside(self._programs, *where, pause_ms=REAL_PAUSE_MS)
            self._real = self._processes.enter_context(real)

    def until_working(self) -> None:
        if self._real is not None:
            self._real.until_working()

    def note_crash(self) -> None:
        """Record that the broker was killed, which explains second deliveries."""
        self._book.history.append(Happened(Cause.CRASH, time.monotonic_ns()))

    def rest(self) -> None:
        """Stop sending; readers continue."""
        self._sender.stop()
        self._sender.join(END_SECONDS_MAX)
        if self._real is not None:
            self._real.rest()

    def judge(self) -> checker.Report:
        """Let the readers finish, and check the history of all clients."""
        stored = self._stored()
        until(
            lambda: self._reader.queue_offset >= len(stored),
            "the reader to reach the end",
            seconds=END_SECONDS_MAX,
        )
        self._reader.stop()
        self._reader.join(END_SECONDS_MAX)
        history: list[Operation] = [*self._book.history, *stored]
        if self._real is not None:
            history += [*self._real.come_to_end(), *self._real.stored()]
        return checker.check(history)

    def refused(self) -> list[str]:
        """Return the sends that the broker rejected; the sender waits for each answer."""
        return [
            f"rejected: {count} sends with {code}"
            for code, count in sorted(self._book.codes.items())
            if code != raw_remoting.SUCCESS
        ]

    def end(self) -> None:
        for one in (self._sender, self._reader):
            one.stop()
        self._processes.close()

    def _find(self) -> Server:
        return Server("broker-a", "127.0.0.1", self._appliance.port)

    def _stored(self) -> list[Stored]:
        return list(as_stored(raw_remoting.read_queue(self._appliance.port, TOPIC, 0), TOPIC, 0))
