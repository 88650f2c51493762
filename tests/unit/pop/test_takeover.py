"""A store of RocketMQ 5.3.3: its leases continue, or their messages are delivered again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from broker_core.clock import SteadyClock
from broker_core.config.limits import LIMITS
from broker_core.counted_log import CountedLog
from broker_core.errors import RequestRefusedError
from broker_core.message.names import POP_REVIVE_GROUP
from broker_core.pop.checkpoint import Handle, QueueKey
from broker_core.pop.results import Outcome
from broker_core.pop.takeover import Takeover
from broker_core.timers.checkpoint import Checkpoint
from broker_core.timers.events import Events
from broker_core.timers.recovery import may_be_foreign
from broker_core.timers.service import TimerService
from tests.support.builders import HOST, put, store_config
from tests.support.lease_store import GROUP, RETRY, TOPIC, Leased, bodies
from tests.support.timer_run import NO_CHECKPOINT

if TYPE_CHECKING:
    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage

TIMERS = "rmq_sys_wheel_timer"
QUEUE = QueueKey(GROUP, TOPIC, 0)


class Original:
    """Writes what a 5.3.3 broker writes: each record of a lease is a timer message."""

    def __init__(self, leased: Leased, *, is_recovered: bool = False) -> None:
        self._leased = leased
        self._is_recovered = is_recovered
        self._count = 0
        self.topic = leased.log.topic

    def lease(
        self,
        *offsets: int,
        pop_time_ms: int,
        invisible_ms: int,
        bits: int = 0,
        delivered_to: int | None = None,
    ) -> Handle:
        start = offsets[0]
        body = {
            "bm": bits,
            "bn": "broker-a",
            "c": GROUP,
            "d": [offset - start for offset in offsets],
            "it": invisible_ms,
            "n": len(offsets),
            "pt": pop_time_ms,
            "q": 0,
            "reviveTime": pop_time_ms + invisible_ms,
            "ro": 0,
            "so": start,
            "t": TOPIC,
        }
        key = f"{TOPIC}@0@{start}@{GROUP}@{pop_time_ms}@broker-a@ck"
        deliver_ms = pop_time_ms + invisible_ms - 1_000
        self._put("ck", body, key, deliver_ms, delivered_to)
        return Handle(start, pop_time_ms)

    def acknowledge(self, handle: Handle, invisible_ms: int, *offsets: int) -> None:
        start, pop_time_ms = handle
        body: dict[str, object] = {
            "ao": offsets[0],
            "bn": "broker-a",
            "c": GROUP,
            "pt": pop_time_ms,
            "q": 0,
            "so": start,
            "t": TOPIC,
        }
        tag = "ack"
        if len(offsets) > 1:
            tag = "bAck"
            body = {"aol": list(offsets), **body, "ao": -1}
        key = f"{TOPIC}@0@{offsets[0]}@{GROUP}@{pop_time_ms}@broker-a@{tag}"
        self._put(tag, body, key, pop_time_ms + invisible_ms)

    def _put(
        self,
        tag: str,
        body: dict[str, object],
        key: str,
        deliver_ms: int,
        delivered_to: int | None = None,
    ) -> None:
        store = self._leased.store
        out_ms = deliver_ms - deliver_ms % 1000 - (1000 if deliver_ms % 1000 == 0 else 0)
        more = {
            "TIMER_DELIVER_MS": str(deliver_ms),
            "TIMER_OUT_MS": str(out_ms),
            "REAL_TOPIC": self.topic,
            "REAL_QID": "3",
        }
        text = json.dumps(body, separators=(",", ":")).encode()
        topic, queue_id = (TIMERS, 0) if delivered_to is None else (self.topic, delivered_to)
        put(store, topic, queue_id, text, tags=tag, uniq_key=key, more=more)
        if delivered_to is not None or self._is_recovered:
            return
        # RocketMQ's units have hashes of tags; after a kill, recovery writes due times.
        queue = store.files.queues.table[TIMERS][0]
        unit = queue.unit(self._count)
        assert unit is not None
        assert queue.put_at(self._count, *unit[:2], -5)
        self._count += 1


class Successor(Leased):
    """This broker on the store of the original, with its timer service."""

    def __init__(self, clock: ManualClock, storage: FaultyStorage, checkpoint: Checkpoint) -> None:
        super().__init__(clock, storage)
        self.takeover = Takeover(self.log, self.engine.leases, self.offsets, self.store, clock)
        self.takeover.on_finished = self.revival.wake
        self.timers = TimerService(
            self.store,
            store_config(),
            LIMITS,
            CountedLog(clock),
            clock,
            SteadyClock(clock),
            HOST,
            lambda: checkpoint,
            Events(
                on_delivered=self.takeover.note_delivered,
                claim=self.takeover.claim,
                store_claimed=self.takeover.store,
                on_loaded=self.takeover.finish,
            ),
        )

    async def start(self) -> None:
        await self.begin()
        await self.timers.load()

    async def begin(self) -> None:
        """Start, but leave the timer messages unread."""
        await super().start()
        self.takeover.begin(may_be_foreign=may_be_foreign(self.store))
        self.timers.begin()

    async def stop(self) -> None:
        await self.timers.shutdown()
        await super().stop()


async def successor(
    leased: Leased,
    storage: FaultyStorage,
    *,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> Successor:
    await leased.persist()
    left = storage.crash()
    await leased.revival.shutdown()
    await leased.store.shutdown()
    again = Successor(leased.clock, left, checkpoint)
    await again.start()
    return again


@pytest.fixture
async def original(leased: Leased) -> Original:
    for n in range(6):
        leased.send(b"%d" % n)
    return Original(leased)


def popped(leased: Leased, end: int) -> int:
    """Move the group's offset past its leases, as 5.3.3 does; return the time of the pop."""
    leased.offsets.commit(GROUP, TOPIC, 0, end)
    leased.offsets.commit(POP_REVIVE_GROUP, leased.log.topic, 3, -1)
    return leased.clock.now_ms()


