from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

from broker_core.delay.schedule import FAILURES_MAX, RETRY_MS
from broker_core.message.names import RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from broker_core.store.results import PutMessageResult, PutMessageStatus
from tests.support.builders import put
from tests.support.delay_store import LEVELS, Delayed

if TYPE_CHECKING:
    import random

    import pytest

    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage

HOUR = 3_600_000
SLACK_MS = 25
"""Maximum delay of a message by the manual clock; DueTimes says why."""


async def test_a_message_is_delivered_after_its_delay_and_not_before(delayed: Delayed) -> None:
    delayed.send(3)

    assert await delayed.after(9_999) == []
    assert await delayed.after(1 + SLACK_MS) == [b"later"]


async def test_the_copy_has_the_message_with_its_waiting_properties(
    delayed: Delayed,
) -> None:
    sent = delayed.send(1, b"body", "T", 5, TAGS="A", KEYS="k", UNIQ_KEY="U", WAIT="true")

    await delayed.after(1_100)

    (copy,) = delayed.arrived("T", 5)
    assert (copy.body, copy.flag, copy.born_timestamp, copy.queue_offset) == (b"body", 7, 1, 0)
    assert copy.commit_log_offset > sent.commit_log_offset
    assert copy.properties == {
        "DELAY": "1",
        "TAGS": "A",
        "KEYS": "k",
        "UNIQ_KEY": "U",
        "WAIT": "true",
        "REAL_TOPIC": "T",
        "REAL_QID": "5",
    }
    # It can be found by tag and key like any other.
    ((_, _, tags_code),) = delayed.store.units("T", 5, 0, 1)
    assert tags_code == ord("A")
    assert delayed.store.query_message("T", "k", 1, 0, 1 << 60)


async def test_levels_deliver_in_the_order_of_their_due_times(delayed: Delayed) -> None:
    delayed.send(2, b"slow")
    delayed.send(1, b"quick")
    delayed.clock.advance_ms(100)
    delayed.send(1, b"second")

    assert await delayed.after(950) == [b"quick"]
    assert await delayed.after(150) == [b"quick", b"second"]
    assert await delayed.after(4_000) == [b"quick", b"second", b"slow"]


