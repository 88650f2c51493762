"""How many instructions a message costs at each level of the live trace, beside none.

    python -m tools.bench.tracing --instructions

One broker in this process for each mode, as in tools/bench/instructions; all messages are sent
while the mode is in force, then pulled and acknowledged. Of a sample exactly one of SAMPLE messages
is wanted, or none: then what remains is what it costs to be watched. What is told of is encoded and
pushed within what is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from broker_core.trace.filter import TraceWatch
from broker_core.trace.tracer import (
    FULL as LEVEL_FULL,
    OFF as LEVEL_OFF,
    WATCHED as LEVEL_WATCHED,
)
from broker_core.trace.watch import Watcher
from tests.support import pull_frames, send_frames
from tests.support.clock import StillClock
from tools.bench.instructions import __main__ as instructions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.twins import Twin

OFF, RECORDER, UNPICKED, SAMPLED, RECORDED, WATCHED, FULL = MODES = (
    "off",
    "recorder",
    "none of a sample",
    "sampled",
    "sampled, recorder",
    "watched",
    "full",
)
"""Without a recorder but where it is named, and at the level full."""
SAMPLE = 100
AT_ONCE = 32
WARM_UP = 20
PUSHES = 5
"""So many take all that one mode tells; one costs as much as to tell of six messages."""
SEND, SENDS, PULL, PULLS = KINDS = (
    "send",
    f"send, {AT_ONCE} at a time",
    "pull of 1, acknowledged",
    f"pull of {AT_ONCE}, acknowledged",
)
REQUESTS = {SEND: 1_000, SENDS: 100, PULL: 1_000, PULLS: 100}
"""How many are counted: of 20,000 a second 1,000 come with each push."""
MESSAGES = {SEND: 1, SENDS: AT_ONCE, PULL: 1, PULLS: AT_ONCE}
SINGLE_QUEUE, MANY_QUEUE = 0, 1
COSTS = dict[tuple[str, str], float]


def measure() -> COSTS:
    """Return the instructions of a message by kind of request and mode."""
    found = instructions.counted("tools.bench.tracing.instructions")
    return {(kind, mode): found[f"{mode}: {kind}"] for kind in KINDS for mode in MODES}


def way(costs: COSTS, mode: str, *, at_once: int) -> float:
    """Return the instructions of a message on its whole way: sent, handed out, acknowledged."""
    kinds = [kind for kind in KINDS if MESSAGES[kind] == at_once]
    return sum(costs[kind, mode] for kind in kinds)


def told_cost(costs: COSTS, kind: str) -> float:
    """Return the instructions of all that is told of one message of a sample."""
    return (costs[kind, SAMPLED] - costs[kind, UNPICKED]) * SAMPLE


def table(costs: COSTS) -> Iterator[str]:
    """Yield the lines of a report."""
    for kind in KINDS:
        before = costs[kind, OFF]
        for mode in MODES:
            cost = costs[kind, mode]
            yield f"{kind:<26}{mode:<18}{cost:12.0f}  {cost / before - 1:+.1%}"
        yield f"{kind:<26}{'to tell of one':<18}{told_cost(costs, kind):12.0f}"
    for at_once in (1, AT_ONCE):
        for mode in MODES:
            cost = way(costs, mode, at_once=at_once)
            over = cost / way(costs, OFF, at_once=at_once) - 1
            yield f"{f'whole way, {at_once} at a time':<26}{mode:<18}{cost:12.0f}  {over:+.1%}"


def a_key(number: int, *, is_wanted: bool) -> str:
    """Return a message's key, which a sample wants or not."""
    attempt = 0
    while True:
        key = f"7F0000010000{number:08X}{attempt:012X}"
        if (crc32(key.encode()) % SAMPLE == 0) is is_wanted:
            return key
        attempt += 1


def a_send(number: int, queue_id: int, *, is_wanted: bool) -> bytes:
    key = a_key(number, is_wanted=is_wanted)
    text = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01TagA"
    fields = send_frames.fields_of(instructions.TOPIC, queue_id, text)
    return send_frames.send(fields, instructions.BODY, 1)


