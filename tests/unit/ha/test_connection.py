"""The bytes that a master sends to one slave, their pace, and the connection's end."""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.formats.ha_frames import encode_report
from broker_core.ha import connection as tuning
from tests.support.builders import log_bytes, put_bodies
from tests.support.one_slave import OneSlave
from tests.support.time_steps import settle

if TYPE_CHECKING:
    from broker_core.store.message_store import MessageStore
    from tests.support.clock import ManualClock

TURN = 10_000


@pytest.fixture
def slave(master: MessageStore, clock: ManualClock) -> OneSlave:
    return OneSlave(master, clock)


def data_of(transfers: list[tuple[int, bytes]]) -> bytes:
    return b"".join(data for _, data in transfers)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns that a test's log fills, without pacing."""
    monkeypatch.setattr(tuning, "TURN_BYTES", TURN)


async def test_no_data_waits_for_more_and_little_waits_in_the_transport(slave: OneSlave) -> None:
    assert slave.wire.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert slave.wire.high == tuning.TURN_BYTES
    assert slave.received == ["connected"]


async def test_a_connection_has_no_offsets_before_a_slave_sends_anything(slave: OneSlave) -> None:
    found = slave.connection
    offsets = (found.requested_offset, found.acknowledged_offset, found.begin_offset, slave.sent)

    assert offsets == (-1, -1, -1, -1)
    assert found.transfer_bytes_per_second == 0


async def test_a_turn_sends_at_most_its_limit_and_later_turns_the_rest(
    slave: OneSlave, small: None
) -> None:
    put_bodies(slave.store, 300)

    slave.report(0)

    assert slave.sent == TURN
    await settle()
    assert data_of(slave.transfers()) == log_bytes(slave.store, 0)
    assert slave.received == ["connected", "acknowledged 0", "sent everything"]


async def test_the_last_byte_of_a_turn_is_used(
    master: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "TURN_BYTES", TURN + 1)
    slave = OneSlave(master, clock, ha_transfer_batch_size=100)
    put_bodies(master, 100)

    slave.report(0)

    assert slave.sent == TURN + 1
    await settle()
    assert slave.sent == slave.end


@pytest.mark.parametrize("lacks", [0, 1, 2])
async def test_a_slave_gets_exactly_the_missing_data(slave: OneSlave, lacks: int) -> None:
    put_bodies(slave.store, 3)

    slave.report(slave.end - lacks)

    assert data_of(slave.transfers()) == log_bytes(slave.store, slave.end - lacks)
    assert slave.connection.begin_offset == slave.end - lacks
    assert slave.received == ["connected", "sent everything", f"acknowledged {slave.end - lacks}"]


async def test_a_slave_of_an_empty_log_waits_for_its_first_message(slave: OneSlave) -> None:
    slave.report(0)
    assert await slave.lives()
    assert slave.transfers() == []

    put_bodies(slave.store, 1)
    slave.connection.pump()

    assert slave.transfers() == [(0, log_bytes(slave.store, 0))]


async def test_no_slave_is_told_that_all_is_sent_while_the_rest_is_withheld(
    slave: OneSlave,
) -> None:
    put_bodies(slave.store, 2)
    slave.sendable = slave.end // 2

    slave.report(0)
    slave.connection.pump()

    assert slave.sent == slave.end // 2
    assert slave.received == ["connected", "acknowledged 0"]


async def test_a_slave_that_reads_nothing_is_sent_nothing_until_it_reads(slave: OneSlave) -> None:
    slave.report(0)
    slave.connection.pause_writing()
    put_bodies(slave.store, 1)

    slave.connection.pump()
    slave.tend_after_ms(6_000)
    assert slave.transfers() == []

    slave.connection.resume_writing()
    assert data_of(slave.transfers()) == log_bytes(slave.store, 0)


