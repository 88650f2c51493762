"""Mutate frames of real clients and send them to a broker in this process.

    python -m tools.fuzz.frames [--seconds 60] [--seed S] [--only NUMBER]

The broker must answer or close each connection, log no error, lose no task and keep its memory
level; anything else ends the run with the number of the connection, which replays it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker_core.protocol import command as commands
from tests.support import frame_corpus
from tests.support.broker import running_broker
from tests.support.frame_proxy import Head, frames_of
from tests.support.raw_remoting import GET_BROKER_RUNTIME_INFO, request

if TYPE_CHECKING:
    from broker_core.broker import Broker
    from broker_core.protocol.command import RemotingCommand

AT_ONE_TIME = 8
FRAMES_MAX = 12
BYTES_SHARE = 1 / 6
ANSWER_SECONDS = 0.05
ALIVE_SECONDS = 10.0
ROUND_CONNECTIONS = 1_000
"""After this many connections a new broker without topics takes over."""
ANONYMOUS_BYTES_MAX = 256 << 20
PROBE_OPAQUE = 0x7EADBEEF
KEYS: dict[str, Any] = {
    "enablePropertyFilter": "true",
    "mappedFileSizeConsumeQueue": 2_000,
    "messageDelayLevel": "1s 2s",
    "transactionTimeOut": 1_000,
}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"haProxyProtocolEnable": "true", "proxyProtocolTrusted": "127.0.0.1"},
    {"aclEnable": "true"},
    {"flushDiskType": "SYNC_FLUSH"},
]
"""More configurations of the broker; each round uses the next."""
PROXY_HEADERS = (
    b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
    b"PROXY UNKNOWN\r\n",
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x0a\x00\x00\x01\x0a\x00\x00\x02\x00\x01\x00\x02",
    b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00",
)
ACCOUNT = "{accessKey: application, secretKey: '12345678', defaultTopicPerm: PUB|SUB}"
VALUES = [
    *(
        "",
        " ",
        "0",
        "-1",
        "1",
        "true",
        "null",
        "{}",
        "[]",
        '"',
        "\x00",
        "\x01",
        "\x02",
        "a\x01b\x02",
    ),
    *("2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
    *("1e9", "0x10", "१२", "½", "NaN", "-0", "+1", " 1 ", "1_0", "x" * 130, "x" * 40_000),
    *("%RETRY%g", "%DLQ%g", "%RETRY%", "TBW102", "SCHEDULE_TOPIC_XXXX", "../../x", "a/b", "a\nb"),
    *("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "💥" * 50, "\ud7ff\ue000"),
    *("SQL92", "TAG", "a > 1 AND", "(" * 500, "a IS NOT NULL", "A || B || ", "||", "*"),
    *("127.0.0.1:1", "::1", "[::1]:99999", "999.1.1.1:1", ":", "F" * 32, "0" * 31, "7F0000010000"),
]


class Findings(logging.Handler):
    """Unwanted log records, as a handler of the root logger."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(self.format(record))

    def loop_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")


class Mutator:
    """Mutated frames from a separate random generator."""

    def __init__(self, rng: random.Random, frames: list[frame_corpus.Recorded]) -> None:
        self._rng = rng
        self._frames = frames
        self._codes = sorted({one.code for one in frames})

    def stream(self, *, is_proxied: bool) -> bytes:
        """Return the bytes of one connection."""
        frames = [self.frame() for _ in range(self._rng.randint(1, FRAMES_MAX))]
        return b"".join([self._greeting() if is_proxied else b"", *frames])

    def _greeting(self) -> bytes:
        """Return a proxy header before the first frame, sometimes mutated."""
        header = self._rng.choice(PROXY_HEADERS)
        return header if self._rng.random() < 0.8 else self._bytes(header)

    def frame(self) -> bytes:
        if self._rng.random() < BYTES_SHARE:
            return self.damaged()
        return self.command().encode()

    def command(self) -> RemotingCommand:
        """Return a command with a complete frame, with or without changes to its fields or body."""
        rng = self._rng
        command = self._decoded(rng.choice(self._frames).frame)
        kind = rng.randrange(5)
        if kind == 0:
            self._change_body(command)
        elif kind < 4:
            self._change_fields(command)
        return command

    def damaged(self) -> bytes:
        """Return a frame with random bytes changed."""
        return self._bytes(self._rng.choice(self._frames).frame)

    def _bytes(self, frame: bytes) -> bytes:
        """Change random bytes, mainly length fields."""
        data = bytearray(frame)
        rng = self._rng
        for _ in range(rng.randint(1, 4)):
            at = rng.choice((rng.randrange(8), rng.randrange(len(data)))) if len(data) > 8 else 0
            kind = rng.randrange(4)
            if kind == 0:
                data[at] = rng.randrange(256)
            elif kind == 1:
                del data[at : at + rng.randint(1, 8)]
            elif kind == 2:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            else:
                data[at] ^= 1 << rng.randrange(8)
            if not data:
                break
        return bytes(data)

    def _change_fields(self, command: RemotingCommand) -> None:
        """Change the header's fields; the frame is written as its client would."""
        rng = self._rng
        for _ in range(rng.randint(1, 3)):
            kind = rng.randrange(8)
            names = list(command.ext_fields)
            if kind == 0:
                command.code = rng.choice((*self._codes, rng.randint(-1, 400), 200_050))
            elif kind == 1:
                command.version = rng.choice((0, 62, 121, 317, 399, 401, 407, 479, 32_767))
            elif kind == 2:
                command.flag = rng.choice((0, 1, 2, 3, 4))
            elif kind == 3 and names:
                del command.ext_fields[rng.choice(names)]
            elif kind == 4:
                other = self._decoded(rng.choice(self._frames).frame)
                command.ext_fields.update(other.ext_fields)
            elif names:
                command.ext_fields[rng.choice(names)] = rng.choice(VALUES)
        if rng.random() < 0.2:
            command.serialize_type = 1 - command.serialize_type

    def _change_body(self, command: RemotingCommand) -> None:
        """Change only the body."""
        if command.body:
            command.body = self._bytes(command.body)
        else:
            command.body = self._rng.choice((b"{}", b"[]", b"null", b"\x00" * 30, b"{" * 999))

    def _decoded(self, frame: bytes) -> RemotingCommand:
        word = int.from_bytes(frame[4:8], "big")
        size = word & 0xFFFFFF
        return commands.decode(word >> 24, frame[8 : 8 + size], frame[8 + size :])


