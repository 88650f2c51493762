"""Deleting a topic or a group ends its leases, in memory and after a restart."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.pop.results import Outcome, PopRequest, PopResult
from tests.support.lease_store import GROUP, RETRY, TOPIC, Leased, bodies

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.faulty_storage import FaultyStorage


@pytest.fixture
def sent(leased: Leased) -> Leased:
    """Six messages; the offsets announce deletions as in a broker."""
    for n in range(6):
        leased.send(b"%d" % n)
    announce(leased)
    return leased


def announce(leased: Leased) -> None:
    leased.offsets.on_topic_deleted = leased.engine.forget_topic
    leased.offsets.on_group_deleted = leased.engine.forget_group


async def killed(leased: Leased, storage: FaultyStorage) -> Leased:
    left = storage.crash()
    await leased.store.shutdown()
    again = Leased(leased.clock, left)
    announce(again)
    await again.start()
    return again


def is_empty(leased: Leased) -> bool:
    leases = leased.engine.leases
    return (
        not list(leased.engine.in_flight())
        and (leases.count, leases.byte_count, len(leases)) == (0, 0, 0)
        and not leased.engine.orders
    )


@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_deleted_topic_has_no_leases(sent: Leased, *, is_ordered: bool) -> None:
    sent.pop(3, is_ordered=is_ordered)

    sent.store.delete_topic(TOPIC)
    sent.offsets.delete_topic(TOPIC)

    assert is_empty(sent)


@pytest.mark.parametrize("is_ordered", [False, True])
async def test_a_deleted_group_has_no_leases_and_its_messages_are_not_redelivered(
    sent: Leased, *, is_ordered: bool
) -> None:
    leases = sent.pop(3, is_ordered=is_ordered)

    sent.offsets.delete_group(GROUP)

    assert is_empty(sent)
    await sent.after(60_000)
    assert sent.stored(RETRY) == []
    assert sent.ack(leases[0]) == [Outcome.GONE]


@pytest.mark.parametrize("is_written", [False, True])
async def test_kept_offsets_return_to_the_first_leased_message(
    sent: Leased, storage: FaultyStorage, *, is_written: bool
) -> None:
    """A group of the same name gets the messages that the deleted one hadn't acknowledged."""
    sent.pop(1)
    await sent.persist()
    leases = sent.pop(4)
    sent.ack(leases[0])

    sent.engine.forget_group(GROUP)
    assert sent.committed() == 0
    if is_written:
        await sent.persist()
    again = await killed(sent, storage)

    assert is_empty(again)
    assert again.committed() == 0
    assert bodies(again.pop()) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    await again.stop()


async def test_kept_offsets_of_acknowledged_messages_stay(sent: Leased) -> None:
    sent.ack(*sent.pop(2))
    sent.pop(2)

    sent.engine.forget_group(GROUP)

    assert sent.committed() == 2


async def test_kept_offsets_of_an_ordered_group_stay_after_a_kill(
    sent: Leased, storage: FaultyStorage
) -> None:
    leases = sent.pop(4, is_ordered=True)
    for lease in leases[:2]:
        sent.ack_ordered(lease)
    await sent.persist()

    sent.engine.forget_group(GROUP)
    again = await killed(sent, storage)

    assert is_empty(again)
    assert again.committed() == 2
    await again.stop()


async def test_deleted_offsets_do_not_return_after_a_kill(
    sent: Leased, storage: FaultyStorage
) -> None:
    sent.pop(3)
    sent.pop(2, group="O", is_ordered=True, init_mode=0)
    sent.offsets.delete_group(GROUP)
    sent.offsets.delete_group("O")

    again = await killed(sent, storage)

    assert is_empty(again)
    assert again.committed() == -1
    assert again.offsets.query("O", TOPIC, 0) == -1
    await again.stop()


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize(
    "delete",
    [
        lambda leased: leased.engine.forget_topic(TOPIC),
        lambda leased: leased.engine.forget_group(GROUP),
    ],
    ids=["topic", "group"],
)
async def test_a_pop_that_reads_the_disk_during_a_deletion_leases_nothing(
    sent: Leased,
    monkeypatch: pytest.MonkeyPatch,
    delete: Callable[[Leased], None],
    *,
    is_ordered: bool,
) -> None:
    read = asyncio.Event()
    get_message = sent.store.get_message

    async def slow(*given: Any) -> Any:
        await read.wait()
        return get_message(*given)

    monkeypatch.setattr(sent.store, "get_message", slow)
    request = PopRequest(group=GROUP, topic=TOPIC, invisible_ms=60_000, is_ordered=is_ordered)
    popping = sent.engine.pop(request)
    assert not isinstance(popping, PopResult)

    async def popped() -> PopResult:
        return await popping

    pop = asyncio.create_task(popped())
    await asyncio.sleep(0)

    delete(sent)
    read.set()

    assert (await pop).count == 0
    assert is_empty(sent)
