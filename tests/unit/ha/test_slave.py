"""Which data a slave accepts from a master, and which masters it rejects."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.config.ha import HaConfig
from broker_core.counted_log import CountedLog
from broker_core.errors import ReplicationError
from broker_core.formats.ha_frames import REPORT, encode_header
from broker_core.ha.slave import HaSlave
from tests.support.builders import (
    LOG_FILE_SIZE,
    a_store,
    log_bytes,
    put,
    read_all,
    store_config,
)
from tests.support.faulty_storage import FaultyStorage
from tests.support.gate import Gate
from tests.support.ports import free_port
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker_core.store.message_store import MessageStore
    from tests.support.clock import ManualClock


class FakeMaster:
    """A master's end of connections, driven by hand."""

    def __init__(self) -> None:
        self.connected: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
            asyncio.Queue()
        )
        self.writers: list[asyncio.StreamWriter] = []
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        await self.connected.put((reader, writer))

    async def first_report(self) -> int:
        """Accept the next connection; return its first report."""
        self.reader, self.writer = await self.connected.get()
        return await self.report()

    async def report(self) -> int:
        (offset,) = REPORT.unpack(await self.reader.readexactly(REPORT.size))
        return int(offset)

    async def until_reported(self, offset: int) -> None:
        while (found := await self.report()) != offset:
            assert found < offset

    def transfer(self, offset: int, data: bytes) -> None:
        self.writer.write(encode_header(offset, len(data)) + data)

    async def is_left(self) -> bool:
        with contextlib.suppress(ConnectionResetError):
            while await self.reader.read(1024):
                pass
        return True


@asynccontextmanager
async def following(
    store: MessageStore, clock: ManualClock, **keys: Any
) -> AsyncIterator[tuple[HaSlave, FakeMaster]]:
    master = FakeMaster()
    server = await asyncio.start_server(master.serve, "127.0.0.1", 0)
    master.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    counted_log = CountedLog(clock)
    slave = HaSlave(HaConfig(**keys), clock, store, counted_log, None)
    slave.follow(master.address)
    slave.start()
    try:
        yield slave, master
    finally:
        await slave.shutdown()
        server.close()
        for writer in master.writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await server.wait_closed()
        counted_log.shutdown()


def fill(store: MessageStore, count: int, size: int = 200) -> None:
    for number in range(count):
        put(store, body=b"%06d" % number + b"x" * size, keys=f"k{number}", tags="a")


