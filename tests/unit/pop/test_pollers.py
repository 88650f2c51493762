"""Waiting pops: which events wake them, and when they time out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.config.limits import LimitsConfig
from broker_core.pop.checkpoint import QueueKey
from tests.support.lease_store import GROUP, RETRY, TOPIC, Leased, bodies
from tests.support.time_steps import settle

if TYPE_CHECKING:
    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage

ALL = QueueKey(GROUP, TOPIC, -1)


class Waiting:
    """A waiting pop; `answer` has the messages that it leased."""

    def __init__(self, leased: Leased, connection: str = "c", **more: Any) -> None:
        self._leased = leased
        self.connection = connection
        self._more = more
        self.answer: list[bytes] | None = None
        self.attempts = 0
        self.is_answerable = True

    def attempt(self, *, is_last: bool) -> bool:
        assert self.answer is None
        self.attempts += 1
        found = bodies(self._leased.pop(1, **self._more))
        if found or is_last:
            self.answer = found
        return self.answer is not None


def wait(leased: Leased, key: QueueKey = ALL, timeout_s: float = 20, **more: Any) -> Waiting:
    waiting = Waiting(leased, **more)
    leased.pollers.wait(key, [(TOPIC, 0), (RETRY, 0)], waiting, timeout_s)
    return waiting


async def test_a_message_wakes_only_one_pop(leased: Leased) -> None:
    waits = [wait(leased) for _ in range(10)]

    leased.send(b"a")
    await settle()

    assert [each.answer for each in waits] == [[b"a"], *[None] * 9]
    # The second found no message, so the others weren't retried.
    assert [each.attempts for each in waits] == [1, 1, *[0] * 8]


async def test_the_end_of_a_lease_wakes_a_pop_of_its_group_within_50_ms(leased: Leased) -> None:
    leased.revival.start()
    leased.send(b"a")
    leased.pop(invisible_ms=1_000)
    waiting = wait(leased)
    await settle()

    leased.clock.advance_ms(999)
    await settle()
    assert waiting.answer is None
    leased.clock.advance_ms(1)
    await settle()

    assert waiting.answer == [b"a"]


async def test_an_unblocked_ordered_queue_wakes_a_pop(leased: Leased) -> None:
    leased.send(b"a")
    leased.send(b"b")
    (lease,) = leased.pop(1, is_ordered=True)
    leased.clock.advance_ms(1)
    waiting = wait(leased, is_ordered=True)

    leased.ack_ordered(lease)
    await settle()

    assert waiting.answer == [b"b"]


async def test_a_pop_times_out_without_a_message(leased: Leased) -> None:
    waiting = wait(leased, timeout_s=5)
    leased.clock.advance_ms(4_990)
    assert waiting.answer is None

    leased.clock.advance_ms(10)

    assert waiting.answer == []
    assert len(leased.pollers) == 0


async def test_a_lost_connection_ends_its_pops(leased: Leased) -> None:
    lost, other = wait(leased, connection="lost"), wait(leased, connection="other")

    leased.pollers.close("lost")
    leased.send(b"a")
    await settle()

    assert (lost.attempts, other.answer) == (0, [b"a"])


@pytest.mark.parametrize("end", ["topic", "group", "shutdown", "pulls"])
async def test_pops_are_answered_when_their_topic_group_or_broker_ends(
    leased: Leased, end: str
) -> None:
    waiting = wait(leased)
    if end == "topic":
        leased.parked_pulls.end(TOPIC)
    elif end == "group":
        leased.pollers.end_group(GROUP)
    elif end == "shutdown":
        leased.pollers.shutdown()
    else:
        leased.parked_pulls.shutdown()
    await settle()

    assert waiting.answer == []
    assert len(leased.pollers) == len(leased.parked_pulls) == 0


async def test_waiting_pops_are_limited(clock: ManualClock, storage: FaultyStorage) -> None:
    leased = Leased(clock, storage, limits=LimitsConfig(parked_pop_nums_max=2))
    await leased.start()
    wait(leased)
    assert not leased.pollers.is_full(ALL, "c")
    wait(leased)
    assert leased.pollers.is_full(ALL, "c")
    await leased.stop()


@pytest.mark.parametrize("is_expired", [False, True])
async def test_a_pop_waits_while_its_client_reads_nothing(
    leased: Leased, *, is_expired: bool
) -> None:
    stalled, other = wait(leased, timeout_s=1), wait(leased, connection="d")
    stalled.is_answerable = False

    leased.send(b"a")
    await settle()
    assert other.answer == [b"a"]
    if is_expired:
        leased.clock.advance_ms(1_000)
    else:
        leased.send(b"b")
    await settle()
    assert stalled.attempts == 0

    stalled.is_answerable = True
    leased.pollers.resume("c")
    await settle()
    assert stalled.answer == ([] if is_expired else [b"b"])


async def test_a_failing_pop_does_not_block_the_others(
    leased: Leased, caplog: pytest.LogCaptureFixture
) -> None:
    failing, other = wait(leased), wait(leased, connection="d")
    failing.answer = [b"answered twice"]

    leased.send(b"a")
    await settle()

    assert other.answer == [b"a"]
    assert "a parked pop" in caplog.text


async def test_a_queue_is_unwatched_after_its_last_pop(leased: Leased) -> None:
    wait(leased)
    for body in (b"a", b"b"):
        leased.send(body)
        await settle()

    assert not leased.parked_pulls.parked.get(TOPIC)
    waiting = wait(leased)
    await asyncio.sleep(0)
    leased.send(b"c")
    await settle()
    assert waiting.answer == [b"b"]
