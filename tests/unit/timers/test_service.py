"""TimerService: delivery, recall, restarts, power cuts, retention and slaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import ResponseCode
from broker_core.store.results import PutMessageResult, PutMessageStatus
from broker_core.timers import service
from broker_core.timers.checkpoint import Checkpoint
from broker_core.timers.recall_handle import RecallHandle
from tests.support.timer_run import TimerRun

HOUR = 3_600_000


async def restarted(run: TimerRun, **changes) -> TimerRun:
    await run.stop()
    again = TimerRun(run.clock, run.storage, **changes)
    await again.start()
    return again


def handle_of(due_ms: int, **changes) -> RecallHandle:
    return RecallHandle("T", "broker-a", due_ms, "KEY")._replace(**changes)


@pytest.mark.parametrize(
    "properties", [{"TIMER_DELAY_SEC": 2}, {"TIMER_DELAY_MS": 2_000}, {"TIMER_DELIVER_MS": None}]
)
async def test_a_message_is_delivered_at_its_time_and_not_before(run: TimerRun, properties) -> None:
    fields: dict[str, object] = {
        name: run.clock.now_ms() + 2_000 if value is None else value
        for name, value in properties.items()
    }
    run.send(b"later", "T", 0, **fields)

    assert await run.advance(1_999) == []
    assert await run.advance(2) == [b"later"]


async def test_messages_are_delivered_in_order_to_their_queues(
    run: TimerRun,
) -> None:
    for delay, queue_id in ((300, 0), (100, 1), (200, 0)):
        run.send(str(delay).encode(), queue_id=queue_id, TIMER_DELAY_MS=delay)

    assert await run.advance(1_000) == [b"100", b"200", b"300"]
    assert [each.body for each in run.received(queue_id=0)] == [b"200", b"300"]
    assert [each.body for each in run.received(queue_id=1)] == [b"100"]


async def test_a_delivered_message_has_the_timer_properties(
    run: TimerRun,
) -> None:
    due_ms = run.clock.now_ms() + 1_234
    sent = run.send(b"body", TIMER_DELIVER_MS=due_ms, TAGS="a", KEYS="k", UNIQ_KEY="u")

    await run.advance(1_300)

    (found,) = run.received()
    assert (found.body, found.flag, found.born_timestamp) == (b"body", 7, 1)
    assert found.properties == {
        "TIMER_DELIVER_MS": str(due_ms),
        "TAGS": "a",
        "KEYS": "k",
        "UNIQ_KEY": "u",
        "TIMER_OUT_MS": str(due_ms),
        "REAL_TOPIC": "T",
        "REAL_QID": "0",
        "TIMER_ENQUEUE_MS": str(sent.store_timestamp),
        "TIMER_DEQUEUE_MS": str(run.clock.now_ms()),
    }


@pytest.mark.parametrize("past_ms", [0, 1, HOUR])
async def test_a_past_time_is_delivered_immediately(run: TimerRun, past_ms: int) -> None:
    run.send(b"now", TIMER_DELIVER_MS=run.clock.now_ms() - past_ms)

    (found,) = run.received()
    assert "REAL_TOPIC" not in found.properties


async def test_a_delivered_message_is_not_deferred_again(run: TimerRun) -> None:
    run.send(b"x", TIMER_DELAY_MS=10)
    await run.advance(20)
    (found,) = run.received()

    assert run.timers.defer(dict(found.properties), "T", 0) is None


@pytest.mark.parametrize(
    ("properties", "config", "code", "remark"),
    [
        (
            {"TIMER_DELAY_SEC": "11"},
            {"timer_max_delay_sec": 10},
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            "10000ms; or if set del msg, the delay time should be bigger than the current time",
        ),
        ({"TIMER_DELAY_MS": "x"}, {}, ResponseCode.MESSAGE_ILLEGAL, "timer message illegal"),
        (
            {"TIMER_DELAY_MS": "5", "TIMER_DEL_UNIQKEY": "U+k"},
            {},
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal",
        ),
        (
            {"TIMER_DELAY_MS": "5"},
            {"timer_wheel_enable": False},
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        ),
        (
            {"TIMER_DELAY_MS": "5"},
            {"timers_max": 0},
            ResponseCode.SYSTEM_ERROR,
            "timer message is under flow control, max num limit is 0: pendingTimerNumsMax",
        ),
    ],
)
async def test_an_illegal_timer_message_is_rejected_like_by_the_original(
    clock, storage, properties, config, code, remark
) -> None:
    run = TimerRun(clock, storage, **config)
    await run.start()

    with pytest.raises(RequestRefusedError, match=r".") as refused:
        run.timers.defer(dict(properties), "T", 0)

    assert refused.value.code is code
    assert (refused.value.remark or "").startswith(remark)
    await run.stop()


async def test_the_largest_delay_is_accepted(run: TimerRun) -> None:
    longest = run.config.timer_max_delay_sec
    run.send(TIMER_DELAY_SEC=longest)

    assert await run.advance(longest * 1_000 - 1) == []
    assert await run.advance(2) == [b"later"]


@pytest.mark.parametrize("step_ms", [HOUR, -HOUR])
async def test_setting_the_wall_clock_does_not_change_a_delay(run: TimerRun, step_ms: int) -> None:
    run.send(b"delay", TIMER_DELAY_MS=1_000)

    run.clock.step_wall_clock_ms(step_ms)

    assert await run.advance(999) == []
    assert await run.advance(2) == [b"delay"]


async def test_a_delivery_time_follows_the_wall_clock(run: TimerRun) -> None:
    due_ms = run.clock.now_ms() + HOUR
    run.send(b"at", TIMER_DELIVER_MS=due_ms)

    run.clock.step_wall_clock_ms(-HOUR)
    assert await run.advance(HOUR) == []
    run.clock.step_wall_clock_ms(HOUR)
    assert await run.advance(0) == [b"at"]


async def test_the_wall_clock_is_checked_while_a_delivery_time_is_pending(run: TimerRun) -> None:
    assert await run.deliver() is None
    run.send(TIMER_DELAY_MS=HOUR)
    assert await run.deliver() == HOUR + 1
    run.send(TIMER_DELIVER_MS=run.clock.now_ms() + HOUR)
    assert await run.deliver() == service.CLOCK_CHECK_MS


async def test_a_restart_keeps_pending_timers_and_delivers_none_twice(run: TimerRun) -> None:
    for delay in (10, 3_000, 20, 2_000):
        run.send(str(delay).encode(), TIMER_DELAY_MS=delay)
    await run.advance(100)

    again = await restarted(run)

    assert again.timers.count == 2
    assert await again.advance(1_850) == []
    assert await again.advance(2_000) == [b"2000", b"3000"]
    third = await restarted(again)
    assert third.timers.count == 0
    assert len(third.received()) == 4
    await third.stop()


async def test_a_restart_delivers_overdue_timers_immediately(run: TimerRun) -> None:
    run.send(b"one", TIMER_DELAY_MS=10)
    await run.stop()
    run.clock.advance_ms(HOUR)

    again = TimerRun(run.clock, run.storage)
    await again.start()

    assert await again.advance(0) == [b"one"]
    await again.stop()


async def test_a_restart_reads_only_from_the_oldest_pending_timer_on(run: TimerRun) -> None:
    for _ in range(300):
        run.send(TIMER_DELAY_MS=10)
    await run.advance(20)
    run.send(b"last", TIMER_DELAY_MS=1_000)
    run.send(b"short", TIMER_DELAY_MS=10)
    await run.advance(20)
    await run.store.flush()
    await run.deliver()

    again = await restarted(run)

    assert again.first_read == 300
    assert again.timers.count == 1
    await again.stop()


async def test_a_delivery_that_fails_is_retried(run: TimerRun) -> None:
    run.send(b"one", TIMER_DELAY_MS=10)
    run.clock.advance_ms(20)
    run.store.availability.fill_disk()

    assert await run.deliver() == service.RETRY_MS
    run.store.availability.free_disk(1.0)

    assert await run.advance(service.RETRY_MS) == [b"one"]


async def test_with_sync_flush_a_message_is_delivered_after_its_flush(clock, storage) -> None:
    run = TimerRun(clock, storage, flush_disk_type="SYNC_FLUSH")
    await run.start()
    run.send(b"one", TIMER_DELAY_MS=10)
    clock.advance_ms(20)
    assert await run.timers.deliver_due() == service.UNREADABLE_RETRY_MS

    await run.store.flush()

    assert await run.advance(0) == [b"one"]
    await run.stop()


async def test_a_recalled_message_is_never_delivered(run: TimerRun) -> None:
    due_ms = run.clock.now_ms() + 1_000
    run.send(b"recalled", TIMER_DELIVER_MS=due_ms, UNIQ_KEY="KEY")
    run.send(b"kept", TIMER_DELIVER_MS=due_ms, UNIQ_KEY="OTHER")

    put = run.timers.recall(handle_of(due_ms))

    assert put is not None
    assert put.status is PutMessageStatus.PUT_OK
    assert run.timers.recall(handle_of(due_ms)) is None
    again = await restarted(run)
    assert await again.advance(1_000) == [b"kept"]
    await again.stop()


@pytest.mark.parametrize(
    ("late_ms", "forged"), [(0, {"topic": "U"}), (1, {}), (-1, {}), (0, {"uniq_key": "KEY2"})]
)
async def test_a_handle_with_a_wrong_field_recalls_nothing(run: TimerRun, late_ms, forged) -> None:
    due_ms = run.clock.now_ms() + 1_000
    run.send(b"kept", TIMER_DELIVER_MS=due_ms, UNIQ_KEY="KEY")
    end = run.store.max_commit_log_offset
    handle = handle_of(due_ms + late_ms, **forged)

    assert run.timers.recall(handle) is None

    assert run.store.max_commit_log_offset == end
    assert await run.advance(1_000) == [b"kept"]


async def test_a_delivered_message_cannot_be_recalled(run: TimerRun) -> None:
    due_ms = run.clock.now_ms() + 1_000
    run.send(b"gone", TIMER_DELIVER_MS=due_ms, UNIQ_KEY="KEY")
    await run.advance(1_000)

    assert run.timers.recall(handle_of(due_ms)) is None


async def test_an_unstorable_recall_changes_nothing(run: TimerRun) -> None:
    due_ms = run.clock.now_ms() + 1_000
    run.send(b"kept", TIMER_DELIVER_MS=due_ms, UNIQ_KEY="KEY")
    run.store.availability.fill_disk()

    put = run.timers.recall(handle_of(due_ms))

    assert put is not None
    assert put.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    run.store.availability.free_disk(1.0)
    assert await run.advance(1_000) == [b"kept"]


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_timer_outlives_its_log_file(
    clock, storage, is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = TimerRun(
        clock, storage, log_file_size=8 * 1024, file_reserved_time=0, timer_max_delay_sec=400_000
    )
    await run.start()
    due_ms = clock.now_ms() + 100 * HOUR
    run.send(b"kept", TIMER_DELIVER_MS=due_ms, UNIQ_KEY="KEY", KEYS="k")
    run.send(b"due", topic="U", TIMER_DELAY_MS=21)
    for _ in range(20):
        run.send(bytes(2_000), TIMER_DELAY_MS=10)
    await run.advance(20)
    assert run.store.min_commit_log_offset == 0
    if is_full:
        monkeypatch.setattr(run.store.retention, "check_disk", lambda: None)
        run.store.availability.fill_disk()
        run.clock.advance_ms(1)

    for _ in range(3):
        await run.store.flush()
        run.store.delete_expired_files_soon()
        cleaning = asyncio.create_task(run.store.retention.clean())
        while not cleaning.done():
            await asyncio.sleep(0)
            clock.advance_ms(1_000)
        await run.deliver()

    assert run.store.min_commit_log_offset > 8 * 1024
    assert run.store.availability.is_disk_full is is_full
    again = await restarted(run, log_file_size=8 * 1024)
    assert again.timers.count == 1 + is_full
    await again.advance(due_ms - clock.now_ms())
    (found,) = [each for each in again.received() if each.body == b"kept"]
    assert found.properties["TIMER_ROLL_TIMES"] == "1"
    assert found.properties["TIMER_OUT_MS"] == str(due_ms)
    await again.stop()


async def test_a_long_timer_before_many_finished_ones_is_moved(run: TimerRun, monkeypatch) -> None:
    monkeypatch.setattr(service, "SPAN_MIN", 50)
    due_ms = run.clock.now_ms() + HOUR
    run.send(b"long", TIMER_DELIVER_MS=due_ms, UNIQ_KEY="KEY")
    for _ in range(60):
        run.send(TIMER_DELAY_MS=10)
    await run.advance(20)
    await run.store.flush()
    await run.deliver()

    again = await restarted(run)
    assert again.first_read == 61
    assert again.timers.recall(handle_of(due_ms)) is not None
    assert again.timers.count == 0
    await again.stop()


async def test_pending_timers_of_the_original_are_delivered(run: TimerRun) -> None:
    """RocketMQ's units have hashes of tags; its checkpoint shows how far it has delivered."""
    now = run.clock.now_ms()
    stored: list[tuple[str, int, dict[str, object]]] = [
        ("delivered", now + 100, {}),
        ("rolled", now + 5_000, {}),
        ("deleted", now + 6_000, {}),
        ("waits", now + 4_000, {"TAGS": "a"}),
        ("rolled", now + 5_000, {"TIMER_ROLL_TIMES": 1}),
        ("marker", now + 6_000, {"TIMER_DEL_UNIQKEY": "T+deleted"}),
    ]
    for name, due_ms, more in stored:
        properties = {"UNIQ_KEY": name, "TIMER_OUT_MS": due_ms, "REAL_TOPIC": "T", **more}
        run.send(name.encode(), "rmq_sys_wheel_timer", 0, REAL_QID=0, **properties)
    queue = run.store.files.queues.table["rmq_sys_wheel_timer"][0]
    for queue_offset in range(6):
        unit = queue.unit(queue_offset)
        assert unit is not None
        offset, size, _ = unit
        assert queue.put_at(queue_offset, offset, size, -5)

    again = await restarted(run, checkpoint=Checkpoint(now + 200, 6))

    assert again.timers.count == 2
    assert await again.advance(4_000) == [b"waits"]
    third = await restarted(again)
    assert await third.advance(5_000) == [b"rolled"]
    await third.stop()


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_no_power_cut_loses_a_timer_whose_put_was_durable(
    clock, storage, rng, flush_disk_type: str
) -> None:
    """A power cut may keep a completion record and lose one of its copies."""
    run = TimerRun(clock, storage, flush_disk_type=flush_disk_type)
    await run.start()
    due_ms = clock.now_ms() + 100
    for number in range(40):
        run.send(b"%d" % number, TIMER_DELIVER_MS=due_ms + number * 10, UNIQ_KEY=f"k{number}")
    run.send(b"recalled", TIMER_DELIVER_MS=due_ms + 900, UNIQ_KEY="KEY")
    assert await run.store.flush()
    assert run.timers.recall(handle_of(due_ms + 900)) is not None
    assert await run.store.flush()
    for _ in range(rng.randrange(1, 8)):
        clock.advance_ms(50)
        await run.deliver()
        if rng.random() < 0.3:
            await run.store.flush()

    again = TimerRun(clock, storage.cut_power(rng), flush_disk_type=flush_disk_type)
    await again.start()
    await again.advance(2_000)
    assert await again.store.flush()

    found = [message.body for message in again.received()]
    assert set(found) == {b"%d" % n for n in range(40)}
    assert again.timers.count == 0
    await again.stop()
    await run.stop()