async def passes(clock: ManualClock, milliseconds: int) -> None:
    """Advance the time in steps that let every task run."""
    for _ in range(milliseconds // 250):
        clock.advance_ms(250)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_it_reports_immediately_and_accepts_transfers_split_anywhere(
    master: MessageStore, slave: MessageStore, clock: ManualClock
) -> None:
    fill(master, 7)
    data = log_bytes(master)
    async with following(slave, clock) as (ha, fake):
        assert await fake.first_report() == 0
        stream = b"".join(
            encode_header(offset, len(data[offset : offset + 100])) + data[offset : offset + 100]
            for offset in range(0, len(data), 100)
        )
        for byte in range(0, len(stream), 13):
            fake.writer.write(stream[byte : byte + 13])
            await fake.writer.drain()
            await asyncio.sleep(0)
        await fake.until_reported(len(data))

        assert log_bytes(slave) == data
        assert len(read_all(slave)) == 7
        assert ha.state().state == "following"
        assert ha.state().transferred_bytes == len(data)


async def test_a_log_of_several_files_arrives_whole(
    master: MessageStore, slave: MessageStore, clock: ManualClock
) -> None:
    fill(master, 600)
    data = log_bytes(master)
    assert len(data) > 2 * LOG_FILE_SIZE
    async with following(slave, clock) as (_, fake):
        await fake.first_report()
        for begin in range(0, len(data), LOG_FILE_SIZE):
            fake.transfer(begin, data[begin : begin + LOG_FILE_SIZE])
        await fake.until_reported(len(data))

    assert log_bytes(slave) == data
    assert [m.queue_offset for m in read_all(slave)] == list(range(600))
    assert len(slave.query_message("TopicTest", "k599", 32, 0, 1 << 60)) == 1


async def test_an_empty_slave_starts_where_the_master_says(
    master: MessageStore, slave: MessageStore, clock: ManualClock
) -> None:
    fill(master, 600)
    data = log_bytes(master)
    async with following(slave, clock) as (_, fake):
        await fake.first_report()
        fake.transfer(LOG_FILE_SIZE, data[LOG_FILE_SIZE : 2 * LOG_FILE_SIZE])
        await fake.until_reported(2 * LOG_FILE_SIZE)

        assert slave.min_commit_log_offset == LOG_FILE_SIZE
        first = slave.min_offset_in_queue("TopicTest", 0)
        found = read_all(slave)
        assert found[0].queue_offset == first > 0


@pytest.mark.parametrize(
    ("offset", "data", "words"),
    [
        pytest.param(17, b"x", "mappedFileSizeCommitLog", id="not a file's beginning"),
        pytest.param(-1, b"", "which no master sends", id="negative offset"),
        pytest.param(0, b"\x00\x00\x00\x05aaaa" * 30, "is not a record", id="invalid record"),
        pytest.param(0, b"\x00\x00\x00\x80" + b"a" * 124, "is not a complete record", id="garbage"),
        pytest.param(0, bytes(200), "is not a record", id="zeros"),
    ],
)
async def test_data_that_is_not_a_log_is_rejected_and_not_acknowledged(
    slave: MessageStore,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    offset: int,
    data: bytes,
    words: str,
) -> None:
    async with following(slave, clock) as (ha, fake):
        await fake.first_report()
        fake.transfer(offset, data)

        assert await fake.is_left()
        assert ha.state().failures == 1
        assert words in ha.state().reason
        assert slave.max_commit_log_offset == 0
    assert words in caplog.text


async def test_a_record_with_another_body_is_truncated_and_requested_again(
    master: MessageStore, slave: MessageStore, clock: ManualClock
) -> None:
    fill(master, 5)
    data = log_bytes(master)
    whole = len(data) // 5 * 3
    wrong = bytearray(data)
    wrong[whole + 120] ^= 1
    async with following(slave, clock) as (ha, fake):
        await fake.first_report()
        fake.transfer(0, bytes(wrong))
        assert await fake.is_left()
        assert "checksum of its body is wrong" in ha.state().reason
        assert slave.max_commit_log_offset == whole
        await passes(clock, 2_000)
        assert await fake.first_report() == whole
        fake.transfer(whole, data[whole:])
        await fake.until_reported(len(data))

    assert log_bytes(slave) == data
    assert len(read_all(slave)) == 5


async def test_replayed_and_skipped_bytes_are_rejected(
    master: MessageStore, slave: MessageStore, clock: ManualClock
) -> None:
    fill(master, 6)
    data = log_bytes(master)
    half = len(data) // 2
    async with following(slave, clock) as (ha, fake):
        await fake.first_report()
        fake.transfer(0, data[:half])
        await fake.until_reported(half)
        fake.transfer(0, data[:half])
        assert await fake.is_left()
        assert "the master belongs to another log" in ha.state().reason
        await passes(clock, 2_000)
        assert await fake.first_report() == half
        fake.transfer(len(data), b"")
        assert await fake.is_left()
        assert "Stop this slave, move its store directory away" in ha.state().reason

    assert log_bytes(slave) == data[:half]


async def test_files_of_another_size_are_rejected_with_the_key(
    slave: MessageStore, clock: ManualClock
) -> None:
    big = a_store(clock, FaultyStorage(), store_config(mapped_file_size_commit_log=1 << 18))
    big.load()
    await big.start()
    fill(big, 600)
    data = log_bytes(big)
    async with following(slave, clock) as (ha, fake):
        await fake.first_report()
        for begin in range(0, len(data), 30_000):
            fake.transfer(begin, data[begin : begin + 30_000])
        assert await fake.is_left()

        assert "mappedFileSizeCommitLog=65536" in ha.state().reason
    await big.shutdown()


async def test_a_restart_in_the_middle_of_a_message_continues_at_its_beginning(
    master: MessageStore, clock: ManualClock, slave_disk: FaultyStorage
) -> None:
    fill(master, 5)
    data = log_bytes(master)
    whole = len(data) // 5 * 3
    config = store_config(broker_role="SLAVE")
    first = a_store(clock, slave_disk, config)
    first.take_role(is_slave=True)
    first.load()
    await first.start()
    async with following(first, clock) as (_, fake):
        await fake.first_report()
        fake.transfer(0, data[: whole + 70])
        await fake.until_reported(whole + 70)
    killed = slave_disk.crash()
    await first.shutdown()
    for disk, is_clean in ((killed, False), (slave_disk, True)):
        store = a_store(clock, disk, config)
        store.take_role(is_slave=True)
        report = store.load()
        assert report.clean_exit is is_clean
        assert not report.damaged
        await store.start()
        async with following(store, clock) as (_, fake):
            assert await fake.first_report() == whole
            fake.transfer(whole, data[whole:])
            await fake.until_reported(len(data))
        assert len(read_all(store)) == 5
        await store.shutdown()


async def test_heartbeats_go_both_ways_and_a_silent_master_is_dropped(
    slave: MessageStore, clock: ManualClock
) -> None:
    async with following(slave, clock) as (ha, fake):
        await fake.first_report()
        await passes(clock, 6_000)
        assert await fake.report() == 0
        for _ in range(4):
            fake.transfer(0, b"")
            await until_async(lambda: 0 <= ha.state().last_contact_seconds < 0.2, "the heartbeat")
            await passes(clock, 6_000)
        assert ha.state().state == "following"
        await passes(clock, 21_000)

        assert await fake.is_left()
        assert ha.state().failures >= 1


async def test_it_waits_longer_after_each_failure_up_to_five_seconds(
    slave: MessageStore, clock: ManualClock
) -> None:
    async with following(slave, clock) as (ha, fake):
        waits = []
        for _ in range(7):
            await fake.first_report()
            fake.writer.close()
            await until_async(lambda: ha.state().state == "waiting", "the pause")
            begin = clock.monotonic()
            while ha.state().state == "waiting":
                await passes(clock, 250)
            waits.append(clock.monotonic() - begin)

    assert waits[0] <= 1.0
    assert waits == sorted(waits)
    assert 5.0 <= waits[-1] <= 5.5


async def test_it_follows_another_master_immediately(
    slave: MessageStore, clock: ManualClock
) -> None:
    async with following(slave, clock) as (ha, old), following_none() as new:
        await old.first_report()
        ha.follow(new.address)

        assert await old.is_left()
        assert await new.first_report() == 0
        ha.follow(None)
        await until_async(lambda: ha.state().state == "idle", "the slave to stop following")
        assert ha.state().reason == "the master has another address now"
        assert await new.is_left()


@asynccontextmanager
async def following_none() -> AsyncIterator[FakeMaster]:
    master = FakeMaster()
    server = await asyncio.start_server(master.serve, "127.0.0.1", 0)
    master.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield master
    finally:
        server.close()
        for writer in master.writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await server.wait_closed()


async def test_the_work_awaited_before_a_transfer_can_forbid_it(
    slave: MessageStore, clock: ManualClock
) -> None:
    requests = []

    async def before(address: str) -> None:
        requests.append(address)
        if len(requests) == 1:
            raise ReplicationError("its epochs are another cluster's")

    async with following_none() as master:
        ha = HaSlave(HaConfig(), clock, slave, CountedLog(clock), None)
        ha.before_transfer = before
        ha.follow(master.address)
        ha.start()
        await until_async(lambda: ha.state().failures == 1, "the refusal")
        assert ha.state().reason == "its epochs are another cluster's"
        await passes(clock, 1_000)
        await master.connected.get()

        assert await master.first_report() == 0
        assert requests == [master.address] * 2
        await ha.shutdown()


async def test_in_flushed_mode_only_flushed_data_is_reported(
    master: MessageStore, slave: MessageStore, clock: ManualClock, slave_disk: FaultyStorage
) -> None:
    fill(master, 3)
    data = log_bytes(master)
    async with following(slave, clock, ha_ack_mode="flushed") as (ha, fake):
        await fake.first_report()
        gate = Gate(slave_disk, "fdatasync")
        fake.transfer(0, data)
        await gate.until_entered()
        await until_async(lambda: slave.max_commit_log_offset == len(data), "the data")
        assert ha.state().reported_offset == 0
        gate.open.set()
        await fake.until_reported(len(data))

        assert slave.flushed_where == len(data)


async def test_a_full_disk_only_ends_the_connection(
    master: MessageStore, slave: MessageStore, clock: ManualClock, slave_disk: FaultyStorage
) -> None:
    fill(master, 3)
    data = log_bytes(master)
    async with following(slave, clock) as (ha, fake):
        await fake.first_report()
        slave_disk.fail("allocate", error=28)
        fake.transfer(0, data)
        assert await fake.is_left()
        assert "No space left" in ha.state().reason
        slave_disk.heal("allocate")
        await passes(clock, 2_000)
        begin = await fake.first_report()
        fake.transfer(begin, data[begin:])
        await fake.until_reported(len(data))

    assert log_bytes(slave) == data
    assert len(read_all(slave)) == 3


async def test_a_slave_has_reported_nothing_before_its_first_report(
    master: MessageStore, slave: MessageStore, clock: ManualClock
) -> None:
    reported: list[int] = []
    async with following(slave, clock) as (ha, fake):

        async def look(address: str) -> None:
            reported.append(ha.state().reported_offset)

        ha.before_transfer = look
        assert await fake.first_report() == 0

        assert reported == [-1]
        assert ha.state().reported_offset == 0


async def test_a_port_without_a_listener_is_reported(
    slave: MessageStore, clock: ManualClock
) -> None:
    async with following(slave, clock) as (ha, fake):
        await fake.first_report()
        requests: list[str] = []

        async def look(address: str) -> None:
            requests.append(address)

        ha.before_transfer = look
        ha.follow(f"127.0.0.1:{free_port()}")
        await until_async(lambda: ha.state().state == "waiting", "the pause")

        assert ha.state().reason.startswith("no connection: ")
        assert requests == []


async def test_connecting_times_out_after_five_seconds(
    slave: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up: list[bool] = []

    async def never(*args: object, **keys: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.append(True)

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    async with following(slave, clock) as (ha, _):
        await passes(clock, 4_500)
        assert (ha.state().state, given_up) == ("connecting", [])
        await passes(clock, 1_000)

        assert ha.state().reason == "no connection within 5 s"
        assert given_up
