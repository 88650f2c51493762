"""Leases of concurrent groups: pops, acknowledgements, redeliveries and limits."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from broker_core.config.limits import LIMITS, LimitsConfig
from broker_core.delivery.tag_filter import TagFilter
from broker_core.message.properties import PROPERTIES_BYTES_MAX
from broker_core.message.subscription import build_subscription
from broker_core.message.topic_config import TopicConfig
from broker_core.pop.checkpoint import OFFSETS_MAX, Handle, QueueKey
from broker_core.pop.results import Outcome
from tests.support.lease_store import DLQ, GROUP, RETRY, TOPIC, Leased, bodies

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage


def test_two_pops_never_lease_the_same_message(leased: Leased) -> None:
    for n in range(5):
        leased.send(b"%d" % n)

    assert bodies(leased.pop(3)) == [b"0", b"1", b"2"]
    assert bodies(leased.pop(3)) == [b"3", b"4"]
    assert leased.pop() == []


def test_the_offset_moves_past_leased_messages_so_that_pulls_continue_there(leased: Leased) -> None:
    for n in range(5):
        leased.send(b"%d" % n)

    leased.pop(3)

    assert leased.committed() == 3
    assert leased.popped(1).rest_count == 1


async def test_an_acknowledged_message_is_never_redelivered(leased: Leased) -> None:
    leased.send(b"a")
    leases = leased.pop()

    assert leased.ack(*leases) == [Outcome.DONE]
    await leased.after(100_000)

    assert leased.stored(RETRY) == []
    assert leased.engine.leases.count == 0


async def test_an_expired_lease_becomes_a_retry_with_one_more_attempt(leased: Leased) -> None:
    leased.send(b"a", tags="TagA", keys="K")
    first = leased.pop(invisible_ms=1_000)

    await leased.after(999)
    assert leased.stored(RETRY) == []
    await leased.after(1)

    (retried,) = leased.stored(RETRY)
    assert (retried.body, retried.reconsume_times, retried.tags) == (b"a", 1, "TagA")
    assert retried.properties["1ST_POP_TIME"] == str(first[0].handle.pop_time_ms)
    (again,) = leased.pop()
    assert (again.key, again.message.reconsume_times) == (QueueKey(GROUP, RETRY, 0), 1)
    assert leased.ack(*first) == [Outcome.GONE]
    assert leased.ack(again) == [Outcome.DONE]


async def test_only_unacknowledged_messages_of_a_batch_are_redelivered(leased: Leased) -> None:
    for n in range(4):
        leased.send(b"%d" % n)
    leases = leased.pop(invisible_ms=1_000)
    key, handle = leases[0].key, leases[0].handle

    assert leased.engine.acknowledge(key, handle, [0, 3, 99]) is Outcome.DONE
    assert leased.engine.acknowledge(key, handle, [0, 3]) is Outcome.GONE
    await leased.after(1_000)

    assert [each.body for each in leased.stored(RETRY)] == [b"1", b"2"]


async def test_a_message_becomes_a_dead_letter_after_its_last_retry(
    clock: ManualClock, storage: FaultyStorage
) -> None:
    leased = Leased(clock, storage, retry_max_times=2)
    await leased.start()
    leased.send(b"a", uniq_key="ID")
    seen = []
    for _ in range(4):
        seen += [each.message.reconsume_times for each in leased.pop(invisible_ms=1_000)]
        await leased.after(1_000)

    assert seen == [0, 1, 2]
    (dead,) = leased.stored(DLQ)
    assert dead.body == b"a"
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == dead.properties["RETRY_TOPIC"] == TOPIC
    assert dead.properties["DLQ_ORIGIN_MESSAGE_ID"] == "ID"
    assert leased.engine.leases.count == 0
    await leased.stop()


async def test_a_longer_invisible_time_replaces_the_lease_and_its_handle(leased: Leased) -> None:
    leased.send(b"a")
    leased.send(b"b")
    first, second = leased.pop(invisible_ms=1_000)

    changed = leased.engine.change_invisible(first.key, first.handle, first.offset, 5_000)

    assert changed.outcome is Outcome.DONE
    assert changed.pop_time_ms > first.handle.pop_time_ms
    await leased.after(1_000)
    assert [each.body for each in leased.stored(RETRY)] == [b"b"]
    assert leased.ack(first, second) == [Outcome.GONE, Outcome.GONE]
    handle = Handle(first.offset, changed.pop_time_ms)
    assert leased.engine.acknowledge(first.key, handle, [first.offset]) is Outcome.DONE


async def test_an_invisible_time_of_zero_redelivers_a_message_immediately(leased: Leased) -> None:
    leased.send(b"a")
    (lease,) = leased.pop()

    leased.engine.change_invisible(lease.key, lease.handle, lease.offset, 0)
    await leased.after(0)

    assert bodies(leased.pop()) == [b"a"]


@pytest.mark.parametrize(
    "forge",
    [
        lambda key, handle: (key._replace(group="Other"), handle),
        lambda key, handle: (key._replace(topic="Other"), handle),
        lambda key, handle: (key._replace(queue_id=1), handle),
        lambda key, handle: (key, handle._replace(start_offset=1)),
        lambda key, handle: (key, handle._replace(pop_time_ms=handle.pop_time_ms + 1)),
    ],
)
async def test_a_handle_with_a_forged_field_changes_nothing(
    leased: Leased, forge: Callable[[QueueKey, Handle], tuple[QueueKey, Handle]]
) -> None:
    leased.send(b"a")
    (lease,) = leased.pop(invisible_ms=1_000)
    before = leased.store.max_commit_log_offset

    key, handle = forge(lease.key, lease.handle)
    assert leased.engine.acknowledge(key, handle, [0]) is Outcome.GONE
    assert leased.engine.change_invisible(key, handle, 0, 60_000).outcome is Outcome.GONE
    assert leased.engine.acknowledge(lease.key, lease.handle, [1, -1, 1 << 62]) is Outcome.GONE

    assert leased.store.max_commit_log_offset == before
    await leased.after(1_000)
    assert [each.body for each in leased.stored(RETRY)] == [b"a"]


def test_a_filter_skips_messages_outside_the_subscription(leased: Leased) -> None:
    for n in range(6):
        leased.send(b"%d" % n, tags="A" if n % 2 else "B")
    target = TagFilter.of(build_subscription(TOPIC, "A", 0))

    leases = leased.pop(message_filter=target)

    assert bodies(leases) == [b"1", b"3", b"5"]
    assert leases[0].handle.start_offset == 0
    assert leased.committed() == 6


def test_a_new_group_may_start_at_either_end(leased: Leased) -> None:
    for n in range(3):
        leased.send(b"%d" % n)

    assert bodies(leased.pop(init_mode=0, group="X")) == [b"0", b"1", b"2"]
    # The queue still has its first message, which is in memory.
    assert bodies(leased.pop(init_mode=1, group="Y")) == [b"0", b"1", b"2"]


def test_a_reset_delivers_messages_again_except_leased_ones(leased: Leased) -> None:
    for n in range(4):
        leased.send(b"%d" % n)
    leases = leased.pop()
    leased.ack(leases[0], leases[2])

    leased.offsets.commit(GROUP, TOPIC, 0, 0)
    leased.clock.advance_ms(1)

    assert bodies(leased.pop()) == [b"0", b"2"]
    assert leased.committed() == 4


async def test_one_group_can_lease_half_of_the_limit(
    clock: ManualClock, storage: FaultyStorage
) -> None:
    leased = Leased(clock, storage, limits=LimitsConfig(pop_lease_nums_max=64))
    await leased.start()
    for n in range(80):
        leased.send(b"%d" % n)

    assert len(leased.pop(32)) == 32
    full = leased.popped(32)
    assert (full.count, full.is_full, full.rest_count) == (0, True, 48)
    assert len(leased.pop(32, group="Other")) == 32
    await leased.after(60_000)
    assert leased.engine.leases.count == 0
    assert len(leased.pop(32)) == 32
    await leased.stop()


async def test_a_pop_leases_nothing_if_the_store_rejects_the_record(leased: Leased) -> None:
    leased.send(b"a")
    leased.pop(1)
    leased.send(b"b")
    leased.store.availability.follow(is_slave=True)

    popped = leased.popped()
    assert (popped.count, popped.is_unwritable) == (0, True)
    leased.store.availability.follow(is_slave=False)
    assert bodies(leased.pop()) == [b"b"]


async def test_a_redelivery_rejected_by_the_store_is_repeated(leased: Leased) -> None:
    leased.send(b"a")
    leased.pop(invisible_ms=1_000)
    leased.store.availability.follow(is_slave=True)
    await leased.after(5_000)
    assert leased.stored(RETRY) == []

    leased.store.availability.follow(is_slave=False)
    await leased.after(100)

    assert [each.body for each in leased.stored(RETRY)] == [b"a"]


async def test_deleting_a_topic_ends_its_leases(leased: Leased) -> None:
    leased.send(b"a")
    leased.pop(invisible_ms=1_000)

    leased.store.delete_topic(TOPIC)
    leased.engine.forget_topic(TOPIC)
    await leased.after(1_000)

    assert leased.engine.leases.count == 0
    assert leased.stored(RETRY) == []


async def test_a_group_lost_in_a_kill_loses_no_message(leased: Leased) -> None:
    leased.send(b"a")
    leased.pop(invisible_ms=1_000)
    del leased.groups.table[GROUP]

    await leased.after(1_000)

    assert [each.body for each in leased.stored(RETRY)] == [b"a"]


async def test_a_message_with_properties_of_full_size_is_redelivered(leased: Leased) -> None:
    leased.send(b"a", more={"a": "x" * (PROPERTIES_BYTES_MAX - 2)})
    for _ in range(2):
        assert bodies(leased.pop(invisible_ms=1_000)) == [b"a"]
        await leased.after(1_000)

    assert [each.body for each in leased.stored(RETRY)] == [b"a", b"a"]


async def test_pops_start_at_a_different_queue_each_time(
    clock: ManualClock, storage: FaultyStorage
) -> None:
    leased = Leased(clock, storage, queues=4)
    await leased.start()
    for n in range(40):
        leased.send(b"%d" % n, n % 4)

    assert {leased.pop(1)[0].key.queue_id for _ in range(4)} == {0, 1, 2, 3}
    await leased.stop()


async def test_every_fifth_pop_reads_retries_first(leased: Leased) -> None:
    for n in range(20):
        leased.send(b"%d" % n)
    leased.pop(10, invisible_ms=1)
    await leased.after(1)

    topics = [leased.pop(1)[0].key.topic for _ in range(10)]

    assert topics.count(RETRY) == 2


async def test_redelivery_resumes_when_the_retry_topic_can_be_created(
    clock: ManualClock, storage: FaultyStorage
) -> None:
    limits = dataclasses.replace(LIMITS, topic_nums_max=64)
    leased = Leased(clock, storage, limits=limits)
    await leased.start()
    for n in range(2):
        leased.send(b"%d" % n)
    leased.pop(1, invisible_ms=1_000)
    leased.pop(1, invisible_ms=1_000)
    others = [f"other{n}" for n in range(64 - len(leased.topics.table))]
    for each in others:
        leased.topics.put(TopicConfig(topic_name=each))
    await leased.after(1_000)
    assert leased.engine.leases.count == 2

    leased.topics.delete(others[0])
    await leased.after(10_000)

    assert sorted(each.body for each in leased.stored(RETRY)) == [b"0", b"1"]
    await leased.stop()


def test_a_changed_lease_has_its_own_handle(leased: Leased) -> None:
    """After a reset, a pop in the same millisecond may start at the message's offset."""
    for n in range(3):
        leased.send(b"%d" % n)
    _, second = leased.pop(2)
    leased.clock.advance_ms(1)
    leased.offsets.commit(GROUP, TOPIC, 0, 1)
    (third,) = leased.pop()

    changed = leased.engine.change_invisible(second.key, second.handle, 1, 30_000)

    assert third.handle.start_offset == 1
    assert changed.outcome is Outcome.DONE
    assert leased.ack(third) == [Outcome.DONE]
    handle = Handle(1, changed.pop_time_ms)
    assert leased.engine.acknowledge(second.key, handle, [1]) is Outcome.DONE


def test_a_pop_skips_leased_messages(leased: Leased) -> None:
    for n in range(70):
        leased.send(b"%d" % n)
    leased.pop()
    leased.pop()
    leased.offsets.commit(GROUP, TOPIC, 0, 0)
    leased.clock.advance_ms(1)

    assert bodies(leased.pop()) == [b"%d" % n for n in range(64, 70)]


async def test_one_ordered_group_can_lease_in_half_of_the_queues(
    clock: ManualClock, storage: FaultyStorage
) -> None:
    limits = dataclasses.replace(LIMITS, pop_lease_nums_max=4 * OFFSETS_MAX)
    leased = Leased(clock, storage, queues=4, limits=limits)
    await leased.start()
    for queue_id in range(4):
        leased.send(b"%d" % queue_id, queue_id)

    assert len(leased.pop(group="greedy", is_ordered=True, init_mode=0)) == 2
    assert len(leased.pop(group="other", is_ordered=True, init_mode=0)) == 2
    leased.engine.forget_group("greedy")
    assert len(leased.pop(group="third", is_ordered=True, init_mode=0)) == 2
    await leased.stop()