async def test_a_kill_before_a_completion_record_repeats_only_that_turn(
    run: TimerRun, monkeypatch
) -> None:
    for number in range(3):
        run.send(b"first-%d" % number, TIMER_DELAY_MS=10)
        run.send(b"second-%d" % number, TIMER_DELAY_MS=20)
    await run.advance(15)
    put_message = run.store.put_message

    def killed_before(topic: str, queue_id: int, *more: Any, **others: Any) -> PutMessageResult:
        if (topic, queue_id) == ("rmq_sys_wheel_timer", 1):
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, -1, -1)
        return put_message(topic, queue_id, *more, **others)

    monkeypatch.setattr(run.store, "put_message", killed_before)
    await run.advance(10)

    again = TimerRun(run.clock, run.storage.crash())
    await again.start()

    assert await again.advance(0) == [b"second-0", b"second-1", b"second-2"]
    await again.stop()


@pytest.mark.parametrize("recalled", [False, True])
async def test_a_slave_keeps_log_files_with_pending_timers(clock, storage, recalled: bool) -> None:
    run = TimerRun(clock, storage, log_file_size=8 * 1024)
    await run.start()
    due_ms = clock.now_ms() + 50_000
    run.send(b"done", TIMER_DELAY_MS=10)
    run.send(b"waits", TIMER_DELIVER_MS=due_ms, UNIQ_KEY="KEY")
    await run.advance(20)
    for _ in range(10):
        run.send(bytes(2_000))
    if recalled:
        assert run.timers.recall(handle_of(due_ms)) is not None
    await run.store.flush()
    await run.deliver()

    await run.timers.shutdown()
    run.store.take_role(is_slave=True)

    assert run.timers.may_delete_before(8 * 1024) is recalled
    assert run.timers.may_delete_before(0)


