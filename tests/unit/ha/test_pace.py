"""A slave's replication speed: the limit per second, and the share left to producers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.formats.ha_frames import HEADER_SIZE
from broker_core.ha import connection as tuning
from tests.support.builders import a_store, put, put_bodies, store_config
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tests.support.one_slave import OneSlave
from tests.support.time_steps import settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker_core.store.message_store import MessageStore

FAR_TURN = 100_000


@pytest.fixture
def slave(master: MessageStore, clock: ManualClock) -> OneSlave:
    return OneSlave(master, clock)


def limited(store: MessageStore, clock: ManualClock, bytes_per_second: int) -> OneSlave:
    return OneSlave(
        store,
        clock,
        ha_flow_control_enable=True,
        max_ha_transfer_byte_in_second=bytes_per_second,
    )


@pytest.mark.parametrize("spare", [0, 1])
async def test_a_second_is_used_to_its_last_byte_and_the_next_starts_immediately(
    master: MessageStore, clock: ManualClock, spare: int
) -> None:
    put_bodies(master, 1)
    first = master.max_commit_log_offset
    slave = limited(master, clock, first + HEADER_SIZE + spare)
    slave.report(0)
    assert slave.sent == first
    put_bodies(master, 1)
    clock.advance_ms(500)
    slave.connection.pump()
    await settle()
    assert slave.sent == first + spare

    clock.advance_ms(499)
    assert slave.sent == first + spare
    clock.advance_ms(1)

    assert slave.sent == slave.end


async def test_a_second_begins_with_the_connection(
    master: MessageStore, clock: ManualClock
) -> None:
    put_bodies(master, 4)
    slave = limited(master, clock, 500)
    clock.advance_ms(700)
    slave.report(0)
    sent = []
    for milliseconds in (0, 299, 1, 999, 1):
        await settle()
        clock.advance_ms(milliseconds)
        sent.append(slave.sent)

    assert sent == [500, 500, 1_000, 1_000, 1_500]


async def test_the_sent_messages_of_the_last_whole_second_are_reported(slave: OneSlave) -> None:
    put_bodies(slave.store, 1)
    slave.report(0)
    size = slave.end + HEADER_SIZE

    rates = []
    for milliseconds in (999, 1, 999, 1, 1_500):
        slave.clock.advance_ms(milliseconds)
        rates.append(slave.connection.transfer_bytes_per_second)

    assert rates == [0, size, size, 0, 0]


@pytest.mark.parametrize(("milliseconds", "is_told"), [(1_999, True), (2_000, False)])
async def test_data_sent_two_seconds_ago_no_longer_counts_for_the_rate(
    slave: OneSlave, milliseconds: int, is_told: bool
) -> None:
    put_bodies(slave.store, 1)
    slave.report(0)

    slave.clock.advance_ms(milliseconds)

    size = slave.end + HEADER_SIZE
    assert slave.connection.transfer_bytes_per_second == (size if is_told else 0)


class Paced:
    """A slave far behind the log of one big file; a turn leaves it some milliseconds."""

    def __init__(self, store: MessageStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.slave = OneSlave(store, clock, ha_transfer_batch_size=FAR_TURN)
        self.grow(100)

    @property
    def turns(self) -> int:
        assert self.slave.sent % FAR_TURN == 0
        return self.slave.sent // FAR_TURN

    def grow(self, records: int = 1) -> None:
        """Put records of 10 KB."""
        put_bodies(self.store, records, 9_900)

    async def begin(self) -> None:
        """Send two turns with log growth between them, which establishes a pace."""
        self.slave.report(0)
        self.slave.reads.waiting.pop().set_result(None)
        for _ in range(20):
            if self.turns == 1:
                break
            await asyncio.sleep(0)
        put(self.store)
        await settle()
        assert self.turns == 2

    async def passes(self, *milliseconds: int, grows: bool = True) -> list[int]:
        """Let these times pass one after the other; return how many turns were sent by then."""
        found = []
        for one in milliseconds:
            if grows:
                put(self.store)
            self.clock.advance_ms(one)
            await settle()
            found.append(self.turns)
        return found


@pytest.fixture(params=[0.0, 1_000.0], ids=["since the start", "later"])
async def paced(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Paced]:
    """One turn each 125 ms."""
    monkeypatch.setattr(tuning, "TURN_BYTES", FAR_TURN)
    monkeypatch.setattr(tuning, "HOT_BYTES", FAR_TURN)
    monkeypatch.setattr(tuning, "PACED_BYTES_PER_SECOND", FAR_TURN * 8)
    clock = ManualClock(monotonic=request.param)
    store = a_store(
        clock, FaultyStorage(), store_config(mapped_file_size_commit_log=FAR_TURN * 100)
    )
    store.load()
    await store.start()
    one = Paced(store, clock)
    yield one
    await store.shutdown()


async def test_turns_far_behind_a_growing_log_keep_their_pace(
    paced: Paced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "LATE_SECONDS_MAX", 0.0)
    await paced.begin()

    assert await paced.passes(124, 1, 124, 1, 124, 1) == [2, 3, 3, 4, 4, 5]


async def test_a_fast_growing_log_is_followed_twice_as_fast(
    paced: Paced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "PACED_BYTES_PER_SECOND", FAR_TURN * 4)
    monkeypatch.setattr(tuning, "LATE_SECONDS_MAX", 0.0)
    await paced.begin()

    paced.grow(10)
    assert await paced.passes(249, 1) == [2, 3]
    for turns in range(3, 8):
        # 5 records of 10 KB in 125 ms: a turn of 100 KB is due when the next 5 have arrived.
        paced.grow(5)
        assert await paced.passes(119, 6, grows=False) == [turns, turns + 1]


async def test_a_log_quiet_for_a_quarter_of_a_second_yields_the_machine(
    paced: Paced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "LATE_SECONDS_MAX", 0.0)
    await paced.begin()

    assert await paced.passes(124, 1, 124, grows=False) == [2, 3, 3]
    paced.clock.advance_ms(1)
    await settle()
    assert paced.slave.sent == paced.slave.end


@pytest.mark.parametrize(("milliseconds", "turns"), [(999, 3), (1_000, 4)])
async def test_a_slave_that_took_a_second_for_its_turn_is_not_delayed_further(
    paced: Paced, milliseconds: int, turns: int
) -> None:
    await paced.begin()
    paced.slave.connection.pause_writing()
    await paced.passes(milliseconds)

    paced.slave.connection.resume_writing()

    assert await paced.passes(1) == [turns]


async def test_a_late_timer_is_compensated_up_to_ten_milliseconds(
    paced: Paced,
) -> None:
    await paced.begin()
    assert await paced.passes(124, 1) == [2, 3]
    # From the turn's scheduled time on, not from when the timer ran.
    paced.clock.hold_ms(133)
    assert await paced.passes(0, 116, 2) == [4, 4, 5]
    paced.clock.hold_ms(224)
    assert await paced.passes(0, 114, 2) == [6, 6, 7]


async def test_a_nearby_slave_is_not_delayed_by_puts(paced: Paced) -> None:
    slave = paced.slave
    slave.report(slave.end - FAR_TURN)
    for _ in range(30):
        paced.grow()
        slave.connection.pump()
        await asyncio.sleep(0)
    await settle()

    assert slave.sent == slave.end


def test_a_turn_is_read_whole_and_released_within_a_second() -> None:
    assert 0 < tuning.TURN_BYTES <= tuning.READ_AHEAD_BYTES // 2
    assert tuning.READ_AHEAD_BYTES <= tuning.HOT_BYTES
    assert tuning.PACED_BYTES_PER_SECOND >= tuning.TURN_BYTES