async def test_a_late_sample_counts_from_its_own_time(slave: OneSlave) -> None:
    put_bodies(slave.store, 1)
    slave.report(0)
    slave.connection.pause_writing()
    slave.tend_after_ms(19_000)
    slave.report(0)
    slave.connection.resume_writing()

    slave.tend_after_ms(20_000)

    assert await slave.lives()


async def test_a_report_counts_once_it_is_complete(slave: OneSlave) -> None:
    put_bodies(slave.store, 1)
    slave.report(0)
    slave.received.clear()

    slave.connection.data_received(encode_report(slave.end)[:4])
    assert slave.received == []

    slave.connection.data_received(encode_report(slave.end)[4:])
    assert slave.received == [f"acknowledged {slave.end}"]


async def test_data_that_a_slave_has_is_not_resent(slave: OneSlave) -> None:
    put_bodies(slave.store, 3)
    slave.report(0)
    slave.transfers()

    for offset in (0, 200, 200, slave.end, slave.end):
        slave.report(offset)

    assert await slave.lives()
    assert slave.transfers() == []
    assert slave.connection.requested_offset == 0
    assert slave.connection.acknowledged_offset == slave.end


async def test_a_silent_slave_is_dropped_after_the_housekeeping_interval_and_not_before(
    slave: OneSlave,
) -> None:
    slave.tend_after_ms(20_000)
    assert await slave.lives()

    slave.tend_after_ms(1)

    assert not await slave.lives()
    assert slave.reasons == ["the slave sent nothing for 20 s (haHousekeepingInterval)"]


@pytest.mark.parametrize("reported", [0, 100])
async def test_a_slave_that_stops_reading_is_also_dropped(slave: OneSlave, reported: int) -> None:
    put_bodies(slave.store, 1)
    slave.report(0)
    slave.clock.advance_ms(5_000)
    slave.report(reported)
    slave.clock.advance_ms(10_000)
    slave.report(reported)
    # The time of its last read counts: at first, or 5 s later.
    slave.tend_after_ms(5_000 if reported == 0 else 10_000)
    assert await slave.lives()

    slave.tend_after_ms(1)

    assert not await slave.lives()
    lacks = slave.end - reported
    assert slave.reasons == [
        "the slave acknowledged nothing for 20 s (haHousekeepingInterval), with "
        f"{lacks} sent bytes outstanding"
    ]


async def test_a_slave_in_sync_may_stay_idle_forever(slave: OneSlave) -> None:
    put_bodies(slave.store, 1)
    slave.report(slave.end)
    for _ in range(6):
        slave.tend_after_ms(15_000)
        slave.report(slave.end)
    put_bodies(slave.store, 1)
    slave.connection.pump()

    slave.tend_after_ms(15_000)

    assert await slave.lives()


async def test_a_heartbeat_is_sent_one_interval_after_the_last_data(slave: OneSlave) -> None:
    slave.report(0)
    slave.tend_after_ms(2_000)
    put_bodies(slave.store, 1)
    slave.connection.pump()
    slave.transfers()

    slave.tend_after_ms(4_999)
    assert slave.transfers() == []
    slave.tend_after_ms(1)
    assert slave.transfers() == [(slave.end, b"")]
    slave.report(slave.end)
    slave.tend_after_ms(4_999)
    assert slave.transfers() == []
    slave.tend_after_ms(1)
    assert slave.transfers() == [(slave.end, b"")]


async def test_no_heartbeat_goes_to_a_slave_that_has_requested_nothing(slave: OneSlave) -> None:
    slave.tend_after_ms(6_000)
    assert slave.transfers() == []

    slave.report(0)
    slave.tend_after_ms(6_000)
    assert slave.transfers() == [(0, b"")]