@pytest.mark.parametrize("is_recovered", [False, True], ids=["stopped", "killed"])
async def test_only_messages_without_acknowledgement_are_delivered_again(
    leased: Leased, storage: FaultyStorage, original: Original, is_recovered: bool
) -> None:
    original = Original(leased, is_recovered=is_recovered)
    now = popped(leased, 5)
    first = original.lease(0, 1, 2, pop_time_ms=now, invisible_ms=20_000)
    original.acknowledge(first, 20_000, 0, 2)
    second = original.lease(3, 4, pop_time_ms=now + 1, invisible_ms=20_000)
    original.acknowledge(second, 20_000, 3)
    leased.clock.advance_ms(5_000)

    ours = await successor(leased, storage)

    assert bodies(ours.pop(invisible_ms=90_000)) == [b"5"]
    await ours.after(14_999)
    assert ours.stored(RETRY) == []
    await ours.after(2)
    assert [each.body for each in ours.stored(RETRY)] == [b"1", b"4"]
    assert ours.timers.count == 0
    await ours.stop()


async def test_overdue_leases_do_not_repeat_acknowledged_messages(
    leased: Leased, storage: FaultyStorage, original: Original
) -> None:
    """Usually the original stopped longer ago than its leases lasted."""
    now = popped(leased, 3)
    handle = original.lease(0, 1, 2, pop_time_ms=now, invisible_ms=1_000)
    original.acknowledge(handle, 1_000, 0, 1)
    leased.clock.advance_ms(3_600_000)

    ours = await successor(leased, storage)
    await ours.after(0)

    assert [each.body for each in ours.stored(RETRY)] == [b"2"]
    await ours.stop()


async def test_a_handle_of_the_original_acknowledges_here(
    leased: Leased, storage: FaultyStorage, original: Original
) -> None:
    now = popped(leased, 2)
    handle = original.lease(0, 1, pop_time_ms=now, invisible_ms=30_000)

    ours = await successor(leased, storage)
    assert ours.engine.acknowledge(QUEUE, handle, [0]) is Outcome.DONE
    again = await successor(ours, ours.storage)
    await again.after(30_000)

    assert [each.body for each in again.stored(RETRY)] == [b"1"]
    await again.stop()


