"""Feed the compiled turn damaged frames, and the accepted ones to its Python twin as well.

    python -m tools.fuzz.native [--frames 10000000] [--seed S] [--sanitized]

Both must answer alike and leave the same bytes and counts. A frame that the turn doesn't accept is
dropped, because Python would handle it on both sides. `--sanitized` compiles the turn with
AddressSanitizer and UndefinedBehaviorSanitizer (some minutes the first time), which end the run at
the first out-of-bounds access; each frame has its own allocation, so that reading one extra byte
is detected.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from broker_core.native import build as native_build, loading, paths
from broker_core.store.reads import FRESH_BYTES
from tests.support import pull_frames, transaction_frames
from tests.support.send_frames import damaged
from tests.support.twins import TOPICS, Pair, Twin, configuration, settled
from tools.results import documents, pages
from tools.results.documents import FuzzRun
from tools.results.machine import provenance

FRAMES = 10_000_000
FRAMES_A_STORE = 50_000
"""After this many frames both continue with empty stores."""
CONFIGURATIONS: tuple[dict[str, object], ...] = ({}, {"enabledAppendPropCRC": "true"})
KINDS = 2_000
"""Number of frames to damage, for each store."""
FRAMES_A_LOOK = 10_000
FRAMES_A_WHOLE_ONE = 16
"""One in this many frames goes unchanged to complete brokers."""
HALVES_SHARE, ENDS_SHARE = 0.1, 0.1
HALVES_MAX = 20
"""One of up to this many undecided transactions, the oldest ones, is ended."""
DAMAGED_SHARE, CUT_SHARE, ALIKE_SHARE = 0.7, 0.2, 0.3
ROOM, REQUESTS_MAX = 1 << 18, 1 << 10
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
BESIDE_PYTHON = "compiled turn compared with its Python twin"
SANITIZED = "compiled turn with AddressSanitizer and UndefinedBehaviorSanitizer"
CHILD = "TREBUCHET_FUZZ_BUILT"
"""Path of the compiled turn, for the process with the sanitizers' library."""
DIFFERENT_BY_NATURE = ("answers", "kept", "in_flight", "closed", "attempts", "groups")
"""The first pull for a group creates it, on either side."""


async def fuzz(rng: random.Random, frames: int) -> int:
    """Return how many frames the turn accepted.

    Raises:
        AssertionError: the twins differ.
    """
    processed = 0
    for begin in range(0, frames, FRAMES_A_STORE):
        async with Pair(configuration(**rng.choice(CONFIGURATIONS))) as pair:
            processed += await _fuzz(rng, pair, min(FRAMES_A_STORE, frames - begin))
    return processed


async def _fuzz(rng: random.Random, pair: Pair, count: int) -> int:
    kinds = [
        (transaction_frames.any_half if rng.random() < HALVES_SHARE else pull_frames.any_request)(
            rng, TOPICS, number
        )
        for number in range(KINDS)
    ]
    pending = pair.native.parts.transactions.pending
    processed, last = 0, kinds[0]
    for number in range(count):
        # Frames similar to the last one take a different code path.
        frame = last if rng.random() < ALIKE_SHARE else rng.choice(kinds)
        if pending and rng.random() < ENDS_SHARE:
            halves = list(islice(pending.values(), HALVES_MAX))
            frame = transaction_frames.any_end(rng, halves, number)
        if number < KINDS // 10 or number % FRAMES_A_WHOLE_ONE == 0:
            # Python creates queues, and room in files and the index.
            await pair.feed(frame, settle=False)
            if pair.native.transport.closed:
                pair.reconnect()
            continue
        if rng.random() < DAMAGED_SHARE:
            frame = damaged(rng, frame)
        elif rng.random() < CUT_SHARE:
            frame = frame[: rng.randrange(len(frame))]
        answers, size = take(pair.native, frame)
        if answers != b"":
            processed += 1
            last = frame[:size]
            pair.python.transport.written.clear()
            pair.python.receive(frame[:size])
            assert pair.python.transport.written == (answers or b""), frame
        if number % FRAMES_A_LOOK == 0:
            await _wake(pair)
            _compare(pair)
            pair.advance_ms(rng.choice((0, 1, 2, 5_000)))
            # This much of the log's end is read through a mapping, the rest through the storage.
            pair.keep_in_memory(
                rng.choice((0, 1 << rng.randrange(24))),
                is_resident=True,
                fresh_bytes=rng.choice((0, FRESH_BYTES)),
            )
            await _wake(pair)
    _compare(pair)
    return processed


