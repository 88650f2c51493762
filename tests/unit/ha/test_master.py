"""A master's transfers, their recipients, and the reports it trusts."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

import pytest

from broker_core.composition.replication import HA_PORT
from broker_core.config.ha import HaConfig
from broker_core.counted_log import CountedLog
from broker_core.errors import RemotingError
from broker_core.formats.ha_frames import encode_report
from broker_core.ha.connection import HaConnection
from broker_core.ha.master import ANY_END, HaMaster
from broker_core.remoting.allowed_peers import AllowedPeers
from tests.support.builders import LOG_FILE_SIZE, log_bytes, put
from tests.support.fake_slave import FakeSlave
from tests.support.ha_serving import EVERYBODY, serving
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from broker_core.store.message_store import MessageStore
    from tests.support.clock import ManualClock


@pytest.fixture(autouse=True)
async def _hang_up() -> AsyncIterator[None]:
    yield
    await FakeSlave.hang_up()


def fill(store: MessageStore, count: int, size: int = 300) -> None:
    for number in range(count):
        put(store, body=b"%06d" % number + b"x" * size, queue_id=number % 3)


def sent(master: HaMaster) -> int:
    """Return the offset up to which the first slave was sent the log, or 0 without a slave."""
    return next((one.transferred_offset for one in master.connections()), 0)


def has_contact(master: HaMaster, since_seconds: float) -> bool:
    """Whether the slave has reported this recently, or is gone."""
    found = master.connections()
    return not found or found[0].last_contact_seconds <= since_seconds


async def test_a_slave_gets_only_readable_data_and_the_rest_after_the_flush(
    master: MessageStore, clock: ManualClock
) -> None:
    fill(master, 3)
    flushed_where = master.max_commit_log_offset
    fill(master, 3)
    async with serving(master, clock, sendable_where=lambda: flushed_where) as (ha_master, port):
        slave = await FakeSlave.to(port)
        slave.report(0)

        assert await slave.log(0, flushed_where) == log_bytes(master)[:flushed_where]
        # A later put doesn't send unflushed messages.
        fill(master, 1)
        await until_async(lambda: sent(ha_master) == flushed_where, "the flushed data to be sent")
        before, flushed_where = flushed_where, master.max_commit_log_offset
        assert sent(ha_master) == before
        ha_master.flushed()

        assert await slave.log(before, flushed_where) == log_bytes(master, before)


async def test_a_slave_without_a_log_gets_the_last_file(
    master: MessageStore, clock: ManualClock
) -> None:
    fill(master, 400)
    begin = master.files.log.files[-1].file_from_offset
    assert begin >= LOG_FILE_SIZE
    async with serving(master, clock) as (_, port):
        slave = await FakeSlave.to(port)
        slave.report(0)

        assert await slave.log(begin, master.max_commit_log_offset) == log_bytes(master, begin)


async def test_everything_is_sent_if_the_master_is_configured_so(
    master: MessageStore, clock: ManualClock
) -> None:
    fill(master, 400)
    async with serving(master, clock, sync_from_last_file=False) as (_, port):
        slave = await FakeSlave.to(port)
        slave.report(0)

        assert await slave.log(0, master.max_commit_log_offset) == log_bytes(master)


async def test_a_slave_with_a_log_gets_the_missing_data_from_any_offset(
    master: MessageStore, clock: ManualClock
) -> None:
    fill(master, 20)
    async with serving(master, clock, ha_transfer_batch_size=100) as (_, port):
        slave = await FakeSlave.to(port)
        slave.report(123)

        assert await slave.log(123, master.max_commit_log_offset) == log_bytes(master)[123:]


async def test_no_transfer_exceeds_its_limit_or_crosses_a_file(
    master: MessageStore, clock: ManualClock
) -> None:
    fill(master, 400)
    async with serving(master, clock, ha_transfer_batch_size=10_000, sync_from_last_file=False) as (
        _,
        port,
    ):
        slave = await FakeSlave.to(port)
        slave.report(0)
        end = 0
        while end < master.max_commit_log_offset:
            offset, data = await slave.transfer()
            end = offset + len(data)
            assert len(data) <= 10_000
            assert offset // LOG_FILE_SIZE == (end - 1) // LOG_FILE_SIZE


async def test_a_put_is_sent_immediately_and_without_a_slave_none_is_looked_for(
    master: MessageStore, clock: ManualClock
) -> None:
    async with serving(master, clock) as (_, port):
        fill(master, 3)
        limit = master.files.put_state.limit
        fill(master, 1)
        assert master.files.put_state.limit == limit, "a put costs nothing"
        slave = await FakeSlave.to(port)
        slave.report(0)
        await slave.log(0, master.max_commit_log_offset)

        for _ in range(3):
            begin = master.max_commit_log_offset
            fill(master, 2)
            await slave.log(begin, master.max_commit_log_offset)


async def test_nothing_is_sent_before_the_first_report(
    master: MessageStore, clock: ManualClock
) -> None:
    fill(master, 3)
    async with serving(master, clock) as (ha, port):
        slave = await FakeSlave.to(port)
        await until_async(lambda: bool(ha.connections()), "the connection")
        clock.advance_ms(6_000)
        await asyncio.sleep(0)
        (state,) = ha.connections()
        assert state.requested_offset == state.transferred_offset == -1
        assert ha.replicated_where(1) == -1
        slave.report(0)

        offset, data = await slave.transfer()
        assert offset == 0
        assert data


async def test_reports_contain_the_slaves_offset(master: MessageStore, clock: ManualClock) -> None:
    fill(master, 3)
    end = master.max_commit_log_offset
    async with serving(master, clock) as (ha, port):
        slave = await FakeSlave.to(port)
        slave.report(0)
        await slave.log(0, end)
        # Two and a half at once: the last complete one counts, and the half one waits for its rest.
        slave.send(encode_report(10) + encode_report(100) + encode_report(end)[:4])
        await until_async(lambda: ha.replicated_where(1) == 100, "the report")
        (state,) = ha.connections()
        assert (state.behind_bytes, state.transferred_offset) == (end - 100, end)
        slave.send(encode_report(end)[4:])
        await until_async(lambda: ha.replicated_where(1) == end, "the rest of it")

        assert ha.replicated_where(2) == -1
        assert ha.replicated_where(0) == ANY_END
        assert ha.needed_from() == end
        assert ha.in_sync_slaves(end) == 1
        assert ha.connections()[0].is_in_sync


async def test_the_required_number_of_slaves_has_it(
    master: MessageStore, clock: ManualClock
) -> None:
    fill(master, 3)
    end = master.max_commit_log_offset
    async with serving(master, clock) as (ha, port):
        slaves = [await FakeSlave.to(port) for _ in range(3)]
        for slave, where in zip(slaves, (100, 300, 200), strict=True):
            slave.report(0)
            await slave.log(0, end)
            slave.report(where)
        await until_async(lambda: ha.replicated_where(3) == 100, "all reports")

        assert [ha.replicated_where(count) for count in (1, 2, 3, 4)] == [300, 200, 100, -1]
        assert ha.needed_from() == 100
        slaves[1].close()
        await until_async(lambda: ha.replicated_where(1) == 200, "the slave to disconnect")


async def test_a_slave_that_is_far_behind_is_not_in_sync(
    master: MessageStore, clock: ManualClock
) -> None:
    fill(master, 10)
    end = master.max_commit_log_offset
    async with serving(master, clock, ha_slave_fallbehind_max=1_000) as (ha, port):
        slave = await FakeSlave.to(port)
        slave.report(1)
        await until_async(lambda: ha.replicated_where(1) == 1, "the report")

        assert ha.in_sync_slaves(end) == 0
        assert not ha.connections()[0].is_in_sync


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        pytest.param([1 << 40], "the slave has messages that this master lacks", id="ahead"),
        pytest.param([-1], "requested offset -1", id="negative"),
        pytest.param([0, 1 << 40], "but only", id="beyond the sent data"),
        pytest.param([0, 200, 199], "offsets must not decrease", id="falling"),
        pytest.param([0, 200, 1 << 62], "but only", id="garbage"),
    ],
)
async def test_a_lying_slave_is_disconnected_and_acknowledges_nothing(
    master: MessageStore,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    reports: list[int],
    words: str,
) -> None:
    fill(master, 3)
    async with serving(master, clock) as (ha, port):
        acknowledged: list[int] = []
        ha.on_acknowledged = lambda: acknowledged.append(ha.replicated_where(1))
        slave = await FakeSlave.to(port)
        slave.report(reports[0])
        if len(reports) > 1:
            await slave.log(0, master.max_commit_log_offset)
            for offset in reports[1:]:
                slave.report(offset)

        assert await slave.is_closed()
        await until_async(lambda: not ha.connections(), "the slave to be removed")
        assert max(acknowledged) <= 200
        assert acknowledged[-1] == -1
    assert words in caplog.text
    assert caplog.text.count("HA connection closed") == 1


async def test_a_waiter_ignores_a_false_report(master: MessageStore, clock: ManualClock) -> None:
    """For example an HTTP client on the port: its first eight bytes are an offset past the log."""
    fill(master, 3)
    async with serving(master, clock) as (ha, port):
        stranger = await FakeSlave.to(port)
        stranger.send(b"GET / HTTP/1.1\r\n\r\n")

        assert await stranger.is_closed()
        assert ha.replicated_where(1) == -1


async def test_a_silent_slave_is_dropped(
    master: MessageStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(master, clock) as (ha, port):
        slave = await FakeSlave.to(port)
        slave.report(0)
        await until_async(lambda: ha.replicated_where(1) == 0, "the report")
        for _ in range(21):
            clock.advance_ms(1_000)
            await asyncio.sleep(0)

        assert await slave.is_closed()
    assert "the slave sent nothing for 20 s (haHousekeepingInterval)" in caplog.text


async def test_a_slave_that_reads_nothing_is_dropped_despite_its_reports(
    master: MessageStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    fill(master, 3)
    async with serving(master, clock) as (ha, port):
        slave = await FakeSlave.to(port)
        slave.report(0)
        await slave.log(0, master.max_commit_log_offset)
        slave.report(100)
        for _ in range(25):
            if not ha.connections():
                break
            slave.report(100)
            before = ha.connections()[0].last_contact_seconds
            clock.advance_ms(1_000)
            await until_async(partial(has_contact, ha, before), "the heartbeat to be read")

        assert await slave.is_closed()
    assert "the slave acknowledged nothing for 20 s" in caplog.text


async def test_heartbeats_are_sent_on_idle_connections(
    master: MessageStore, clock: ManualClock
) -> None:
    fill(master, 1)
    end = master.max_commit_log_offset
    async with serving(master, clock) as (ha, port):
        slave = await FakeSlave.to(port)
        slave.report(0)
        await slave.log(0, end)
        slave.report(end)
        await until_async(lambda: ha.replicated_where(1) == end, "the report")
        for _ in range(6):
            clock.advance_ms(1_000)
            await asyncio.sleep(0)

        assert await slave.transfer() == (end, b"")


async def test_a_slave_that_needs_expired_data_is_told_where_the_log_starts(
    master: MessageStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    fill(master, 600)
    master.files.log.delete_first()
    begin = master.min_commit_log_offset
    assert begin
    async with serving(master, clock) as (_, port):
        slave = await FakeSlave.to(port)
        slave.report(100)

        assert await slave.transfer() == (begin, b"")
        assert await slave.is_closed()
    assert "move its store directory away" in caplog.text


async def test_a_file_deleted_during_a_transfer_is_sent_to_its_end(
    master: MessageStore, clock: ManualClock
) -> None:
    fill(master, 600)
    expected = log_bytes(master)
    async with serving(master, clock, sync_from_last_file=False, ha_transfer_batch_size=1_000) as (
        _,
        port,
    ):
        slave = await FakeSlave.to(port)
        slave.report(0)
        offset, data = await slave.transfer()
        master.files.log.delete_first()

        assert offset == 0
        assert data + await slave.log(1_000, len(expected)) == expected


async def test_expired_files_stay_while_a_connected_slave_needs_them(
    master: MessageStore, clock: ManualClock
) -> None:
    fill(master, 600)
    assert await master.flush()
    async with serving(master, clock) as (ha, port):
        master.retention.needed_from = ha.needed_from
        slave = await FakeSlave.to(port)
        slave.report(10)
        await until_async(lambda: ha.needed_from() == 10, "the report")
        clock.advance_ms(100 * 3_600_000)
        master.delete_expired_files_soon()
        await asyncio.sleep(0)
        await master.retention.clean()

        assert master.min_commit_log_offset == 0


async def test_data_missing_in_memory_is_read_by_a_thread(
    master: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_core.ha.connection.HOT_BYTES", 1_000)
    monkeypatch.setattr("broker_core.ha.connection.READ_AHEAD_BYTES", 20_000)
    fill(master, 600)
    expected = log_bytes(master)
    read: list[int] = []
    for mapped in master.files.log.files:
        original = mapped.file.read_ahead

        def read_ahead(mapping: Any, offset: int, length: int, original: Any = original) -> None:
            read.append(length)
            original(mapping, offset, length)

        monkeypatch.setattr(mapped.file, "read_ahead", read_ahead)
    async with serving(master, clock, sync_from_last_file=False) as (_, port):
        slave = await FakeSlave.to(port)
        slave.report(0)

        assert await slave.log(0, len(expected)) == expected
    assert sum(read) >= len(expected) - 1_000
    assert max(read) <= 20_000


async def test_a_slave_far_behind_yields_to_sends(
    master: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = 10_000
    monkeypatch.setattr("broker_core.ha.connection.TURN_BYTES", turn)
    monkeypatch.setattr("broker_core.ha.connection.HOT_BYTES", 2 * turn)
    monkeypatch.setattr("broker_core.ha.connection.PACED_BYTES_PER_SECOND", 1_000_000)
    monkeypatch.setattr("broker_core.ha.connection.LATE_SECONDS_MAX", 0.0)
    fill(master, 600)
    assert master.max_commit_log_offset > 6 * turn
    async with serving(master, clock, sync_from_last_file=False) as (ha, port):
        slave = await FakeSlave.to(port)
        slave.report(0)
        turns = 0
        while turns < 50:
            fill(master, 1)
            await asyncio.sleep(0)
            turns += sent(ha) > 0

        assert sent(ha) <= 2 * turn
        for milliseconds in range(5, 100, 5):
            fill(master, 1)
            clock.advance_ms(5)
            await asyncio.sleep(0)
            assert sent(ha) <= 4 * turn + milliseconds * 1_000
        # The kernel drains its buffer in real time, while the clock stands still. On a busy machine
        # it may have drained less; unused pace isn't granted later.
        for _ in range(500):
            if sent(ha) >= 90_000:
                break
            fill(master, 1)
            await asyncio.sleep(0.001)
        assert sent(ha) <= 4 * turn + 95 * 1_000

        # A pause between two messages doesn't end the stream.
        clock.advance_ms(240)
        await asyncio.sleep(0)
        assert sent(ha) <= 4 * turn + 340 * 1_000

        reading = asyncio.create_task(slave.log(0, master.max_commit_log_offset))
        while not reading.done():
            clock.advance_ms(5)
            await asyncio.sleep(0.001)
        assert reading.result() == log_bytes(master)


async def test_a_slave_far_behind_is_not_delayed_while_no_one_sends(
    master: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_core.ha.connection.TURN_BYTES", 10_000)
    monkeypatch.setattr("broker_core.ha.connection.HOT_BYTES", 1)
    monkeypatch.setattr("broker_core.ha.connection.PACED_BYTES_PER_SECOND", 1)
    fill(master, 600)
    expected = log_bytes(master)
    async with serving(master, clock, sync_from_last_file=False) as (_, port):
        slave = await FakeSlave.to(port)
        slave.report(0)

        assert await slave.log(0, len(expected)) == expected


async def test_a_slave_gets_no_more_per_second_than_allowed(
    master: MessageStore, clock: ManualClock
) -> None:
    fill(master, 600)
    end = master.max_commit_log_offset
    async with serving(
        master,
        clock,
        sync_from_last_file=False,
        ha_flow_control_enable=True,
        max_ha_transfer_byte_in_second=50_000,
    ) as (ha, port):
        slave = await FakeSlave.to(port)
        slave.report(0)
        got = await slave.log(0, 50_000)
        sent = ha.connections()[0].transferred_offset
        assert len(got) == sent == 50_000
        for second in range(2, end // 50_000 + 2):
            clock.advance_ms(1_001)
            got += await slave.log(len(got), min(end, second * 50_000))
            assert len(got) == ha.connections()[0].transferred_offset <= second * 50_000

        assert got == log_bytes(master)


async def test_a_port_in_use_is_reported_in_one_sentence(
    master: MessageStore, clock: ManualClock
) -> None:
    async with serving(master, clock) as (_, port):
        other = HaMaster(HaConfig(), clock, master.files.log, CountedLog(clock), EVERYBODY, None)
        with pytest.raises(
            RemotingError,
            match=rf"listen on 127\.0\.0\.1:{port}: address already in use; haListenPort sets",
        ):
            await other.start("127.0.0.1", port)
        await other.shutdown()


async def test_a_disallowed_peer_is_rejected_with_the_key_to_set(
    master: MessageStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    allowed = AllowedPeers(HA_PORT, "10.0.0.0/8", [], has_acl=False)
    async with serving(master, clock, allowed) as (ha, port):
        slave = await FakeSlave.to(port)

        assert await slave.is_closed()
        assert not ha.connections()
    assert "haAllowedAddresses does not name it; if it is a slave, add 127.0.0.1" in caplog.text


def test_with_access_control_only_this_host_is_allowed_by_default() -> None:
    allowed = AllowedPeers(HA_PORT, "", ["192.0.2.7"], has_acl=True)

    assert allowed.refusal("127.0.0.1") is None
    assert allowed.refusal("::1") is None
    assert allowed.refusal("::ffff:192.0.2.7") is None
    assert "haAllowedAddresses=198.51.100.1" in str(allowed.refusal("198.51.100.1"))
    named = AllowedPeers(HA_PORT, "198.51.100.0/24", [], has_acl=True)
    assert named.refusal("198.51.100.1") is None
    assert named.refusal("127.0.0.1") is not None
    assert AllowedPeers(HA_PORT, "", [], has_acl=False).refusal("198.51.100.1") is None


async def test_a_connection_beyond_the_limit_is_rejected(
    master: MessageStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("broker_core.ha.master.CONNECTIONS_MAX", 2)
    async with serving(master, clock) as (ha, port):
        for count in (1, 2):
            await FakeSlave.to(port)
            await until_async(lambda: len(ha.connections()) == count, "the connection")  # noqa: B023
        third = await FakeSlave.to(port)
        refusal = "there are 2 connections"
        await until_async(
            lambda: refusal in caplog.text or len(ha.connections()) > 2,
            "the third slave to be checked",
        )

        assert len(ha.connections()) == 2
        assert await third.is_closed()


async def test_one_host_leaves_room_for_slaves_of_others(
    master: MessageStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("broker_core.ha.master.CONNECTIONS_OF_HOST_MAX", 2)
    async with serving(master, clock) as (ha, port):
        for _ in range(2):
            await FakeSlave.to(port)
        await until_async(lambda: len(ha.connections()) == 2, "the connections")

        third = await FakeSlave.to(port)
        assert await third.is_closed()
        assert "there are 2 connections from this host" in caplog.text
        other = await FakeSlave.to(port, source="127.0.0.2")
        other.report(0)
        await until_async(lambda: len(ha.connections()) == 3, "the other host's")


async def test_a_slave_with_a_failed_transfer_reconnects_and_the_others_get_the_log(
    master: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(master, clock) as (ha_master, port):
        bad, well = await FakeSlave.to(port), await FakeSlave.to(port)
        for slave in (bad, well):
            slave.report(0)
        await until_async(
            lambda: all(one.requested_offset >= 0 for one in ha_master.connections()),
            "both to report",
        )
        pump, failing = HaConnection.pump, ha_master.connections()[0].address

        def fail_for_one(self: HaConnection) -> None:
            if self.address == failing:
                raise KeyError("of a bug")
            pump(self)

        monkeypatch.setattr(HaConnection, "pump", fail_for_one)
        fill(master, 3)
        await until_async(lambda: len(ha_master.connections()) == 1, "one slave to be disconnected")
        (left,) = ha_master.connections()

        assert left.address != failing
        await until_async(
            lambda: sent(ha_master) == master.max_commit_log_offset, "the log to be sent"
        )
