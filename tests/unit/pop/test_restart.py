"""Leases survive kills at any step, power cuts and promotions."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.config.limits import LIMITS
from broker_core.errors import RequestRefusedError
from broker_core.message.names import POP_REVIVE_GROUP
from broker_core.pop import revive_log
from broker_core.pop.results import Outcome
from broker_core.steps import run_to_end
from tests.support.builders import put
from tests.support.lease_store import DLQ, GROUP, RETRY, TOPIC, Leased, bodies

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage


class KilledError(Exception):
    """Represents the end of the process."""


async def restarted(
    leased: Leased, storage: FaultyStorage, *, is_power_cut: bool = False
) -> Leased:
    """Kill the broker; return its next run."""
    left = storage.cut_power() if is_power_cut else storage.crash()
    await leased.revival.shutdown()
    await leased.store.shutdown()
    again = Leased(leased.clock, left)
    await again.start()
    return again


async def test_leases_survive_a_kill_with_their_ends_and_handles(
    leased: Leased, storage: FaultyStorage
) -> None:
    for n in range(4):
        leased.send(b"%d" % n)
    leases = leased.pop(3, invisible_ms=10_000)
    leased.ack(leases[0])
    await leased.persist()
    leased.clock.advance_ms(4_000)

    again = await restarted(leased, storage)

    assert bodies(again.pop()) == [b"3"]
    assert again.ack(leases[1]) == [Outcome.DONE]
    await again.after(5_999)
    assert again.stored(RETRY) == []
    await again.after(1)
    assert [each.body for each in again.stored(RETRY)] == [b"2"]
    await again.stop()


async def test_unwritten_offsets_are_restored_from_the_leases(
    leased: Leased, storage: FaultyStorage
) -> None:
    for n in range(4):
        leased.send(b"%d" % n)
    leased.pop(1)
    await leased.persist()
    leased.ack(*leased.pop(2))

    again = await restarted(leased, storage)

    assert again.committed() == 3
    assert bodies(again.pop()) == [b"3"]
    await again.stop()


async def test_a_written_reset_survives_a_kill(leased: Leased, storage: FaultyStorage) -> None:
    for n in range(3):
        leased.send(b"%d" % n)
    leased.ack(*leased.pop())
    leased.offsets.commit(GROUP, TOPIC, 0, 1)
    await leased.persist()

    again = await restarted(leased, storage)

    assert again.committed() == 1
    assert bodies(again.pop()) == [b"1", b"2"]
    await again.stop()


async def test_a_power_cut_loses_no_leased_message(leased: Leased, storage: FaultyStorage) -> None:
    for n in range(3):
        leased.send(b"%d" % n)
    await leased.persist()
    await leased.store.flush()
    leased.pop()
    await leased.persist()

    again = await restarted(leased, storage, is_power_cut=True)
    await again.after(60_000)

    assert sorted(bodies(again.pop())) == [b"0", b"1", b"2"]
    await again.stop()


async def test_offsets_are_not_written_before_the_log_is_durable(
    leased: Leased, storage: FaultyStorage
) -> None:
    leased.send(b"a")
    leased.pop()
    storage.fail("fdatasync", nth=1)

    await leased.offsets.persist_in_thread()

    assert leased.offsets.is_dirty
    assert storage.read(Path("/store/config/consumerOffset.json")) is None


async def test_a_deleted_group_has_no_leases_after_a_kill(
    leased: Leased, storage: FaultyStorage
) -> None:
    for n in range(4):
        leased.send(b"%d" % n)
    leased.pop(2)
    leased.pop(2, group="O", is_ordered=True, init_mode=0)
    leased.engine.forget_group(GROUP)
    leased.engine.forget_group("O")

    again = await restarted(leased, storage)

    assert not list(again.engine.in_flight())
    await again.stop()


async def test_an_ordered_queue_stays_blocked_after_a_kill(
    leased: Leased, storage: FaultyStorage
) -> None:
    for n in range(5):
        leased.send(b"%d" % n)
    batch = leased.pop(3, 10_000, is_ordered=True, attempt_id="a")
    leased.ack_ordered(batch[0])
    leased.ack_ordered(batch[2])
    leased.clock.advance_ms(1_000)

    again = await restarted(leased, storage)

    assert again.committed() == 1
    assert again.pop(is_ordered=True, attempt_id="b") == []
    same = again.pop(2, 10_000, is_ordered=True, attempt_id="a")
    assert [(each.body, each.times) for each in same] == [(b"1", 0)]
    again.clock.advance_ms(10_000)
    late = again.pop(3, 10_000, is_ordered=True)
    assert [(each.body, each.times) for each in late] == [(b"1", 1), (b"3", 0)]
    for lease in late:
        assert again.ack_ordered(lease) is Outcome.DONE
    assert bodies(again.pop(is_ordered=True)) == [b"4"]
    await again.stop()


async def lease(leased: Leased) -> None:
    leased.pop(2, 1_000)


async def acknowledge(leased: Leased) -> None:
    leased.ack(*leased.pop(2, 1_000))


async def change(leased: Leased) -> None:
    for lease in leased.pop(2, 1_000):
        leased.engine.change_invisible(lease.key, lease.handle, lease.offset, 2_000)


async def revive(leased: Leased) -> None:
    leased.pop(2, 1_000)
    await leased.after(1_000)


async def bury(leased: Leased) -> None:
    for _ in range(2):
        leased.pop(2, 1_000)
        await leased.after(1_000)


async def lease_in_order(leased: Leased) -> None:
    for lease in leased.pop(2, 1_000, is_ordered=True):
        leased.ack_ordered(lease)


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize(
    "act", [lease, acknowledge, change, revive, bury, lease_in_order], ids=lambda act: act.__name__
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_kill_at_any_put_loses_no_message(
    clock: ManualClock,
    storage: FaultyStorage,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Leased], Awaitable[None]],
    when: str,
    is_power_cut: bool,
) -> None:
    """Kill the broker at its n-th put, for each n; then consume and acknowledge all messages."""
    steps = 0
    for nth in range(1, 200):
        clean = type(storage)()
        leased = Leased(clock, clean, retry_max_times=1)
        await leased.start()
        for n in range(3):
            leased.send(b"%d" % n)
        await leased.store.flush()
        await leased.persist()
        acked: set[bytes] = set()
        was_killed = await _killed_at(nth, when, leased, act, acked, monkeypatch)
        await leased.persist() if nth % 2 and was_killed else None
        again = await restarted(leased, clean, is_power_cut=is_power_cut)
        is_ordered = act is lease_in_order
        for _ in range(8):
            await again.after(2_000)
            for lease in again.pop(init_mode=0, is_ordered=is_ordered):
                outcome = again.ack_ordered(lease) if is_ordered else again.ack(lease)[0]
                assert outcome is Outcome.DONE
                acked.add(lease.body)
        dead = {each.body for each in again.stored(DLQ)}
        assert acked | dead == {b"0", b"1", b"2"}, nth
        assert not again.engine.leases.count
        assert not again.engine.orders
        await again.stop()
        if not was_killed:
            break
        steps = nth
    assert steps >= 1


async def _killed_at(
    nth: int,
    when: str,
    leased: Leased,
    act: Callable[[Leased], Awaitable[None]],
    acked: set[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> bool:
    """Act until the n-th put; return whether there was one. `acked` gets the acknowledged bodies.

    An acknowledgement without an answer may or may not have been stored.
    """
    left = nth
    put_message = leased.store.put_message
    acknowledge_one, ordered_one = leased.engine.acknowledge, leased.engine.acknowledge_ordered

    def put_or_die(*given: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or (left == 0 and when == "before"):
            raise KilledError
        result = put_message(*given, **more)
        if left == 0:
            raise KilledError
        return result

    def answered(call: Any, place: int) -> Any:
        def wrapped(*given: Any) -> Any:
            acked.update(b"%d" % offset for offset in given[place] if given[0].topic == TOPIC)
            return call(*given)

        return wrapped

    with monkeypatch.context() as patch:
        patch.setattr(leased.store, "put_message", put_or_die)
        patch.setattr(leased.engine, "acknowledge", answered(acknowledge_one, 2))
        patch.setattr(leased.engine, "acknowledge_ordered", answered(ordered_one, 2))
        try:
            await act(leased)
        except KilledError:
            return True
    return False


async def test_a_restart_reads_a_short_log_even_with_a_lease_of_hours(
    leased: Leased, storage: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revive_log, "REPLAYED_MIN", 20)
    for n in range(100):
        leased.send(b"%d" % n)
    (long_lease,) = leased.pop(1, 10_000_000)
    for _ in range(90):
        leased.ack(*leased.pop(1))
    await leased.persist()
    first = leased.offsets.query(POP_REVIVE_GROUP, leased.log.topic, 0)
    end = leased.store.max_offset_in_queue(leased.log.topic, 0)
    assert end - first <= 22

    again = await restarted(leased, storage)

    assert again.ack(long_lease) == [Outcome.DONE]
    await again.stop()


async def test_an_unreadable_record_does_not_affect_the_others(
    leased: Leased, storage: FaultyStorage, caplog: pytest.LogCaptureFixture
) -> None:
    leased.send(b"a")
    leased.pop(invisible_ms=1_000)
    for body in (b"{", b'{"bm":0}', b'{"d":[0,0]}', b"\xff"):
        for tag in ("ck", "ack", "bAck", "order", "orderAck"):
            put(leased.store, leased.log.topic, 0, body, tags=tag)
    text = (
        b'{"bm":0,"bn":"b","c":"G","d":[5,1],"it":99999999999,"n":1,"pt":1,"q":0,"reviveTime":1,'
        b'"ro":0,"so":0,"t":"T"}'
    )
    put(leased.store, leased.log.topic, 0, text, tags="ck")

    again = await restarted(leased, storage)
    await again.after(1_000)

    assert [each.body for each in again.stored(RETRY)] == [b"a"]
    assert "revive record skipped" in caplog.text
    await again.stop()


async def test_a_recreated_topic_has_no_leases_of_the_deleted_one(
    leased: Leased, storage: FaultyStorage
) -> None:
    leased.send(b"old")
    leased.pop()
    leased.clock.advance_ms(10)
    leased.store.delete_topic(TOPIC)
    leased.offsets.delete_topic(TOPIC)
    leased.engine.forget_topic(TOPIC)
    leased.send(b"new")

    again = await restarted(leased, storage)

    assert again.engine.leases.count == 0
    assert bodies(again.pop()) == [b"new"]
    await again.stop()


async def test_leases_survive_a_restart_that_lowers_an_offset(
    leased: Leased, storage: FaultyStorage
) -> None:
    leased.send(b"a")
    leased.pop(invisible_ms=10_000)
    leased.offsets.commit("another", TOPIC, 0, 1_000)
    await leased.persist()

    again = await restarted(leased, storage)

    assert again.offsets.query("another", TOPIC, 0) == 1
    await again.after(10_000)
    assert [each.body for each in again.stored(RETRY)] == [b"a"]
    await again.stop()


async def test_writing_offsets_before_the_leases_are_read_loses_no_lease(
    leased: Leased, storage: FaultyStorage
) -> None:
    """A promotion writes the table of offsets before it reads the leases."""
    leased.send(b"a")
    leased.pop(invisible_ms=10_000)
    await leased.persist()

    leased.engine.clear()
    leased.offsets.commit("another", TOPIC, 0, 0)
    leased.offsets.persist()
    run_to_end(leased.log.replay_steps())

    await leased.after(10_000)
    assert [each.body for each in leased.stored(RETRY)] == [b"a"]


async def test_pops_and_acknowledgements_are_rejected_until_all_leases_are_read(
    leased: Leased,
) -> None:
    for n in range(4):
        leased.send(b"%d" % n)
    leases = [leased.pop(1)[0] for _ in range(3)]
    leased.engine.clear()
    steps = leased.log.replay_steps()
    for _ in range(2):
        next(steps)

    for act in (
        leased.pop,
        lambda: leased.ack(leases[0]),
        lambda: leased.ack_ordered(leases[0]),
        lambda: leased.engine.change_invisible(leases[0].key, leases[0].handle, 0, 1),
        lambda: leased.engine.change_invisible_ordered(leases[0].key, 0, 0, 1),
    ):
        with pytest.raises(RequestRefusedError, match="is reading its leases"):
            act()

    run_to_end(steps)
    assert leased.ack(*leases) == [Outcome.DONE] * 3
    assert bodies(leased.pop()) == [b"3"]


async def test_a_53_brokers_leases_in_other_queues_end_once(
    leased: Leased, storage: FaultyStorage
) -> None:
    """5.3.3 spreads checkpoints over eight queues. Ours all go to the first."""
    for n in range(3):
        leased.send(b"%d" % n)
    for n in range(2):
        lease = leased.pop(1, invisible_ms=20_000)[0]
        text = leased.stored(leased.log.topic)[-1].body
        pop_time = b"%d" % lease.handle.pop_time_ms
        text = text.replace(pop_time, b"%d" % (lease.handle.pop_time_ms + 1))
        leased.ack(lease)
        # The queues have different numbers of records.
        for _ in range(5):
            put(leased.store, leased.log.topic, 3 + n, text, tags="ck")
    taken_over = await restarted(leased, storage)
    assert taken_over.engine.leases.count == 2
    assert bodies(taken_over.pop(1, invisible_ms=90_000)) == [b"2"]
    await taken_over.persist()

    again = await restarted(taken_over, taken_over.storage)
    assert again.engine.leases.count == 3
    await again.after(20_000)
    await again.persist()
    last = await restarted(again, again.storage)
    await last.after(70_000)

    assert sorted(each.body for each in last.stored(RETRY)) == [b"0", b"1", b"2"]
    await last.stop()


async def test_a_restart_with_a_full_topic_table_skips_a_lost_retry_topic(
    leased: Leased, storage: FaultyStorage
) -> None:
    leased.send(b"a")
    leased.pop(invisible_ms=1_000)
    await leased.persist()
    await leased.after(1_000)
    full = dataclasses.replace(LIMITS, topic_nums_max=1)

    again = Leased(leased.clock, storage.crash(), limits=full)
    await again.start()

    assert again.topics.find(RETRY) is None
    await again.stop()


async def test_a_suspended_delivery_is_not_counted_after_a_kill(
    leased: Leased, storage: FaultyStorage
) -> None:
    for n in range(2):
        leased.send(b"%d" % n)
    for lease, is_suspended in zip(leased.pop(2), (True, False), strict=True):
        leased.engine.change_invisible(
            lease.key, lease.handle, lease.offset, 1_000, is_suspended=is_suspended
        )

    again = await restarted(leased, storage)
    await again.after(1_000)

    times = {each.body: each.reconsume_times for each in again.stored(RETRY)}
    assert times == {b"0": 0, b"1": 1}
    await again.stop()


async def test_a_suspended_delivery_of_an_ordered_group_is_not_counted_after_a_kill(
    leased: Leased, storage: FaultyStorage
) -> None:
    for n in range(2):
        leased.send(b"%d" % n)
    leases = leased.pop(2, is_ordered=True)
    for lease, is_suspended in zip(leases, (True, False), strict=True):
        for _ in range(2):
            leased.engine.change_invisible_ordered(
                lease.key, lease.handle.pop_time_ms, lease.offset, 1_000, is_suspended=is_suspended
            )

    again = await restarted(leased, storage)
    again.clock.advance_ms(1_000)

    assert [each.times for each in again.pop(2, 1_000, is_ordered=True)] == [0, 1]
    again.clock.advance_ms(1_000)
    assert [each.times for each in again.pop(2, is_ordered=True)] == [1, 2]
    await again.stop()


async def test_a_suspended_message_without_retries_left_is_not_a_dead_letter(
    clock: ManualClock, storage: FaultyStorage
) -> None:
    leased = Leased(clock, storage, retry_max_times=0)
    await leased.start()
    leased.send(b"a")
    (lease,) = leased.pop()
    leased.engine.change_invisible(lease.key, lease.handle, lease.offset, 1_000, is_suspended=True)
    await leased.after(1_000)
    assert leased.stored(DLQ) == []

    leased.pop(invisible_ms=1_000)
    await leased.after(1_000)

    assert [each.body for each in leased.stored(DLQ)] == [b"a"]
    await leased.stop()