async def test_a_failing_delivery_is_retried_and_blocks_no_other_level(
    delayed: Delayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = delayed.store.put_copy
    fails = True

    def put_copy(message, topic, *args, **kwargs):
        if fails and topic == "Bad":
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        return real(message, topic, *args, **kwargs)

    monkeypatch.setattr(delayed.store, "put_copy", put_copy)
    delayed.send(1, b"stuck", "Bad")
    delayed.send(1, b"behind")
    delayed.send(2, b"other level")

    assert await delayed.after(6_000) == [b"other level"]
    fails = False
    assert await delayed.after(100) == [b"other level", b"stuck", b"behind"]


async def test_a_full_disk_delays_but_loses_nothing(
    delayed: Delayed, storage: FaultyStorage
) -> None:
    delayed.send(1)
    delayed.clock.advance_ms(1_100)
    free, storage.free_bytes = storage.free_bytes, 0
    filler = b"." * 8_000
    while put(delayed.store, "Filler", body=filler).status is PutMessageStatus.PUT_OK:
        pass

    assert await delayed.after(100) == []

    storage.free_bytes = free
    for _ in range(3):
        delayed.clock.advance_ms(10_000)
        await asyncio.sleep(0)
    assert await delayed.after(100) == [b"later"]


async def test_an_unstorable_message_does_not_delay_the_others(
    delayed: Delayed, caplog: pytest.LogCaptureFixture
) -> None:
    delayed.send(1, b"no topic", "bad/topic")
    delayed.send(1, b"half", RMQ_SYS_TRANS_HALF_TOPIC)
    delayed.send(1, b"good")

    assert await delayed.after(1_100) == [b"good"]
    assert caplog.text.count("delayed message skipped") == 2
    assert delayed.store.max_offset_in_queue(RMQ_SYS_TRANS_HALF_TOPIC, 0) == 0


async def test_a_restart_continues_where_the_last_one_stopped(
    delayed: Delayed, clock: ManualClock, storage: FaultyStorage
) -> None:
    delayed.send(1, b"before")
    await delayed.after(1_100)
    delayed.send(2, b"pending")
    await delayed.stop()

    again = Delayed(clock, storage)
    await again.start()

    assert await again.after(4_900) == []
    assert await again.after(200) == [b"pending"]
    assert [message.body for message in again.arrived()] == [b"before", b"pending"]
    await again.stop()


async def test_messages_that_became_due_meanwhile_are_delivered_at_the_start(
    delayed: Delayed, clock: ManualClock, storage: FaultyStorage
) -> None:
    for level in range(1, 6):
        delayed.send(level, b"%d" % level)
    await delayed.stop()
    clock.advance_ms(10 * HOUR)

    again = Delayed(clock, storage)
    await again.start()

    assert sorted(await again.after(0)) == [b"1", b"2", b"3", b"4", b"5"]
    await again.stop()


async def test_a_kill_between_delivery_and_persisting_delivers_twice_but_loses_nothing(
    delayed: Delayed, clock: ManualClock, storage: FaultyStorage
) -> None:
    delayed.send(1, b"one")
    await delayed.after(1_100)
    await delayed.schedule.persist()
    delayed.send(1, b"two")
    await delayed.after(1_100)

    again = Delayed(clock, storage.crash())
    await again.start()
    await again.after(0)

    assert [message.body for message in again.arrived()] == [b"one", b"two", b"two"]
    await again.stop()


async def test_a_message_after_a_failed_flush_is_left_for_the_restart(
    delayed: Delayed, clock: ManualClock, storage: FaultyStorage
) -> None:
    delayed.send(1, b"flushed")
    assert await delayed.store.flush()
    await delayed.after(1_100)
    delayed.send(1, b"behind")
    storage.fail("fdatasync")
    assert not await delayed.store.flush()

    await delayed.after(1_100)

    # A slave fetches this offset, and would never deliver messages that its master skipped.
    assert delayed.schedule.offset_of(1) == 1
    again = Delayed(clock, storage.crash())
    await again.start()
    await again.after(1_100)
    assert b"behind" in [message.body for message in again.arrived()]
    await again.stop()


async def test_no_power_cut_loses_a_message_whose_offset_is_written(
    clock: ManualClock, storage: FaultyStorage, rng: random.Random
) -> None:
    """The copy is durable before the offset that marks it as delivered."""
    delayed = Delayed(clock, storage, flush_disk_type="SYNC_FLUSH")
    await delayed.start()
    for number in range(20):
        delayed.send(1, b"%d" % number)
    assert await delayed.store.flush()
    clock.advance_ms(1_100)
    delivering = asyncio.create_task(delayed.deliver())
    persisting = asyncio.create_task(delayed.schedule.persist())
    await asyncio.gather(delivering, persisting)
    await delayed.schedule.persist()

    again = Delayed(clock, storage.cut_power(rng), flush_disk_type="SYNC_FLUSH")
    await again.start()
    await again.after(2_000)
    assert await again.store.flush()

    assert {message.body for message in again.arrived()} == {b"%d" % n for n in range(20)}
    await again.stop()
    await delayed.stop()


async def test_an_offset_beyond_the_queue_is_corrected(
    delayed: Delayed, clock: ManualClock, storage: FaultyStorage
) -> None:
    delayed.send(1)
    await delayed.after(1_100)
    delayed.offsets.move(1, 900)
    await delayed.stop()

    again = Delayed(clock, storage)
    await again.start()

    assert again.offsets.table == {1: 1}
    again.send(1, b"new")
    assert await again.after(1_100) == [b"new"]
    await again.stop()


async def test_messages_from_a_master_are_due_by_their_unit_when_a_slave_becomes_master(
    delayed: Delayed, clock: ManualClock
) -> None:
    """A slave's schedule didn't see the put, so it must not count from its own start."""
    clock.advance_ms(60_000)
    table = {"DELAY": "3"}
    place = delayed.levels.defer(table, "T", 0)
    assert place is not None
    put(delayed.store, *place, b"replicated", more=table)

    delayed.schedule.begin()

    assert await delayed.after(9_900) == []
    assert await delayed.after(200) == [b"replicated"]


async def test_the_masters_offsets_are_taken_over_and_do_not_move_back(
    delayed: Delayed, clock: ManualClock, storage: FaultyStorage
) -> None:
    delayed.offsets.move(2, 9)

    await delayed.schedule.follow({1: 4, 2: 7})

    assert delayed.offsets.table == {1: 4, 2: 9}
    assert not delayed.offsets.is_dirty
    written = Delayed(clock, storage.crash())
    written.offsets.load()
    assert written.offsets.table == {1: 4, 2: 9}


async def test_an_offset_moved_back_by_the_master_moves_back(delayed: Delayed) -> None:
    await delayed.schedule.follow({1: 4, 2: 7})
    await delayed.schedule.follow({1: 2, 2: 8})

    assert delayed.offsets.table == {1: 2, 2: 8}


async def test_a_level_moved_ahead_never_delivers_the_skipped_messages(delayed: Delayed) -> None:
    for number in range(4):
        delayed.send(1, b"%d" % number)

    await delayed.schedule.go_to(1, 3)

    assert await delayed.after(1_100) == [b"3"]


async def test_a_level_moved_back_delivers_again_and_not_early(delayed: Delayed) -> None:
    delayed.send(2, b"delivered")
    await delayed.after(5_100)
    delayed.send(2, b"skipped")
    await delayed.schedule.go_to(2, 2)
    delayed.clock.advance_ms(1_000)
    delayed.send(2, b"waits")
    await delayed.deliver()

    await delayed.schedule.go_to(2, 0)

    assert await delayed.after(0) == [b"delivered", b"delivered"]
    assert await delayed.after(3_990) == [b"delivered", b"delivered"]
    assert await delayed.after(10 + SLACK_MS) == [b"delivered", b"delivered", b"skipped"]
    assert (await delayed.after(1_000))[-1] == b"waits"


async def test_a_moved_offset_is_in_the_file_when_the_call_returns(
    delayed: Delayed, clock: ManualClock, storage: FaultyStorage
) -> None:
    delayed.send(1)
    delayed.send(1)

    assert await delayed.schedule.go_to(1, 1)

    cut = Delayed(clock, storage.crash())
    cut.offsets.load()
    assert cut.offsets.table == {1: 1}


async def test_an_offset_moved_to_the_beginning_has_its_own_row(delayed: Delayed) -> None:
    await delayed.schedule.go_to(4, 0)

    assert delayed.schedule.document() == {"offsetTable": {4: 0}}


async def test_an_unwritable_move_stays_in_effect_and_is_reported(
    delayed: Delayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    delayed.send(1, b"skipped")
    delayed.send(1, b"next")

    def write(text: bytes) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(delayed.document, "write", write)
        assert not await delayed.schedule.go_to(1, 1)
    assert delayed.offsets.is_dirty

    assert await delayed.schedule.persist()
    assert await delayed.after(1_100) == [b"next"]


async def test_moving_a_sleeping_level_wakes_it(delayed: Delayed) -> None:
    delayed.send(5, b"due")
    await delayed.after(61_000)
    delayed.schedule.start()
    for _ in range(5):
        await asyncio.sleep(0)

    await delayed.schedule.go_to(5, 0)
    for _ in range(5):
        await asyncio.sleep(0)

    assert [body for body, _ in delayed.delivered] == [b"due", b"due"]


async def test_a_move_during_a_disk_read_stays_in_effect(
    delayed: Delayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    delayed.send(1, b"skipped")
    delayed.send(1, b"next")
    delayed.clock.advance_ms(1_100)
    reading, read = asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        reading.set()
        await read.wait()

    monkeypatch.setattr(delayed.store, "is_in_memory", lambda *_: False)
    monkeypatch.setattr(delayed.store, "get_message", lambda *_: slowly())
    task = asyncio.create_task(delayed.schedule.deliver_due(1))
    await reading.wait()
    await delayed.schedule.go_to(1, 1)
    read.set()

    assert await task == 0
    assert delayed.delivered == []
    await delayed.deliver()
    assert [body for body, _ in delayed.delivered] == [b"next"]


async def test_an_unknown_level_has_no_ends(delayed: Delayed) -> None:
    delayed.send(1)

    assert delayed.schedule.range_of(1) == (0, 1)
    assert delayed.schedule.range_of(5) == (0, 0)
    assert delayed.schedule.range_of(0) is None
    assert delayed.schedule.range_of(6) is None


async def test_an_offset_of_a_deleted_message_continues_with_the_first_remaining_one(
    delayed: Delayed,
) -> None:
    for number in range(4):
        delayed.send(1, b"%d" % number)
    queue = delayed.store.files.queues.find("SCHEDULE_TOPIC_XXXX", 0)
    assert queue is not None
    queue.min_offset = 2  # as after the log's first file has expired

    assert await delayed.after(1_100) == [b"2", b"3"]
    assert delayed.offsets.table == {1: 4}


async def test_shortened_levels_delay_no_messages(
    delayed: Delayed, clock: ManualClock, storage: FaultyStorage
) -> None:
    delayed.send(5, b"for a minute")
    delayed.send(4, b"level is gone")
    await delayed.stop()

    again = Delayed(clock, storage, levels="1s 1s 1s")
    await again.start()
    again.send(3, b"new")

    assert await again.after(900) == []
    await again.after(200)
    for level in (4, 5):
        while await again.schedule.deliver_due(level) == 0:
            pass
    bodies = {message.body for message in again.arrived()}
    assert bodies == {b"for a minute", b"level is gone", b"new"}
    await again.stop()


async def test_offsets_are_written_every_interval_and_shown(
    delayed: Delayed, clock: ManualClock, storage: FaultyStorage
) -> None:
    delayed.schedule.start()
    delayed.send(1)
    await asyncio.sleep(0)
    for _ in range(110):
        clock.advance_ms(100)
        for _ in range(3):
            await asyncio.sleep(0)

    while delayed.offsets.is_dirty or not any(
        path.name == "delayOffset.json" for path in storage.files
    ):
        await asyncio.to_thread(lambda: None)
    assert delayed.delivered
    assert delayed.schedule.document() == {"offsetTable": {1: 1}}
    assert delayed.schedule.runtime_info() == {"scheduleMessageOffset_1": "1,1"}


async def test_ten_thousand_timers_at_random_levels_survive_clock_jumps(
    clock: ManualClock, storage: FaultyStorage, rng: random.Random
) -> None:
    delayed = Delayed(clock, storage, log_file_size=4 << 20)
    await delayed.start()
    due: dict[bytes, float] = {}
    for number in range(10_000):
        level = rng.randint(1, 5)
        body = b"%d" % number
        due[body] = clock.monotonic() + delayed.levels.delay_ms(level) / 1000
        delayed.send(level, body)
        clock.advance_ms(rng.randint(0, 20))
        if number % 500 == 0:
            clock.step_wall_clock_ms(rng.choice((HOUR, -HOUR)))
        if number % 20 == 0:
            await delayed.deliver()
    for _ in range(700):
        await delayed.after(100)

    assert len(delayed.delivered) == len(due)
    for body, delivered_at in delayed.delivered:
        assert delivered_at >= due.pop(body) - 1e-6
    assert not due
    await delayed.stop()


async def test_the_schedule_topic_keeps_the_due_time_in_its_units(delayed: Delayed) -> None:
    sent = delayed.send(2)

    ((offset, _, due),) = delayed.store.units(RMQ_SYS_SCHEDULE_TOPIC, 1, 0, 1)

    assert (offset, due) == (sent.commit_log_offset, sent.store_timestamp + 5_000)
    assert len(LEVELS.split()) == 5


async def test_a_message_that_always_fails_is_skipped_and_later_ones_are_delivered(
    delayed: Delayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_copy = delayed.store.put_copy

    def fail_for_one(message, *place):
        if message.body == b"bad":
            raise TypeError("of a bug")
        return put_copy(message, *place)

    monkeypatch.setattr(delayed.store, "put_copy", fail_for_one)
    for body in (b"first", b"bad", b"last"):
        delayed.send(1, body)
    delayed.clock.advance_ms(1_100)

    pauses = [await delayed.schedule.deliver_due(1) for _ in range(FAILURES_MAX)]

    assert pauses[:-1] == [RETRY_MS] * (FAILURES_MAX - 1)
    assert [body for body, _ in delayed.delivered] == [b"first", b"last"]


async def test_a_delivered_message_arrives_once_even_if_its_event_fails(
    delayed: Delayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TypeError("of a bug")

    # Callbacks of the schedule append to it.
    monkeypatch.setattr(delayed, "delivered", SimpleNamespace(append=fail))
    delayed.send(1, b"once")

    for milliseconds in (1_100, 60_000):
        delayed.clock.advance_ms(milliseconds)
        await delayed.deliver()

    assert [message.body for message in delayed.arrived()] == [b"once"]
