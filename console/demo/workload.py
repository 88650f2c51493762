"""The part of the demo that doesn't depend on a protocol: messages, pace, counts, reports."""

from __future__ import annotations

import asyncio
import json
import math
import random
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from console.gateway.answers import OutgoingMessage
from console.gateway.errors import GatewayError
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

TOPICS = ("orders", "payments", "telemetry")
QUEUE_NUMS = 4
PERM_READ_WRITE = 6

RATE_MAX = 2_000
TICK_S = 0.1
WAVE_S = 90.0
IN_FLIGHT_MAX = 256
HEARTBEAT_S = 10.0
ROUTE_WAIT_S = 30.0
RETRY_S = 1.0
LAST_SENDS_S = 2.0
REPORT_S = 10.0

KINDS: dict[str, tuple[str, ...]] = {
    "orders": ("created", "created", "created", "paid", "paid", "shipped", "cancelled"),
    "payments": ("authorised", "authorised", "captured", "captured", "refused"),
    "telemetry": ("temperature", "humidity", "vibration"),
}
OTHER_KINDS = ("alpha", "beta", "gamma")


class DemoError(Exception):
    """The demo can't continue; the text is a sentence for people."""


@dataclass(slots=True)
class Counts:
    """Messages so far."""

    sent: int = 0
    failed: int = 0
    consumed: int = 0


class Workload:
    """Sends at a varying rate and reports; a subclass connects, sends and consumes.

    `say` prints a line. `rate` is the average number of messages per second over all topics. Event
    loop only.
    """

    def __init__(
        self,
        topics: Sequence[str] = TOPICS,
        rate: int = 40,
        say: Callable[[str], None] = lambda _: None,
        rng: random.Random | None = None,
    ) -> None:
        self.counts = Counts()
        self._topics = tuple(topics)
        self._rate = min(rate, RATE_MAX)
        self._say = say
        self._rng = rng or random.Random()
        self._trouble = ""

    async def run(self, seconds: float | None = None) -> None:
        """Run for some seconds or until cancelled, then unregister from the brokers.

        Raises:
            DemoError: no name server or no broker responds at the start.
        """
        try:
            await self._prepare()
            self._say(self._opening())
            tasks = [
                asyncio.create_task(each)
                for each in (self._produce(), self._report(), *self._duties())
            ]
            try:
                done, _ = await asyncio.wait(
                    tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION
                )
                for task in done:
                    task.result()
            finally:
                await end(tasks)
                await self._stop_consuming()
        finally:
            await self._unregister()

    # For subclasses.

    def _opening(self) -> str:
        return f"Demo traffic to {', '.join(self._topics)}: about {self._rate} messages a second."

    async def _prepare(self) -> None:
        """Connect, and create missing topics."""
        raise NotImplementedError

    def _duties(self) -> Sequence[Coroutine[None, None, None]]:
        """Return the work besides sending."""
        raise NotImplementedError

    async def _deliver(self, message: OutgoingMessage, number: int) -> None:
        """Send a message.

        Raises:
            GatewayError: the broker didn't accept it.
        """
        raise NotImplementedError

    async def _stop_consuming(self) -> None:
        """Stop the consumers that aren't among the duties."""

    async def _unregister(self) -> None:
        raise NotImplementedError

    def _complain(self, error: Exception) -> None:
        """Report a problem once, until a send succeeds again."""
        if not self._trouble:
            self._trouble = str(error)
            self._say(f"Problem, retrying: {error}")

    def _summary(self) -> str:
        counts = self.counts
        return f"sent {counts.sent}, consumed {counts.consumed}, failed {counts.failed}"

    # Internal.

    async def _produce(self) -> None:
        """Send in small batches; the rate varies around its mean, with a rare burst."""
        loop = asyncio.get_running_loop()
        room = asyncio.Semaphore(IN_FLIGHT_MAX)
        started, owed, number, burst_until = loop.time(), 0.0, 0, 0.0
        sending: set[asyncio.Task[None]] = set()
        try:
            while True:
                await asyncio.sleep(TICK_S)
                now = loop.time()
                wave = 1.0 + 0.5 * math.sin((now - started) * 2 * math.pi / WAVE_S)
                if now >= burst_until and self._rng.random() < TICK_S / 45:
                    burst_until = now + 3.0
                owed += self._rate * TICK_S * wave * (2.5 if now < burst_until else 1.0)
                portion, owed = int(owed), owed - int(owed)
                for _ in range(portion):
                    number += 1
                    await room.acquire()
                    task = asyncio.create_task(self._send(self._message(number), number, room))
                    sending.add(task)
                    task.add_done_callback(sending.discard)
        finally:
            # The broker may still store pending messages; wait for a correct count.
            if sending:
                await asyncio.wait(set(sending), timeout=LAST_SENDS_S)
            await end(list(sending))

    async def _send(self, message: OutgoingMessage, number: int, room: asyncio.Semaphore) -> None:
        try:
            await self._deliver(message, number)
            self.counts.sent += 1
            self._trouble = ""
        except GatewayError as error:
            self.counts.failed += 1
            self._complain(error)
            # Keep the in-flight slot while waiting, so that an unreachable broker gets few
            # attempts.
            await asyncio.sleep(RETRY_S)
        finally:
            room.release()

    def _message(self, number: int) -> OutgoingMessage:
        topic = self._rng.choice(self._topics)
        kind = self._rng.choice(KINDS.get(topic, OTHER_KINDS))
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        if topic == "telemetry":
            device = f"device-{self._rng.randrange(1, 41):03d}"
            content = {"device": device, "kind": kind, "value": round(self._rng.gauss(21, 4), 2)}
            keys = device
        else:
            order = f"order-{100_000 + number // 3}"
            content = {
                "order": order,
                "state": kind,
                "amount": round(self._rng.lognormvariate(3.4, 0.9), 2),
                "lines": self._rng.randrange(1, 9),
                "note": "x" * min(4_000, int(self._rng.expovariate(1 / 160))),
            }
            keys = order if topic == "orders" else f"{order} payment-{number}"
        body = json.dumps({**content, "at": when}).encode()
        return OutgoingMessage(topic, body, tags=kind, keys=keys, born_ms=now_ms())

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            self._say(self._summary())


async def end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def local_address() -> str:
    """Return this machine's address as used in a client ID."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