@pytest.mark.parametrize(
    ("error", "closed", "reason"),
    [
        (None, (), ""),
        (ConnectionResetError("reset by peer"), (), "reset by peer"),
        (None, ("first", "second"), "first"),
        (OSError("late"), ("first",), "first"),
    ],
)
async def test_the_first_reason_for_an_end_is_reported(
    slave: OneSlave, error: Exception | None, closed: tuple[str, ...], reason: str
) -> None:
    for one in closed:
        slave.connection.close(one)
    assert slave.wire.is_aborted is bool(closed)

    slave.connection.connection_lost(error)

    assert slave.reasons == [reason]


async def test_a_lost_connection_sends_nothing_and_leaves_no_timer(
    master: MessageStore, clock: ManualClock
) -> None:
    slave = OneSlave(master, clock, ha_flow_control_enable=True, max_ha_transfer_byte_in_second=500)
    put_bodies(master, 10)
    slave.report(0)
    await settle()
    waiting = clock.waiting
    slave.transfers()

    slave.connection.connection_lost(None)

    assert clock.waiting == waiting - 1
    slave.connection.pump()
    slave.connection.close("late")
    slave.tend_after_ms(6_000)
    assert slave.transfers() == []


async def test_a_slave_that_needs_expired_data_is_disconnected_after_the_heartbeat(
    slave: OneSlave,
) -> None:
    put_bodies(slave.store, 400)
    slave.store.files.log.delete_first()
    begin = slave.store.min_commit_log_offset

    slave.report(begin - 1)

    assert slave.transfers() == [(begin, b"")]
    assert slave.wire.is_closed
    assert not await slave.lives()
    assert slave.reasons == [
        f"the slave requested offset {begin - 1}, but the log begins at {begin}; the files in "
        "between have expired. Stop the slave, move its store directory away and start it again, "
        "so that it copies the whole log"
    ]


HOT = 1_000
AHEAD = 20_000


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log mostly not in memory, sent in turns of one transfer."""
    monkeypatch.setattr(tuning, "HOT_BYTES", HOT)
    monkeypatch.setattr(tuning, "READ_AHEAD_BYTES", AHEAD)
    monkeypatch.setattr(tuning, "TURN_BYTES", 6_000)


async def test_the_latest_writes_are_sent_without_a_read(slave: OneSlave, cold: None) -> None:
    put_bodies(slave.store, 100)

    slave.report(slave.end - HOT)

    assert slave.sent == slave.end
    assert slave.reads.requests == []


async def test_the_rest_is_sent_as_it_is_read_piece_by_piece(slave: OneSlave, cold: None) -> None:
    put_bodies(slave.store, 250)
    slave.report(100)
    slave.connection.pump()
    await settle()
    assert slave.sent == 100
    assert slave.reads.requests == [(100, AHEAD)]

    slave.reads.waiting.pop().set_result(None)
    for _ in range(50):
        if slave.sent >= 12_100:
            break
        # The next piece is read when half of the previous one is sent, not earlier.
        assert slave.reads.requests == [(100, AHEAD)]
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert slave.reads.requests == [(100, AHEAD), (100 + AHEAD, AHEAD)]
    await settle()
    assert slave.sent == 100 + AHEAD

    while slave.reads.waiting:
        await slave.reads.finish()
    assert data_of(slave.transfers()) == log_bytes(slave.store, 100)
    file_size = slave.store.files.log.file_size
    positions = [position for position, _ in slave.reads.requests]
    assert positions == [100, 20_100, 40_100, 60_100, 0, 20_000, 40_000]
    assert slave.reads.requests[3] == (60_100, file_size - 60_100)


@pytest.mark.parametrize("what", ["fails", "is called off"])
async def test_a_failed_or_cancelled_read_blocks_nothing(
    slave: OneSlave, cold: None, what: str
) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    put_bodies(slave.store, 100)
    slave.report(0)

    reading = slave.reads.waiting.pop()
    if what == "fails":
        reading.set_exception(OSError("gone"))
    else:
        reading.cancel()
    del reading
    await settle()
    gc.collect()
    await settle()

    assert slave.sent == AHEAD
    assert reports == []