async def connect(port: int, stream: bytes, rng: random.Random) -> None:
    """Send a stream in pieces; read until the broker has nothing more to send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        data = stream + request(GET_BROKER_RUNTIME_INFO, opaque=PROBE_OPAQUE)
        at = 0
        while at < len(data):
            to = at + rng.choice((1, 5, 500, 100_000))
            writer.write(data[at:to])
            at = to
            if rng.random() < 0.1:
                await asyncio.sleep(0)
        await writer.drain()
        buffer = bytearray()
        while True:
            # A frame that is shorter than announced keeps its connection waiting, which is correct.
            piece = await asyncio.wait_for(reader.read(1 << 16), ANSWER_SECONDS)
            if not piece:
                return
            buffer += piece
            for frame in frames_of(buffer):
                head = Head(frame)
                if head.is_answer and head.opaque == PROBE_OPAQUE:
                    return
    except (ConnectionError, TimeoutError):
        return
    finally:
        writer.close()


async def is_alive(port: int, *, is_proxied: bool) -> bool:
    """Whether a well-behaved client gets answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write((PROXY_HEADERS[0] if is_proxied else b"") + request(GET_BROKER_RUNTIME_INFO))
        return bool(await asyncio.wait_for(reader.read(1), ALIVE_SECONDS))
    except TimeoutError:
        return False
    finally:
        writer.close()


def anonymous_bytes() -> int:
    """Return the process's memory without mapped files, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


class Fuzzer:
    """One run: `connections` counts connections, `findings` has the failures."""

    def __init__(self, seed: int, seconds: float, only: int | None = None) -> None:
        self.connections = 0
        self.findings = Findings()
        self._seed = seed
        self._until = time.monotonic() + seconds
        self._only = only
        self._next = 0 if only is None else only
        self._frames = frame_corpus.everything()
        self._bytes_before = 0
        self._rounds = 0

    async def run(self) -> str | None:
        """Return the failure, or None without one."""
        asyncio.get_running_loop().set_exception_handler(self.findings.loop_exception)
        root = logging.getLogger()
        root.addHandler(self.findings)
        try:
            while time.monotonic() < self._until:
                wrong = await self._round()
                if wrong or self._only is not None:
                    return wrong
        finally:
            root.removeHandler(self.findings)
        return None

    async def _round(self) -> str | None:
        with tempfile.TemporaryDirectory() as directory:
            first = self._next
            variant = VARIANTS[self._rounds % len(VARIANTS)]
            self._rounds += 1
            accounts = Path(directory) / "conf" / "plain_acl.yml"
            accounts.parent.mkdir()
            accounts.write_text(f"accounts: [{ACCOUNT}]\n")
            async with running_broker(Path(directory), **KEYS | variant) as broker:
                is_proxied = "haProxyProtocolEnable" in variant
                workers = (
                    self._work(broker, first, is_proxied=is_proxied) for _ in range(AT_ONE_TIME)
                )
                await asyncio.gather(*workers)
                ports = (broker.listen_port, broker.configuration.broker.namesrv_listen_port)
                if not all([await is_alive(port, is_proxied=is_proxied) for port in ports]):
                    return f"no request was answered after connection {self._next - 1}"
        numbers = f"seed {self._seed}, connections {first} to {self._next - 1}"
        if self.findings.errors:
            return f"{numbers}: {self.findings.errors[0]}"
        gc.collect()
        now = anonymous_bytes()
        self._bytes_before = self._bytes_before or now
        if now - self._bytes_before > ANONYMOUS_BYTES_MAX:
            return f"{numbers}: {now - self._bytes_before} bytes more than after the first round"
        return None

    async def _work(self, broker: Broker, first: int, *, is_proxied: bool) -> None:
        ports = (
            *(broker.listen_port, broker.listen_port, broker.listen_port - 2),
            broker.configuration.broker.namesrv_listen_port,
        )
        while not self.findings.errors and time.monotonic() < self._until:
            number = self._next
            if number - first >= ROUND_CONNECTIONS or (self._only not in (None, number)):
                return
            self._next += 1
            self.connections += 1
            # A separate random generator, so that one connection can be replayed alone.
            rng = random.Random(f"{self._seed}-{number}")
            stream = Mutator(rng, self._frames).stream(is_proxied=is_proxied)
            await connect(rng.choice(ports), stream, rng)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.frames", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", type=int, help="run only the connection with this number")
    arguments = parser.parse_args()
    fuzzer = Fuzzer(arguments.seed, arguments.seconds, arguments.only)
    wrong = asyncio.run(fuzzer.run())
    sys.stdout.write(f"seed {arguments.seed}: {fuzzer.connections} connections\n")
    if wrong:
        sys.stdout.write(f"{wrong}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
