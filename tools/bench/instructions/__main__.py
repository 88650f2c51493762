"""Count the instructions of a message, with the compiled turn and with pure Python.

    python -m tools.bench.instructions [--store]

Callgrind counts them, so other load and the machine's speed don't matter. The figures are ratios
to a fixed loop of the same run, so that another Python build changes them little. `--store` makes
them the figures that `tests/property/test_instructions.py` compares with; do that in a commit that
says why.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import pull_frames, send_frames, transaction_frames
from tests.support.twins import Twin, configuration

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.clock import ManualClock

STORED = Path(__file__).with_name("stored.json")
NATIVE, PYTHON = "compiled", "python"
TOPIC = "Orders"
OF_MANY_QUEUES = "Parcels"
BINARY = send_frames.BINARY
BINARY_SUCCESS = b"\0\0"
"""The beginning of the header of an answer with code 0."""
BODY = bytes(100)
BATCH = 32
QUEUES_FROM = 10
"""Queue numbers with the same number of digits."""
WARM_UP, COUNTED = 20, 100
LOOP = "loop"
LOOPS = 20_000
SECONDS_MAX = 500
# Otherwise libc's copy functions depend on the processor.
TUNABLES = "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM"
CLIENT = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(const char *name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
"""


def missing() -> str | None:
    """Return the missing program."""
    programs = [name for name in ("valgrind", "gcc") if shutil.which(name) is None]
    return f"{programs[0]} isn't installed" if programs else None


def build_name() -> str:
    """Return the name of this Python build, by which figures are stored."""
    return f"{sys.version} {os.uname().machine}"


def measure(twin: str) -> dict[str, float]:
    """Return the cost of a message by kind of request, in iterations of the fixed loop."""
    counts = counted("tools.bench.instructions", "--twin", twin, is_native=twin == NATIVE)
    turn = counts.pop(LOOP) / LOOPS
    return {name: round(count / turn, 3) for name, count in sorted(counts.items())}


def counted(module: str, *arguments: str, is_native: bool = True) -> dict[str, float]:
    """Run a program under callgrind; return the instructions per message by kind.

    It gets `--counted` with a directory for its Counter.
    """
    with tempfile.TemporaryDirectory() as directory:
        _compile(Path(directory))
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "GLIBC_TUNABLES": TUNABLES,
            "TREBUCHET_NATIVE": str(int(is_native)),
        }
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "-q"]
        command += [f"--callgrind-out-file={directory}/out", sys.executable, "-m", module]
        command += ["--counted", directory, *arguments]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return _counts(Path(directory))


def _compile(directory: Path) -> None:
    source = directory / "client.c"
    source.write_text(CLIENT)
    library = str(directory / "client.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", str(source), "-o", library], check=True)


def _counts(directory: Path) -> dict[str, float]:
    """Return the instructions per message by kind, and those of the loop."""
    found: dict[str, float] = {}
    for path in directory.glob("out.*"):
        text = path.read_text()
        name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
        total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
        if name and total:
            kind, _, messages = name[1].partition("/")
            found[kind] = int(total[1]) / int(messages)
    return found


class Counter:
    """Counts the instructions of calls, within valgrind."""

    def __init__(self, directory: Path) -> None:
        self._client = ctypes.CDLL(str(directory / "client.so"))

    def begin(self) -> None:
        # Otherwise one kind pays for the garbage of others and of the start.
        gc.collect()
        self._client.begin()

    def end(self, name: str, messages: int) -> None:
        """Write the counts since `begin` to a new file, for `_counts`."""
        self._client.end(f"{name}/{messages}".encode())

    def count(self, name: str, messages: int, call: Callable[[], object]) -> None:
        """Count a call."""
        self.begin()
        call()
        self.end(name, messages)


def a_loop() -> int:
    """Do a mix of the broker's typical Python work: calls, dictionaries, bytes, numbers."""
    table = {"a": 1, "b": 2}
    total = 0
    for number in range(LOOPS):
        text = b"%d:%d" % (number, total)
        table["a"] = len(text)
        total += table["a"] + min(number, 7)
    return total


class TimelessLoop(asyncio.SelectorEventLoop):
    """A loop with a stopped clock, so that no timer of the store runs during a count.

    The number of timers would depend on valgrind's speed, and so on the machine.
    """

    def time(self) -> float:
        return 0.0


async def a_twin(*, is_native: bool, clock: ManualClock | None = None) -> Twin:
    """Return a broker with room for all counted requests."""
    twin = Twin(
        configuration(
            mappedFileSizeCommitLog=8 << 20,
            mappedFileSizeConsumeQueue=1 << 20,
            maxIndexNum=100_000,
            maxMessageSize=1 << 20,
        ),
        is_native=is_native,
        clock=clock,
    )
    await twin.load(TOPIC)
    return twin


