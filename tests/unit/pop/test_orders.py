"""Ordered groups: one batch of a queue at a time, redelivered until it is acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.pop.checkpoint import OFFSETS_MAX, QueueKey
from broker_core.pop.orders import Order
from broker_core.pop.results import Outcome
from tests.support.lease_store import DLQ, GROUP, TOPIC, Leased, bodies

if TYPE_CHECKING:
    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage
    from tests.support.lease_store import Lease


def ordered(
    leased: Leased, count: int = 3, invisible_ms: int = 1_000, **more: object
) -> list[Lease]:
    return leased.pop(count, invisible_ms, is_ordered=True, **more)


async def filled(leased: Leased, count: int = 5) -> None:
    for n in range(count):
        leased.send(b"%d" % n)


async def test_a_queue_is_blocked_until_its_batch_is_acknowledged(leased: Leased) -> None:
    await filled(leased)
    batch = ordered(leased)

    assert bodies(batch) == [b"0", b"1", b"2"]
    leased.clock.advance_ms(500)
    assert ordered(leased) == []
    for lease in batch:
        assert leased.ack_ordered(lease) is Outcome.DONE
    assert bodies(ordered(leased)) == [b"3", b"4"]


async def test_the_offset_stays_at_the_first_open_message(leased: Leased) -> None:
    await filled(leased)
    batch = ordered(leased)
    assert leased.committed() == 0

    leased.ack_ordered(batch[1])
    assert leased.committed() == 0
    leased.ack_ordered(batch[0])
    assert leased.committed() == 2
    leased.ack_ordered(batch[2])
    assert leased.committed() == 3


async def test_open_messages_are_redelivered_in_order_after_the_lease(leased: Leased) -> None:
    await filled(leased)
    batch = ordered(leased)
    leased.ack_ordered(batch[1])
    leased.clock.advance_ms(1_000)

    again = ordered(leased)

    assert bodies(again) == [b"0", b"2"]
    assert [each.times for each in again] == [1, 1]
    assert leased.ack_ordered(batch[0]) is Outcome.GONE
    assert [leased.ack_ordered(each) for each in again] == [Outcome.DONE, Outcome.DONE]
    assert leased.committed() == 3


async def test_a_repeated_attempt_gets_the_same_batch_and_counts_once(leased: Leased) -> None:
    await filled(leased)
    first = ordered(leased, attempt_id="a")
    leased.clock.advance_ms(10)

    assert ordered(leased, attempt_id="b") == []
    again = ordered(leased, attempt_id="a")

    assert bodies(again) == bodies(first)
    assert [each.times for each in again] == [0, 0, 0]


async def test_one_longer_lease_blocks_the_queue(leased: Leased) -> None:
    await filled(leased)
    batch = ordered(leased)
    changed = leased.engine.change_invisible_ordered(
        batch[2].key, batch[2].handle.pop_time_ms, batch[2].offset, 5_000
    )

    assert changed.outcome is Outcome.DONE
    leased.clock.advance_ms(4_999)
    assert ordered(leased) == []
    leased.clock.advance_ms(1)
    assert bodies(ordered(leased)) == [b"0", b"1", b"2"]


async def test_a_forged_pop_time_acknowledges_nothing(leased: Leased) -> None:
    await filled(leased)
    (lease, *_) = ordered(leased)

    for pop_time_ms in (lease.handle.pop_time_ms - 1, 0, -1):
        assert leased.engine.acknowledge_ordered(lease.key, pop_time_ms, [0]) is Outcome.GONE
    assert (
        leased.engine.acknowledge_ordered(
            lease.key._replace(group="X"), lease.handle.pop_time_ms, [0]
        )
        is Outcome.GONE
    )
    assert leased.ack_ordered(lease) is Outcome.DONE
    assert leased.ack_ordered(lease) is Outcome.GONE


async def test_a_reset_unblocks_the_queue(leased: Leased) -> None:
    await filled(leased)
    batch = ordered(leased)

    leased.offsets.commit(GROUP, TOPIC, 0, 4)

    assert bodies(ordered(leased)) == [b"4"]
    assert leased.ack_ordered(batch[0]) is Outcome.GONE
    assert leased.committed() == 4


async def test_an_ordered_message_becomes_a_dead_letter_after_its_last_retry(
    leased: Leased,
) -> None:
    await filled(leased, 3)
    seen = []
    for _ in range(4):
        batch = ordered(leased, 1, retries_max=2)
        seen += bodies(batch)
        leased.clock.advance_ms(1_000)

    # The queue continues after the dead letter.
    assert seen == [b"0", b"0", b"0", b"1"]
    assert [each.body for each in leased.stored(DLQ)] == [b"0"]
    assert leased.committed() == 1


async def test_a_dead_letter_keeps_its_place_between_other_messages(leased: Leased) -> None:
    await filled(leased, 3)
    ordered(leased, 2, retries_max=1)
    leased.clock.advance_ms(1_000)
    ordered(leased, 2, retries_max=1)
    leased.clock.advance_ms(1_000)

    assert bodies(ordered(leased, 2, retries_max=1)) == [b"2"]
    assert [each.body for each in leased.stored(DLQ)] == [b"0", b"1"]


async def test_the_end_of_an_ordered_lease_is_reported(leased: Leased) -> None:
    freed: list[tuple[str, int]] = []
    leased.engine.on_unblocked = leased.revival.on_unblocked = lambda *place: freed.append(place)
    await filled(leased)
    batch = ordered(leased)
    for lease in batch:
        leased.ack_ordered(lease)
    assert freed == [(TOPIC, 0)]

    ordered(leased)
    await leased.after(1_000)
    # The acknowledged lease had an end, too.
    assert freed[1:] == [(TOPIC, 0), (TOPIC, 0)]


async def test_queues_held_by_ordered_groups_are_limited(
    clock: ManualClock, storage: FaultyStorage
) -> None:
    from broker_core.config.limits import LimitsConfig

    leased = Leased(clock, storage, queues=3, limits=LimitsConfig(pop_lease_nums_max=64))
    await leased.start()
    for queue_id in range(3):
        leased.send(b"%d" % queue_id, queue_id)

    assert len(ordered(leased, 32)) == 1
    assert len(ordered(leased, 32, group="other", init_mode=0)) == 1
    clock.advance_ms(1)
    assert ordered(leased, 32, group="third", init_mode=0) == []
    await leased.stop()


async def test_an_acknowledged_message_after_a_dead_letter_is_not_redelivered(
    leased: Leased,
) -> None:
    await filled(leased, 3)
    leased.ack_ordered(ordered(leased, 3, retries_max=0)[1])
    leased.clock.advance_ms(1_000)

    again = ordered(leased, 3, retries_max=0)

    assert again == []
    assert [each.body for each in leased.stored(DLQ)] == [b"0", b"2"]


def test_changing_filters_do_not_grow_a_batch_without_limit() -> None:
    """Each filter finds a batch before the earlier ones."""
    order = Order(QueueKey(GROUP, TOPIC, 0), 0)
    for begin in range(3_200, 0, -OFFSETS_MAX):
        offsets = list(range(begin, begin + OFFSETS_MAX))
        order.lease(offsets, offsets[-1] + 1, begin, 0, 0.0, None)

    assert len(order.times) <= 2 * OFFSETS_MAX
    for offset in list(order.due):
        order.end_lease(offset)
    assert order.end == max(order.times) + 1