async def test_a_changed_lease_of_the_original_ends_at_its_new_time(
    leased: Leased, storage: FaultyStorage, original: Original
) -> None:
    """The record of the new, shorter lease reaches the revive topic first."""
    now = popped(leased, 1)
    old = original.lease(0, pop_time_ms=now, invisible_ms=60_000)
    original.lease(0, pop_time_ms=now + 1_000, invisible_ms=2_000, delivered_to=3)
    original.acknowledge(old, 60_000, 0)
    leased.clock.advance_ms(2_000)

    ours = await successor(leased, storage)

    await ours.after(999)
    assert ours.stored(RETRY) == []
    await ours.after(1)
    assert [each.body for each in ours.stored(RETRY)] == [b"0"]
    await ours.after(60_000)
    assert len(ours.stored(RETRY)) == 1
    await ours.stop()


async def test_an_acknowledgement_of_a_delivered_lease_survives_a_second_restart(
    leased: Leased, storage: FaultyStorage, original: Original
) -> None:
    now = popped(leased, 2)
    handle = original.lease(0, 1, pop_time_ms=now, invisible_ms=9_000, delivered_to=3)
    original.acknowledge(handle, 9_000, 1)

    ours = await successor(leased, storage)
    again = await successor(ours, ours.storage)
    await again.after(9_000)

    assert [each.body for each in again.stored(RETRY)] == [b"0"]
    await again.stop()


async def test_a_power_cut_after_the_takeover_loses_no_lease(
    leased: Leased, storage: FaultyStorage, original: Original
) -> None:
    now = popped(leased, 2)
    original.lease(0, 1, pop_time_ms=now, invisible_ms=9_000)

    ours = await successor(leased, storage)
    await ours.timers.deliver_due()
    left = ours.storage.cut_power()
    await ours.store.shutdown()
    again = Successor(ours.clock, left, NO_CHECKPOINT)
    await again.start()
    assert again.engine.leases.count == 2
    await again.after(9_000)

    assert [each.body for each in again.stored(RETRY)] == [b"0", b"1"]
    await again.stop()


async def test_bits_that_the_original_stored_with_a_lease_count_as_acknowledged(
    leased: Leased, storage: FaultyStorage, original: Original
) -> None:
    now = popped(leased, 2)
    original.lease(0, 1, pop_time_ms=now, invisible_ms=1_000, bits=0b01)

    ours = await successor(leased, storage)
    await ours.after(1_000)

    assert [each.body for each in ours.stored(RETRY)] == [b"1"]
    await ours.stop()


async def test_timers_that_the_original_delivered_are_not_read_again(
    leased: Leased, storage: FaultyStorage, original: Original
) -> None:
    """The original has redelivered the message, and committed the record in the revive topic."""
    now = popped(leased, 1)
    original.lease(0, pop_time_ms=now, invisible_ms=2_000)
    leased.clock.advance_ms(10_000)

    delivered = Checkpoint(leased.clock.now_ms(), 1)
    ours = await successor(leased, storage, checkpoint=delivered)
    await ours.after(0)

    assert ours.stored(RETRY) == []
    await ours.stop()


async def test_pops_and_acknowledgements_wait_for_the_records_of_the_original(
    leased: Leased, storage: FaultyStorage, original: Original
) -> None:
    now = popped(leased, 1)
    handle = original.lease(0, pop_time_ms=now, invisible_ms=1_000)
    await leased.persist()
    ours = Successor(leased.clock, storage.crash(), NO_CHECKPOINT)
    await ours.begin()
    ours.clock.advance_ms(2_000)

    with pytest.raises(RequestRefusedError, match="is reading its leases"):
        ours.engine.acknowledge(QUEUE, handle, [0])
    await ours.after(0)
    assert ours.stored(RETRY) == []

    await ours.timers.load()
    assert ours.engine.acknowledge(QUEUE, handle, [0]) is Outcome.DONE
    await ours.stop()


