"""Mutated frames of real clients against a broker and a name server with access control.

    python -m tools.fuzz.guarded_frames [--frames 200000] [--seed S] [--only NUMBER]

Half of the connections are anonymous, half are signed by an account that may send and receive.
Every complete request of an anonymous client must be answered, and every connection must end or
answer its last request. No turn of the broker's loop may take more than 200 ms of CPU time, its
memory must stay level, it must not log errors, and at the end both must serve an honest client.
Anything else ends the run with the number of the connection, which replays it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import queue
import random
import selectors
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.signature import Credentials
from broker_core.remoting.client import RemotingClient
from tests.support import frame_corpus
from tests.support.broker import running_broker
from tests.support.client import Client, messages
from tests.support.frame_proxy import Head, frames_of
from tests.support.raw_remoting import GET_BROKER_RUNTIME_INFO, request
from tools.fuzz.frames import KEYS, PROBE_OPAQUE, Findings, Mutator, anonymous_bytes

if TYPE_CHECKING:
    from types import TracebackType

FRAMES = 200_000
STREAM_FRAMES_MAX = 200
TURN_S_MAX = 0.2
TURN_ATTEMPTS = 3
"""A virtual machine is charged for its host's work; only a really long turn repeats each time."""
LEVEL_BYTES_MAX = 48 << 20
"""Maximum memory growth from the first quarter of the frames to the end."""
END_SECONDS_MAX = 60.0
"""Time limit for the end of a connection: far longer than any stall of the machine."""
START_SECONDS_MAX = 60.0
PIECE_BYTES = 1 << 16
ACCESS_KEY, SECRET_KEY = "application", "12345678"
ACCOUNT = (
    f"{{accessKey: {ACCESS_KEY}, secretKey: '{SECRET_KEY}', "
    "defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}"
)
TOPIC = "honest"