async def test_a_slave_of_a_rocketmq_master_keeps_no_files_for_timers(run: TimerRun) -> None:
    """Without completion records a slave can't tell which timers are pending."""
    run.send(b"waits", TIMER_DELAY_MS=50_000)
    await run.timers.shutdown()
    run.store.take_role(is_slave=True)

    assert run.timers.may_delete_before(1 << 40)


async def test_a_log_file_stays_until_the_copies_of_its_timers_are_flushed(run: TimerRun) -> None:
    run.send(b"one", TIMER_DELAY_MS=10)
    await run.advance(20)
    assert run.timers.count == 0
    assert not run.timers.may_delete_before(1 << 40)

    await run.store.flush()

    assert run.timers.may_delete_before(1 << 40)


async def test_no_file_is_deleted_before_the_timers_are_loaded(run: TimerRun) -> None:
    run.timers.begin()

    assert not run.timers.may_delete_before(1)


async def test_the_service_sleeps_until_a_timer_is_due_and_wakes_for_an_earlier_one(
    run: TimerRun,
) -> None:
    async def pass_time(milliseconds: int) -> list[bytes]:
        for _ in range(milliseconds):
            run.clock.advance_ms(1)
            for _ in range(5):
                await asyncio.sleep(0)
        return [each.body for each in run.delivered]

    run.timers.begin()
    run.timers.start()
    await pass_time(5)
    start = run.clock.monotonic() * 1000
    run.send(b"second", TIMER_DELAY_MS=400)
    await pass_time(100)
    run.send(b"first", TIMER_DELAY_MS=50)
    run.send(b"third", TIMER_DELIVER_MS=run.clock.now_ms() + 500)

    assert await pass_time(800) == [b"first", b"second", b"third"]
    dues = (150, 400, 600)
    late = [each.at_ms - start - due for each, due in zip(run.delivered, dues, strict=True)]
    assert all(0 <= each <= 3 for each in late), late


async def test_clock_jumps_make_none_of_2000_timers_early_or_lost(clock, storage, rng) -> None:
    run = TimerRun(clock, storage, log_file_size=1 << 20, timers_max=20_000)
    await run.start()
    expected: dict[bytes, tuple[str, float]] = {}
    for number in range(2_000):
        body, after_ms = b"%d" % number, rng.randrange(1, 5_000)
        if rng.random() < 0.5:
            expected[body] = "delay", clock.monotonic() * 1000 + after_ms
            run.send(body, TIMER_DELAY_MS=after_ms)
        else:
            expected[body] = "time", clock.now_ms() + after_ms
            run.send(body, TIMER_DELIVER_MS=clock.now_ms() + after_ms)
        if number % 50 == 0:
            clock.advance_ms(rng.randrange(20))
            await run.deliver()
        if number % 200 == 0:
            clock.step_wall_clock_ms(rng.randrange(-2_000, 2_000))
    await run.advance(60_000)

    early = [
        each.body
        for each in run.delivered
        for kind, due in (expected[each.body],)
        if (each.at_ms if kind == "delay" else each.wall_ms) < due
    ]
    assert early == []
    assert sorted(each.body for each in run.delivered) == sorted(expected)
    await run.stop()
