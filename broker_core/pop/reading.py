"""Helpers for pops: await their reads, and split a read into records."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Iterator

    from broker_core.pop.results import PopResult
    from broker_core.store.results import GetMessageResult

    Steps = Generator[Awaitable[GetMessageResult], GetMessageResult, None]


async def finish(
    steps: Steps, reading: Awaitable[GetMessageResult], popped: PopResult
) -> PopResult:
    """Await the reads of a pop until the pop is complete."""
    try:
        while True:
            result = await reading
            reading = steps.send(result)
    except StopIteration:
        return popped
    finally:
        steps.close()


def records_of(result: GetMessageResult) -> Iterator[memoryview]:
    """Yield each record of a read."""
    for buffer in result.buffers:
        position, size = 0, len(buffer)
        while position < size:
            end = position + int.from_bytes(buffer[position : position + 4], "big")
            yield buffer[position:end]
            position = end


def last_record(result: GetMessageResult) -> memoryview:
    """Return the last record of a read that has at least one."""
    *_, last = records_of(result)
    return last