async def count_all(counter: Counter, *, is_native: bool) -> None:
    """Count the loop and each kind of request."""
    random.seed(0)
    twin = await a_twin(is_native=is_native)
    fields = send_frames.fields_of(TOPIC, 0, "UNIQ_KEY\x01AC11000100002A9F01\x02WAIT\x01true")
    item = send_frames.batch_item(BODY, b"UNIQ_KEY\x01AC11000100002A9F01\x02")
    batch = send_frames.fields_of(TOPIC, 0, "WAIT\x01true", is_batch=True)
    await twin.make_topic(OF_MANY_QUEUES, QUEUES_FROM + BATCH)
    each = fields | {"b": OF_MANY_QUEUES}
    to_many = [
        send_frames.send(each | {"e": str(QUEUES_FROM + number)}, BODY, 1)
        for number in range(BATCH)
    ]
    frames = {
        "send": (send_frames.send(fields, BODY, 1), 1),
        "send, 32 at a time": (send_frames.send(fields, BODY, 1) * BATCH, BATCH),
        "send, 32 to 32 queues": (b"".join(to_many), BATCH),
        "batch of 32": (send_frames.send(batch, item * BATCH, 1, code=320), BATCH),
        "pull of 32": (pull_frames.pull(pull_frames.fields_of(TOPIC, 0, 0, flags=3), 1), BATCH),
        "pull of 1": (pull_frames.pull(pull_frames.fields_of(TOPIC, 0, 0, flags=3, most=1), 1), 1),
        "pull without a result": (pull_at(0, 2, flags=1), 1),
        "send, binary header": (send_frames.send(fields, BODY, 1, client=BINARY), 1),
        "pull of 1, binary header": (
            pull_frames.pull(pull_frames.fields_of(TOPIC, 0, 0, flags=3, most=1), 1, client=BINARY),
            1,
        ),
    }
    a_loop()
    counter.count(LOOP, 1, a_loop)
    for name, (frame, messages) in frames.items():
        for _ in range(WARM_UP):
            twin.transport.written.clear()
            twin.receive(frame)
        codes = (b'{"code":0,', b'{"code":19,', BINARY_SUCCESS)
        assert twin.transport.written.startswith(codes, 8), twin.transport.written

        def serve(frame: bytes = frame) -> None:
            for _ in range(COUNTED):
                twin.receive(frame)
                twin.transport.written.clear()

        counter.count(name, COUNTED * messages, serve)
    await count_waits(counter, twin, send_frames.send(fields | {"e": "1"}, BODY, 1))
    count_transactions(counter, twin)
    await twin.shutdown()


def count_transactions(counter: Counter, twin: Twin) -> None:
    """Count half messages, and their commits."""
    properties = f"{transaction_frames.PLAIN}UNIQ_KEY\x01AC11000100002A9F01\x02WAIT\x01true"
    half = transaction_frames.half(TOPIC, 0, properties, BODY, 1)
    pending = twin.parts.transactions.pending

    def send_halves(count: int) -> None:
        for _ in range(count):
            twin.receive(half)
            twin.transport.written.clear()

    def commits() -> list[bytes]:
        places = [(one.queue_offset, one.commit_log_offset) for one in pending.values()]
        return [
            transaction_frames.end(transaction_frames.end_fields(*place), 1) for place in places
        ]

    def commit(frames: list[bytes]) -> None:
        for frame in frames:
            twin.receive(frame)

    send_halves(WARM_UP)
    commit(commits())
    counter.count("half message", COUNTED, lambda: send_halves(COUNTED))
    frames = commits()
    assert len(frames) == COUNTED
    counter.count("commit", COUNTED, lambda: commit(frames))
    assert not pending, twin.transport.written


def pull_at(offset: int, queue_id: int = 0, *, flags: int = 3) -> bytes:
    """Return a pull of the connected group."""
    return pull_frames.pull(pull_frames.fields_of(TOPIC, queue_id, offset, flags=flags), 1)


async def count_waits(counter: Counter, twin: Twin, send: bytes) -> None:
    """Count a pull at the end of its queue, the send that it waits for, and its answer."""
    end = twin.parts.store.max_offset_in_queue(TOPIC, 1)
    pulls = [pull_at(end + number, 1) for number in range(WARM_UP + COUNTED)]
    for number, pull in enumerate(pulls):
        if number == WARM_UP:
            counter.begin()
        twin.receive(pull)
        twin.receive(send)
        await asyncio.sleep(0)
        assert twin.transport.written.count(b'"nextBeginOffset"') == 1
        twin.transport.written.clear()
    counter.end("waiting pull and the send that ends it", COUNTED)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.instructions")
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--counted", help=argparse.SUPPRESS)
    parser.add_argument("--twin", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.counted is not None:
        counter = Counter(Path(arguments.counted))
        with asyncio.Runner(loop_factory=TimelessLoop) as runner:
            runner.run(count_all(counter, is_native=arguments.twin == NATIVE))
        return 0
    found = {twin: measure(twin) for twin in (NATIVE, PYTHON)}
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    if arguments.store:
        stored = json.loads(STORED.read_text()) if STORED.exists() else {}
        STORED.write_text(json.dumps(stored | {build_name(): found}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