async def _wake(pair: Pair) -> None:
    """Let both sides answer waiting pulls."""
    for twin in (pair.native, pair.python):
        twin.transport.written.clear()
    await settled()
    assert pair.native.transport.written == pair.python.transport.written


def take(twin: Twin, frame: bytes) -> tuple[bytes | None, int]:
    """Offer a frame to the turn; return the answer, and how many bytes were accepted.

    The answer is None if it waits, b"" if the turn declined. A damaged length may shorten the
    frame.
    """
    wire = twin.wire
    assert wire.plain_requests is not None
    frame_max = wire.limits.frame.frame_bytes_max - 4
    received = memoryview(frame)
    answers = wire.plain_requests.serve(
        twin.connection, received, len(frame), frame_max, wire.dispatcher, ROOM, REQUESTS_MAX
    )
    assert answers is None or isinstance(answers, bytes)
    size = wire.plain_requests.served_bytes
    assert (size > 0) == (answers != b""), (
        "the compiled turn and its twin disagree on what they served"
    )
    twin.parts.stats.put_latency.end_turn(0.0)
    return answers, size


def _compare(pair: Pair) -> None:
    native, python = pair.native.seen(), pair.python.seen()
    for name in native.keys() - set(DIFFERENT_BY_NATURE):
        assert native[name] == python[name], name


def sanitized_run(arguments: list[str]) -> int:
    """Compile with sanitizers, and run the command in a process that has their library."""
    with tempfile.TemporaryDirectory() as directory:
        _choose(Path(directory))
        native_build.build()
        libraries = [_library(name) for name in ("libasan.so", "libubsan.so")]
        environment = {
            **os.environ,
            CHILD: directory,
            "LD_PRELOAD": " ".join(libraries),
            # Python keeps memory until exit, and its allocator would hide freed memory.
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",
        }
        command = [sys.executable, "-m", "tools.fuzz.native", *arguments]
        return subprocess.run(command, env=environment, check=False).returncode


def _choose(directory: Path) -> None:
    """Have the turn of this process be the one with sanitizers."""
    paths.BUILT = directory
    paths.FLAGS = (*paths.FLAGS, *SANITIZERS)


def _library(name: str) -> str:
    output = subprocess.run(
        ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
    )
    return output.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.native")
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="DOCS",
        help="write the results to DOCS/results and update its pages",
    )
    arguments = parser.parse_args()
    if arguments.sanitized and CHILD not in os.environ:
        return sanitized_run(sys.argv[1:])
    if arguments.sanitized:
        _choose(Path(os.environ[CHILD]))
    logging.disable()
    rng = random.Random(arguments.seed)
    words = loading.load({loading.VARIABLE: "1"}).words
    sys.stdout.write(f"seed {arguments.seed}, {words}, sanitized: {arguments.sanitized}\n")
    began, done, processed = time.monotonic(), 0, 0
    while done < arguments.frames:
        count = min(FRAMES_A_STORE, arguments.frames - done)
        processed += asyncio.run(fuzz(rng, count))
        done += count
        seconds = time.monotonic() - began
        sys.stdout.write(f"{done} frames, {processed} taken, {seconds:.0f} s\n")
        sys.stdout.flush()
    if arguments.write:
        publish(arguments.write, done, arguments.seed, is_sanitized=arguments.sanitized)
    return 0


def publish(folder: Path, frames: int, seed: int, *, is_sanitized: bool) -> None:
    """Write a run without a difference into a folder of documents, and render its pages."""
    row = FuzzRun(
        **provenance("tools.fuzz.native"),
        what=SANITIZED if is_sanitized else BESIDE_PYTHON,
        inputs=frames,
        findings=0,
        is_guided=False,
        seed=seed,
    )
    documents.record(folder, "fuzz", [row])
    pages.render(folder)


if __name__ == "__main__":
    sys.exit(main())
