"""Count the instructions per message at each level of the live trace, compared with none.

    python -m tools.bench.tracing --instructions

One broker in this process for each mode, as in tools/bench/instructions; all messages are sent
while the mode is in force, then pulled and acknowledged. A sample reports exactly one of SAMPLE
messages, or no message, which shows the fixed cost of a watch. Encoding and pushing the reports is
included in the count.
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
    "none in the sample",
    "sampled",
    "sampled, recorder",
    "watched",
    "full",
)
"""At the level full, without a recorder unless named."""
SAMPLE = 100
AT_ONCE = 32
WARM_UP = 20
PUSHES = 5
"""Pushes that carry all reports of one mode; one costs as much as reporting six messages."""
SEND, SENDS, PULL, PULLS = KINDS = (
    "send",
    f"send, {AT_ONCE} at a time",
    "pull of 1, acknowledged",
    f"pull of {AT_ONCE}, acknowledged",
)
REQUESTS = {SEND: 1_000, SENDS: 100, PULL: 1_000, PULLS: 100}
"""Counted requests: of 20,000 a second, 1,000 arrive with each push."""
MESSAGES = {SEND: 1, SENDS: AT_ONCE, PULL: 1, PULLS: AT_ONCE}
SINGLE_QUEUE, MANY_QUEUE = 0, 1
COSTS = dict[tuple[str, str], float]


def measure() -> COSTS:
    """Return the instructions of a message by kind of request and mode."""
    found = instructions.counted("tools.bench.tracing.instructions")
    return {(kind, mode): found[f"{mode}: {kind}"] for kind in KINDS for mode in MODES}


def way(costs: COSTS, mode: str, *, at_once: int) -> float:
    """Return the instructions of a message from send to acknowledgement."""
    kinds = [kind for kind in KINDS if MESSAGES[kind] == at_once]
    return sum(costs[kind, mode] for kind in kinds)


def report_cost(costs: COSTS, kind: str) -> float:
    """Return the instructions of all reports about one message of a sample."""
    return (costs[kind, SAMPLED] - costs[kind, UNPICKED]) * SAMPLE


def table(costs: COSTS) -> Iterator[str]:
    """Yield the lines of a report."""
    for kind in KINDS:
        before = costs[kind, OFF]
        for mode in MODES:
            cost = costs[kind, mode]
            yield f"{kind:<26}{mode:<18}{cost:12.0f}  {cost / before - 1:+.1%}"
        yield f"{kind:<26}{'one reported event':<18}{report_cost(costs, kind):12.0f}"
    for at_once in (1, AT_ONCE):
        for mode in MODES:
            cost = way(costs, mode, at_once=at_once)
            over = cost / way(costs, OFF, at_once=at_once) - 1
            yield f"{f'end to end, {at_once} at a time':<26}{mode:<18}{cost:12.0f}  {over:+.1%}"


def a_key(number: int, *, is_wanted: bool) -> str:
    """Return the key of a message inside or outside the sample."""
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
    """Return the received frames of a kind, the first WARM_UP uncounted."""
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
            # Exactly the sample's share of the counted messages is in the sample.
            is_wanted=mode != UNPICKED and (number - WARM_UP * at_once) % SAMPLE == SAMPLE // 2,
        )
        for number in range(len(requests) * at_once)
    ]
    return [b"".join(sends[number * at_once : (number + 1) * at_once]) for number in requests]


def trace(twin: Twin, mode: str) -> None:
    """Trace in a mode."""
    tracer = twin.parts.tracer
    if mode == OFF:
        tracer.set_level(LEVEL_OFF)
    elif mode == FULL:
        tracer.set_level(LEVEL_FULL, 60)
    elif mode != RECORDER:
        if mode != RECORDED:
            tracer.set_level(LEVEL_WATCHED)
        selection = TraceWatch() if mode == WATCHED else TraceWatch(sample=SAMPLE)
        assert tracer.watch("watcher", selection, Watcher(lambda _: True)) is not None


async def count(counter: instructions.Counter, mode: str) -> None:
    """Count all kinds of requests in a mode."""
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
        tracer.watched_messages.flushed(log.max_offset, twin.clock.monotonic(), 1)
        for _ in range(WARM_UP):
            await asyncio.sleep(0)
        for _ in range(PUSHES):
            tracer.push_all()
        # Exclude existing objects, so that the next collection is always equally far away.
        gc.collect()
        gc.freeze()
        counter.begin()
        for frame in frames[WARM_UP:]:
            twin.receive(frame)
            twin.transport.written.clear()
        if mode != OFF and kind in (SEND, SENDS):
            tracer.watched_messages.flushed(log.max_offset, twin.clock.monotonic(), 1)
        while len(tracer.watched_messages):  # noqa: ASYNC110
            await asyncio.sleep(0)  # each turn of the loop reports more
        for _ in range(PUSHES):
            tracer.push_all()
        counter.end(f"{mode}: {kind}", REQUESTS[kind] * MESSAGES[kind])
    turn = twin.wire.plain_requests
    assert turn is not None
    # Except for first messages and offsets, and for room in the index.
    assert sum(turn.fallbacks.values()) < min(REQUESTS.values()) // 4, turn.fallbacks
    await twin.shutdown()


async def count_all(counter: instructions.Counter) -> None:
    """Count each mode."""
    for mode in MODES:
        await count(counter, mode)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.tracing.instructions")
    parser.add_argument("--counted", required=True, help="directory with the Counter's files")
    arguments = parser.parse_args()
    counter = instructions.Counter(Path(arguments.counted))
    with asyncio.Runner(loop_factory=instructions.TimelessLoop) as runner:
        runner.run(count_all(counter))
    return 0


if __name__ == "__main__":
    sys.exit(main())