class TimedSelector(selectors.EpollSelector):
    """A loop's selector that measures the CPU time of each turn."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_s = 0.0
        self._began: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._began is not None:
            self.longest_s = max(self.longest_s, time.thread_time() - self._began)
        try:
            return super().select(timeout)
        finally:
            self._began = time.thread_time()


class GuardedBroker:
    """A broker with access control and its name server, in a thread. A context manager."""

    def __init__(self, directory: Path, findings: Findings) -> None:
        self.turns = TimedSelector()
        self.broker_port = self.vip_port = self.namesrv_port = 0
        self._directory = directory
        self._findings = findings
        self._thread = threading.Thread(target=self._run)
        self._started: queue.Queue[tuple[int, int] | BaseException] = queue.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None

    def __enter__(self) -> GuardedBroker:
        accounts = self._directory / "conf" / "plain_acl.yml"
        accounts.parent.mkdir()
        accounts.write_text(f"accounts: [{ACCOUNT}]\n")
        accounts.chmod(0o600)
        self._thread.start()
        found = self._started.get(timeout=START_SECONDS_MAX)
        if isinstance(found, BaseException):
            raise found
        self.broker_port, self.namesrv_port = found
        self.vip_port = self.broker_port - 2
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._loop is not None and self._end is not None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(END_SECONDS_MAX)

    def _run(self) -> None:
        try:
            with asyncio.Runner(
                loop_factory=lambda: asyncio.SelectorEventLoop(self.turns)
            ) as runner:
                runner.run(self._serve())
        # Pass the error to the thread that waits for the start.
        except BaseException as error:
            self._started.put(error)
            raise

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._findings.loop_exception)
        self._end = asyncio.Event()
        async with running_broker(self._directory, **KEYS, aclEnable="true") as broker:
            ports = (broker.listen_port, broker.configuration.broker.namesrv_listen_port)
            self._started.put(ports)
            await self._end.wait()


@dataclass(slots=True)
class Counts:
    """The counters of a run."""

    connections: int = 0
    frames: int = 0
    answers: int = 0
    closed: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """The bytes of one connection.

    `awaited` are the opaques of requests that must be answered, `frames` counts frames. A stream
    whose last frame is damaged has no probe: it ends when the client stops sending.
    """

    data: bytes
    frames: int
    awaited: frozenset[int]
    has_probe: bool


def stream_of(rng: random.Random, mutator: Mutator, frames_max: int) -> Stream:
    is_signed = rng.random() < 0.5
    account = Credentials(ACCESS_KEY, SECRET_KEY)
    parts, awaited = [], set()
    for opaque in range(1, rng.randint(1, frames_max) + 1):
        command = mutator.command()
        command.opaque = opaque
        if is_signed:
            account.sign(command)
        elif not command.is_response and not command.is_oneway:
            awaited.add(opaque)
        parts.append(command.encode())
    has_probe = rng.random() < 0.7
    parts.append(
        request(GET_BROKER_RUNTIME_INFO, opaque=PROBE_OPAQUE) if has_probe else mutator.damaged()
    )
    return Stream(b"".join(parts), len(parts), frozenset(awaited), has_probe)


def exchange(port: int, stream: Stream) -> tuple[set[int], bool]:
    """Send a stream; return the answered opaques, and whether the broker closed.

    Raises:
        TimeoutError: the last request wasn't answered and the connection didn't end.
    """
    answered: set[int] = set()
    left = memoryview(stream.data)
    buffer = bytearray()
    until = time.monotonic() + END_SECONDS_MAX
    with (
        socket.create_connection(("127.0.0.1", port), END_SECONDS_MAX) as connection,
        selectors.DefaultSelector() as selector,
    ):
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
        try:
            while True:
                if time.monotonic() > until:
                    raise TimeoutError
                for _, events in selector.select(1.0):
                    if events & selectors.EVENT_WRITE:
                        left = left[connection.send(left[:PIECE_BYTES]) :]
                        if not left:
                            selector.modify(connection, selectors.EVENT_READ)
                            if not stream.has_probe:
                                with contextlib.suppress(OSError):
                                    # The broker may have closed it, which reading shows.
                                    connection.shutdown(socket.SHUT_WR)
                    if events & selectors.EVENT_READ:
                        piece = connection.recv(PIECE_BYTES)
                        if not piece:
                            return answered, True
                        buffer += piece
                        for frame in frames_of(buffer):
                            head = Head(frame)
                            if head.is_answer:
                                answered.add(head.opaque)
                        if PROBE_OPAQUE in answered and answered >= stream.awaited:
                            return answered, False
        except ConnectionError:
            return answered, True


async def wrong_for_an_honest_client(broker: GuardedBroker) -> str | None:
    """Return what failed for a client of the account, or None if everything works."""
    client = Client(f"127.0.0.1:{broker.broker_port}")
    client.remoting = RemotingClient(signer=Credentials(ACCESS_KEY, SECRET_KEY))
    asking = Client(f"127.0.0.1:{broker.namesrv_port}")
    try:
        sent = await client.send(TOPIC, b"still served")
        if sent.code != ResponseCode.SUCCESS:
            return f"a legitimate message was rejected with {sent.code}, {sent.remark}"
        pulled = await client.pull(TOPIC, 0)
        if b"still served" not in [one.body for one in messages(pulled)]:
            return f"a legitimate message wasn't delivered: {pulled.code}, {pulled.remark}"
        route = await asking.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=TOPIC)
        if route.code != ResponseCode.SUCCESS:
            return f"the name server didn't return a route: {route.code}, {route.remark}"
    finally:
        await client.shutdown()
        await asking.shutdown()
    return None


class GuardedFuzzer:
    """One run of `frames` frames; `only` is the number of one connection."""

    def __init__(self, seed: int, frames: int, only: int | None = None) -> None:
        self.counts = Counts()
        self.longest_turn_s = 0.0
        self.grown_bytes = 0
        self._seed = seed
        self._frames = frames
        self._only = only
        self._findings = Findings()
        self._corpus = frame_corpus.everything()

    def run(self) -> str | None:
        """Return the failure, or None without one."""
        root = logging.getLogger()
        root.addHandler(self._findings)
        try:
            with (
                tempfile.TemporaryDirectory() as directory,
                GuardedBroker(Path(directory), self._findings) as broker,
            ):
                # Exclude existing objects from collections during a turn of the broker.
                gc.collect()
                gc.freeze()
                return self._send_all(broker) or self._wrong_at_the_end(broker)
        finally:
            gc.unfreeze()
            root.removeHandler(self._findings)

    def _send_all(self, broker: GuardedBroker) -> str | None:
        counts = self.counts
        numbers = [self._only] if self._only is not None else range(self._frames)
        bytes_then: int | None = None
        for number in numbers:
            left = self._frames - counts.frames
            if left <= 0:
                break
            for _ in range(TURN_ATTEMPTS):
                broker.turns.longest_s = 0.0
                wrong = self._connection(broker, number)
                if broker.turns.longest_s <= TURN_S_MAX:
                    break
            else:
                wrong = f"a turn of the loop took {broker.turns.longest_s:.3f} s"
            self.longest_turn_s = max(self.longest_turn_s, broker.turns.longest_s)
            if self._findings.errors:
                wrong = self._findings.errors[0]
            if wrong:
                return f"seed {self._seed}, connection {number}: {wrong}"
            if bytes_then is None and counts.frames >= self._frames // 4:
                gc.collect()
                bytes_then = anonymous_bytes()
        gc.collect()
        self.grown_bytes = anonymous_bytes() - (bytes_then or anonymous_bytes())
        return None

    def _connection(self, broker: GuardedBroker, number: int) -> str | None:
        # A separate random generator, so that one connection can be replayed alone.
        rng = random.Random(f"{self._seed}-{number}")
        ports = (broker.broker_port, broker.broker_port, broker.vip_port, broker.namesrv_port)
        stream = stream_of(rng, Mutator(rng, self._corpus), STREAM_FRAMES_MAX)
        counts = self.counts
        counts.connections += 1
        counts.frames += stream.frames
        try:
            answered, is_closed = exchange(rng.choice(ports), stream)
        except TimeoutError:
            return "not all requests were answered, and the connection stayed open"
        counts.answers += len(answered)
        counts.closed += is_closed
        return None

    def _wrong_at_the_end(self, broker: GuardedBroker) -> str | None:
        if self.grown_bytes > LEVEL_BYTES_MAX:
            return f"seed {self._seed}: {self.grown_bytes} bytes more than after a quarter"
        return asyncio.run(wrong_for_an_honest_client(broker))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.guarded_frames")
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", type=int, help="run only the connection with this number")
    arguments = parser.parse_args()
    fuzzer = GuardedFuzzer(arguments.seed, arguments.frames, arguments.only)
    wrong = fuzzer.run()
    counts = fuzzer.counts
    sys.stdout.write(
        f"seed {arguments.seed}: {counts.frames} frames on {counts.connections} connections, "
        f"{counts.answers} answers, {counts.closed} ended by the broker, longest turn "
        f"{fuzzer.longest_turn_s * 1000:.0f} ms, {fuzzer.grown_bytes >> 20} MiB more, "
        f"{time.process_time():.0f} s of CPU time\n"
    )
    if wrong:
        sys.stdout.write(f"{wrong}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