async def test_a_lease_stays_a_timer_while_the_store_refuses_its_record(
    leased: Leased, storage: FaultyStorage, original: Original, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = popped(leased, 1)
    original.lease(0, pop_time_ms=now, invisible_ms=1_000)
    await leased.persist()
    ours = Successor(leased.clock, storage.crash(), NO_CHECKPOINT)
    await ours.begin()
    with monkeypatch.context() as patch:
        patch.setattr(ours.log, "write_checkpoint", lambda _checkpoint: False)
        loading = asyncio.create_task(ours.timers.load())
        for _ in range(10):
            await asyncio.sleep(0)
        ours.clock.advance_ms(100)
        await loading
    assert not ours.timers.is_loaded
    assert not ours.log.is_read

    await ours.timers.load()
    await ours.after(1_000)

    assert [each.body for each in ours.stored(RETRY)] == [b"0"]
    await ours.stop()


async def test_a_damaged_record_of_the_original_does_not_affect_the_others(
    leased: Leased, storage: FaultyStorage, original: Original, caplog: pytest.LogCaptureFixture
) -> None:
    now = popped(leased, 2)
    due = {"TIMER_OUT_MS": str(now + 5_000), "REAL_TOPIC": original.topic, "REAL_QID": "0"}
    original.lease(0, pop_time_ms=now, invisible_ms=1_000)
    for tag in ("ck", "ack", "bAck", "unknown"):
        put(leased.store, TIMERS, 0, b"{", tags=tag, more=due)
    original = Original(leased, is_recovered=True)
    original.lease(1, pop_time_ms=now, invisible_ms=1_000)

    ours = await successor(leased, storage)
    await ours.after(1_000)

    assert sorted(each.body for each in ours.stored(RETRY)) == [b"0", b"1"]
    assert caplog.text.count("revive record skipped") == 3
    await ours.stop()


async def test_a_group_without_an_offset_continues_after_its_leases(
    leased: Leased, storage: FaultyStorage, original: Original
) -> None:
    """A kill came before the original wrote its first offsets."""
    now = leased.clock.now_ms()
    original.lease(0, 1, pop_time_ms=now, invisible_ms=10_000)

    ours = await successor(leased, storage)

    assert bodies(ours.pop()) == [b"2", b"3", b"4", b"5"]
    await ours.stop()


async def test_an_ordered_group_reads_again_from_its_offset(
    leased: Leased, storage: FaultyStorage, original: Original
) -> None:
    """5.3.3 commits the start of an ordered batch; the batch is in consumerOrderInfo.json."""
    leased.offsets.commit(GROUP, TOPIC, 0, 1)

    ours = await successor(leased, storage)

    assert bodies(ours.pop(is_ordered=True)) == [b"1", b"2", b"3", b"4", b"5"]
    await ours.stop()


async def test_a_record_that_is_only_delivered_later_leases_its_messages_then(
    leased: Leased, storage: FaultyStorage, original: Original
) -> None:
    """The store changed hands before: the units after a kill look like this broker's own."""
    now = popped(leased, 2)
    put(leased.store, TIMERS, 0, b"x", more={"TIMER_OUT_MS": "1", "REAL_TOPIC": TOPIC})
    ours = await successor(leased, storage)
    await ours.timers.deliver_due()
    later = Original(ours, is_recovered=True)
    later.lease(0, 1, pop_time_ms=now, invisible_ms=9_000)
    again = await successor(ours, ours.storage)
    assert again.timers.count == 1
    assert again.engine.leases.count == 0

    woken: list[bool] = []
    again.takeover.on_finished = lambda: woken.append(True)
    again.clock.advance_ms(8_500)
    await again.timers.deliver_due()
    assert again.engine.leases.count == 2
    assert woken
    last = await successor(again, again.storage)
    await last.after(500)

    assert [each.body for each in last.stored(RETRY)] == [b"0", b"1"]
    await last.stop()