def a_pull(queue_id: int, offset: int, most: int) -> bytes:
    fields = pull_frames.fields_of(
        instructions.TOPIC, queue_id, offset, flags=pull_frames.COMMIT, most=most, commit=offset
    )
    return pull_frames.pull(fields, 1)


def frames_of(kind: str, mode: str) -> list[bytes]:
    """Return what is received of a kind, the first WARM_UP uncounted."""
    requests = range(WARM_UP + REQUESTS[kind])
    if kind == PULL:
        return [a_pull(SINGLE_QUEUE, number, 1) for number in requests]
    if kind == PULLS:
        return [a_pull(MANY_QUEUE, number * AT_ONCE, AT_ONCE) for number in requests]
    at_once, queue_id = (1, SINGLE_QUEUE) if kind == SEND else (AT_ONCE, MANY_QUEUE)
    sends = [
        a_send(
            number,
            queue_id,
            # So that of those that are counted just as many are wanted as a sample says.
            is_wanted=mode != UNPICKED and (number - WARM_UP * at_once) % SAMPLE == SAMPLE // 2,
        )
        for number in range(len(requests) * at_once)
    ]
    return [b"".join(sends[number * at_once : (number + 1) * at_once]) for number in requests]


def trace(twin: Twin, mode: str) -> None:
    """Trace as a mode says."""
    tracer = twin.parts.tracer
    if mode == OFF:
        tracer.set_level(LEVEL_OFF)
    elif mode == FULL:
        tracer.set_level(LEVEL_FULL, 60)
    elif mode != RECORDER:
        if mode != RECORDED:
            tracer.set_level(LEVEL_WATCHED)
        wanted = TraceWatch() if mode == WATCHED else TraceWatch(sample=SAMPLE)
        assert tracer.watch("watcher", wanted, Watcher(lambda _: True)) is not None


async def count(counter: instructions.Counter, mode: str) -> None:
    """Count all kinds of requests at a mode."""
    random.seed(0)
    twin = await instructions.a_twin(is_native=True, clock=StillClock())
    trace(twin, mode)
    tracer, log = twin.parts.tracer, twin.parts.store.files.log
    for kind in KINDS:
        frames = frames_of(kind, mode)
        for frame in frames[:WARM_UP]:
            twin.receive(frame)
        assert twin.transport.written.startswith(b'{"code":0,', 8), twin.transport.written
        twin.transport.written.clear()
        tracer.followed.flushed(log.max_offset, twin.clock.monotonic(), 1)
        for _ in range(WARM_UP):
            await asyncio.sleep(0)
        for _ in range(PUSHES):
            tracer.push_all()
        # What was there before is nobody's garbage, and the next collection as far away each time.
        gc.collect()
        gc.freeze()
        counter.begin()
        for frame in frames[WARM_UP:]:
            twin.receive(frame)
            twin.transport.written.clear()
        if mode != OFF and kind in (SEND, SENDS):
            tracer.followed.flushed(log.max_offset, twin.clock.monotonic(), 1)
        while len(tracer.followed):  # noqa: ASYNC110
            await asyncio.sleep(0)  # each turn of the loop tells some more
        for _ in range(PUSHES):
            tracer.push_all()
        counter.end(f"{mode}: {kind}", REQUESTS[kind] * MESSAGES[kind])
    turn = twin.wire.plain_requests
    assert turn is not None
    # But for first messages and offsets, and for room in the index.
    assert sum(turn.left.values()) < min(REQUESTS.values()) // 4, turn.left
    await twin.shutdown()


async def count_all(counter: instructions.Counter) -> None:
    """Count each mode."""
    for mode in MODES:
        await count(counter, mode)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.tracing.instructions")
    parser.add_argument("--counted", required=True, help="where the Counter finds what it needs")
    given = parser.parse_args()
    counter = instructions.Counter(Path(given.counted))
    with asyncio.Runner(loop_factory=instructions.TimelessLoop) as runner:
        runner.run(count_all(counter))
    return 0


if __name__ == "__main__":
    sys.exit(main())
