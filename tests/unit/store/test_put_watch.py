"""Slow puts: only puts that take more than 500 ms are logged."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from broker_core.store.results import PutMessageStatus
from tests.support.builders import HOST, LOG_FILE_SIZE, put

if TYPE_CHECKING:
    from broker_core.store.message_store import MessageStore
    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage


class SlowBuffer(bytearray):
    """Memory with slow page faults: each written slice advances the time."""

    def __init__(self, clock: ManualClock, milliseconds: int) -> None:
        super().__init__(LOG_FILE_SIZE)
        self.clock = clock
        self.milliseconds = milliseconds

    def __setitem__(self, place, data) -> None:
        self.clock.hold_ms(self.milliseconds)
        super().__setitem__(place, data)


def slow_down(storage: FaultyStorage, clock: ManualClock, call: str, milliseconds: int) -> None:
    """Make each call of a kind take this long."""

    def hold(made: str) -> None:
        if made == call:
            clock.hold_ms(milliseconds)

    storage.on_call = hold


def slow_put_lines(caplog) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if "slow put" in entry.message]


def put_batch(store: MessageStore) -> PutMessageStatus:
    item = b"\0\0\0\x1b" + bytes(8) + b"\0\0\0\x07" + b"\0\0\0\x05" + b"hello" + b"\0\0"
    return store.put_batch(
        "TopicTest", 0, item * 3, "", sys_flag=0, born_timestamp=0, born_host=HOST
    ).status


async def test_a_put_that_waits_for_pages_over_500_ms_is_reported(store, clock, caplog):
    put(store)
    clock.hold_ms(1)
    # Two slices are written per record.
    slow = store.files.put_state.buffer = SlowBuffer(clock, 250)

    put(store)
    assert slow_put_lines(caplog) == []
    slow.milliseconds = 251
    result = put(store, body=b"x" * 1000)

    assert slow_put_lines(caplog) == [
        f"slow put topic=TopicTest queue_id=0 size={result.wrote_size} took_ms=502 "
        "waited_for=pages of the mapped files 502 ms"
    ]


async def test_a_put_that_freed_space_reports_its_wait(store, storage, clock, caplog):
    # The log, the queue and the index: each creates its first file, and allocates its blocks.
    slow_down(storage, clock, "allocate", 200)

    result = put(store, uniq_key="U")

    (line,) = slow_put_lines(caplog)
    assert f"size={result.wrote_size} " in line
    waits = re.findall(r"[=,] ?([a-zA-Z][a-zA-Z ]+) (\d+) ms", line.partition("waited_for")[2])
    assert {what for what, _ in waits} >= {
        "a file of the log",
        "blocks for the ConsumeQueue",
        "blocks for the index",
    }
    (took,) = re.findall(r"took_ms=(\d+)", line)
    assert sum(int(milliseconds) for _, milliseconds in waits) == int(took) >= 600


async def test_space_and_write_time_count_together(store, storage, clock, caplog):
    put(store)
    clock.hold_ms(1)
    slow_down(storage, clock, "allocate", 300)
    state = store.files.put_state
    slow = SlowBuffer(clock, 150)
    state.buffer = slow

    put(store, "Other")

    (line,) = slow_put_lines(caplog)
    assert "took_ms=600 " in line
    assert "blocks for the ConsumeQueue 300 ms" in line
    assert "pages of the mapped files 300 ms" in line


async def test_the_put_after_a_slow_one_is_not_reported(store, storage, clock, caplog):
    slow_down(storage, clock, "allocate", 600)
    put(store)
    storage.on_call = lambda _: None

    put(store)
    clock.hold_ms(60_000)
    put(store)

    assert len(slow_put_lines(caplog)) == 1


async def test_a_wall_clock_step_is_not_a_slow_put(store, clock, caplog):
    put(store)
    clock.step_wall_clock_ms(3_600_000)
    put(store)
    clock.step_wall_clock_ms(-7_200_000)
    put(store)
    clock.hold_ms(1_000)
    put(store)

    assert slow_put_lines(caplog) == []


async def test_a_batch_is_reported_as_one_put(store, storage, clock, caplog):
    slow_down(storage, clock, "allocate", 600)

    assert put_batch(store) is PutMessageStatus.PUT_OK

    assert [line.partition(" took")[0] for line in slow_put_lines(caplog)] == [
        f"slow put topic=TopicTest queue_id=0 size={store.max_commit_log_offset}"
    ]


async def test_slow_puts_are_reported_with_their_offset_and_duration(store, clock):
    noted = []
    store.note_slow_puts(lambda *slow: noted.append(slow))
    put(store)
    clock.hold_ms(1)
    slow = store.files.put_state.buffer = SlowBuffer(clock, 30)
    result = put(store)
    await asyncio.sleep(0)

    ((offset, seconds),) = noted
    assert offset == result.commit_log_offset
    assert round(seconds, 3) == 0.06
    slow.milliseconds = 0
    clock.hold_ms(1)
    put(store)
    await asyncio.sleep(0)
    assert len(noted) == 1


async def test_timed_puts_record_when_they_were_appended_and_dispatched(store, clock):
    state = store.files.put_state
    store.time_puts(True)

    for one in (put, put_batch):
        clock.advance_ms(1_000)
        one(store)
        assert state.appended_at == state.dispatched_at == clock.monotonic()

    store.time_puts(False)
    clock.advance_ms(1_000)
    put(store)
    assert state.appended_at == clock.monotonic() - 1
