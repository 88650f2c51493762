"""A master's record of its slaves, and which connections count as one."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from broker_core.composition.replication import HA_PORT
from broker_core.remoting.allowed_peers import AllowedPeers
from tests.support.builders import log_bytes, put_bodies
from tests.support.certificates import certificate
from tests.support.fake_slave import FakeSlave
from tests.support.ha_serving import EVERYBODY, Gate, serving
from tests.support.time_steps import settle
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.ha.master import HaMaster
    from broker_core.store.message_store import MessageStore
    from tests.support.clock import ManualClock


@pytest.fixture(autouse=True)
async def _hang_up() -> AsyncIterator[None]:
    yield
    await FakeSlave.hang_up()


async def reported(ha: HaMaster, offset: int) -> None:
    """Wait until the first slave has reported an offset."""
    await until_async(lambda: ha.replicated_where(1) == offset, f"the report of {offset}")


async def test_observers_are_told_each_slaves_offset_and_departure(
    master: MessageStore, clock: ManualClock
) -> None:
    put_bodies(master, 3)
    async with serving(master, clock) as (ha, port):
        reports: list[tuple[str, int]] = []
        ha.on_report = lambda address, offset: reports.append((address, offset))
        slave = await FakeSlave.to(port)
        slave.report(0)
        await slave.log(0, master.max_commit_log_offset)
        slave.report(100)
        await reported(ha, 100)
        address = ha.connections()[0].address
        slave.close()
        await until_async(lambda: not ha.connections(), "the slave to disconnect")

        assert reports == [(address, 0), (address, 100), (address, -1)]


async def test_acknowledged_offsets_are_updated_each_second_and_when_a_slave_joins_or_leaves(
    master: MessageStore, clock: ManualClock
) -> None:
    async with serving(master, clock) as (ha, port):
        await settle()
        looks: list[float] = []
        ha.on_acknowledged = lambda: looks.append(clock.monotonic())
        begin = clock.monotonic()
        for milliseconds in (999, 1, 999, 1):
            clock.advance_ms(milliseconds)
            await settle()
        assert [look - begin for look in looks] == [1.0, 2.0]

        slave = await FakeSlave.to(port)
        await until_async(lambda: len(looks) == 3, "the connection")
        slave.report(0)
        await until_async(lambda: len(looks) == 4, "the report")
        slave.close()
        await until_async(lambda: len(looks) == 5, "the end")


async def test_it_follows_the_heartbeats_if_they_are_more_frequent(
    master: MessageStore, clock: ManualClock
) -> None:
    async with serving(master, clock, ha_send_heartbeat_interval=500) as (ha, _):
        await settle()
        looks: list[float] = []
        ha.on_acknowledged = lambda: looks.append(clock.monotonic())
        counts = []
        for milliseconds in (499, 1, 499, 1):
            clock.advance_ms(milliseconds)
            await settle()
            counts.append(len(looks))

        assert counts == [0, 1, 1, 2]


async def test_a_slaves_delay_is_reported_in_bytes_and_in_seconds(
    master: MessageStore, clock: ManualClock
) -> None:
    async with serving(master, clock) as (ha, port):
        ends = []
        # The log grows by a message each half second, and its end is sampled each second.
        for _ in range(8):
            put_bodies(master, 1)
            ends.append(master.max_commit_log_offset)
            await settle()
            clock.advance_ms(500)
        await settle()
        slave = await FakeSlave.to(port)
        behind: list[tuple[int, float]] = []
        for offset in (1, ends[2], ends[6], ends[7]):
            slave.report(offset)
            await reported(ha, offset)
            if not behind:
                await slave.log(1, ends[7])
            (state,) = ha.connections()
            behind.append((state.behind_bytes, state.behind_seconds))

        # At the samples, 4 s ago it ended at ends[0], 3 s ago at ends[2], ...
        assert behind == [
            (ends[7] - 1, 4.0),
            (ends[7] - ends[2], 3.0),
            (ends[7] - ends[6], 1.0),
            (0, 0.0),
        ]


async def test_a_silent_slave_is_behind_by_the_log_bytes(
    master: MessageStore, clock: ManualClock
) -> None:
    put_bodies(master, 1)
    async with serving(master, clock) as (ha, port):
        await FakeSlave.to(port)
        await until_async(lambda: bool(ha.connections()), "the connection")
        clock.advance_ms(1_500)

        (state,) = ha.connections()

        assert state.behind_bytes == master.max_commit_log_offset
        assert state.last_contact_seconds == 1.5
        assert not state.is_in_sync
        assert ha.in_sync_slaves(0) == 0
        assert ha.needed_from() > 1 << 40, "it needs nothing yet"


async def test_the_data_sent_to_a_slave_per_second_is_reported(
    master: MessageStore, clock: ManualClock
) -> None:
    put_bodies(master, 3)
    async with serving(master, clock) as (ha, port):
        slave = await FakeSlave.to(port)
        slave.report(1)
        await slave.log(1, master.max_commit_log_offset)
        clock.advance_ms(1_000)

        rate = ha.connections()[0].transfer_bytes_per_second

        assert rate >= master.max_commit_log_offset


@pytest.mark.parametrize(("lacks", "is_in_sync"), [(999, True), (1_000, False)])
async def test_a_slave_within_the_allowed_lag_is_in_sync(
    master: MessageStore, clock: ManualClock, lacks: int, is_in_sync: bool
) -> None:
    put_bodies(master, 10)
    end = master.max_commit_log_offset
    async with serving(master, clock, ha_slave_fallbehind_max=1_000) as (ha, port):
        slave = await FakeSlave.to(port)
        slave.report(end - lacks)
        await reported(ha, end - lacks)

        assert ha.in_sync_slaves(end) == is_in_sync
        assert ha.connections()[0].is_in_sync is is_in_sync


async def test_a_slave_of_an_empty_log_is_in_sync_and_needs_it_from_its_beginning(
    master: MessageStore, clock: ManualClock
) -> None:
    async with serving(master, clock) as (ha, port):
        slave = await FakeSlave.to(port)
        slave.report(0)
        await reported(ha, 0)

        assert ha.in_sync_slaves(0) == 1
        assert ha.connections()[0].is_in_sync
        assert ha.needed_from() == 0


async def test_files_before_a_new_slaves_first_one_are_not_needed(
    master: MessageStore, clock: ManualClock
) -> None:
    put_bodies(master, 400)
    begin = master.files.log.files[-1].file_from_offset
    async with serving(master, clock) as (ha, port):
        slave = await FakeSlave.to(port)
        slave.report(0)
        await slave.log(begin, master.max_commit_log_offset)

        assert ha.needed_from() == begin


async def test_without_slaves_nothing_is_needed_and_no_one_is_waited_for(
    master: MessageStore, clock: ManualClock
) -> None:
    put_bodies(master, 1)
    async with serving(master, clock) as (ha, _):
        ha.flushed()

        assert ha.needed_from() > master.max_commit_log_offset
        assert ha.replicated_where(0) > master.max_commit_log_offset


async def test_all_slaves_can_be_dismissed_and_return(
    master: MessageStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(master, clock) as (ha, port):
        slaves = [await FakeSlave.to(port) for _ in range(2)]
        for slave in slaves:
            slave.report(0)
        await until_async(lambda: ha.replicated_where(2) == 0, "both reports")

        ha.disconnect_all("the role changes")

        for slave in slaves:
            assert await slave.is_closed()
        again = await FakeSlave.to(port)
        again.report(0)
        await reported(ha, 0)
    lines = [line for line in caplog.messages if "the role changes" in line]
    assert lines[0] == "HA connection closed host=127.0.0.1 count=1 reason=the role changes"


async def test_a_slave_that_does_not_read_blocks_no_other(
    master: MessageStore, clock: ManualClock
) -> None:
    put_bodies(master, 1_500, 2_000)
    end = master.max_commit_log_offset
    async with serving(master, clock, sync_from_last_file=False) as (_, port):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        one.setblocking(False)
        await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", port))
        lazy = FakeSlave(*await asyncio.open_connection(sock=one))
        lazy.report(0)
        quick = await FakeSlave.to(port)
        quick.report(0)

        assert await quick.log(0, end) == log_bytes(master)
        assert (await lazy.transfer())[0] == 0


async def test_after_a_shutdown_no_port_is_open_and_no_thread_is_left(
    master: MessageStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("broker_core.ha.connection.HOT_BYTES", 1)
    put_bodies(master, 3)
    async with serving(master, clock) as (ha, port):
        slave = await FakeSlave.to(port)
        slave.report(0)
        await slave.log(0, master.max_commit_log_offset)
        assert "ha-read" in str(threading.enumerate())

        for _ in range(2):
            await ha.shutdown()

        assert await slave.is_closed()
        assert "ha-read" not in str(threading.enumerate())
        with pytest.raises(ConnectionRefusedError):
            await FakeSlave.to(port)
    assert "HA connection closed" not in caplog.text


async def test_without_descriptors_a_slave_waits_until_there_are_some(
    master: MessageStore, clock: ManualClock
) -> None:
    put_bodies(master, 3)
    async with serving(master, clock) as (ha, port):
        slave = socket.socket()
        slave.setblocking(False)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
        try:
            # The kernel accepts the connection, but the master can't.
            await asyncio.get_running_loop().sock_connect(slave, ("127.0.0.1", port))
            await settle()
            assert ha.connections() == []
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

        waiting = FakeSlave(*await asyncio.open_connection(sock=slave))
        waiting.report(0)
        assert await waiting.log(0, master.max_commit_log_offset) == log_bytes(master)


async def test_a_rejected_peer_is_named_once_however_often_it_connects(
    master: MessageStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    gate.read.set()
    nobody = AllowedPeers(HA_PORT, "10.0.0.0/8", [], has_acl=False)
    for allowed, tls in ((nobody, None), (EVERYBODY, gate)):
        caplog.clear()
        async with serving(master, clock, allowed, tls=tls) as (ha, port):
            for _ in range(3):
                assert await (await FakeSlave.to(port)).is_closed()
            assert len(refusals(caplog)) == 1
            assert refusals(caplog)[0].startswith("HA connection refused host=127.0.0.1 count=1 ")
            assert not ha.connections()
    assert refusals(caplog)[0].endswith(
        "reason=haTls is set, but there is no certificate (tls.server.certPath)"
    )


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if line.startswith("HA connection refused")]


@pytest.mark.parametrize("limit", ["CONNECTIONS_MAX", "CONNECTIONS_OF_HOST_MAX"])
async def test_connections_waiting_for_the_certificate_count_and_are_closed_at_a_shutdown(
    master: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(f"broker_core.ha.master.{limit}", 2)
    async with serving(master, clock, tls=Gate()) as (ha, port):
        waiting = [await FakeSlave.to(port) for _ in range(2)]
        third = await FakeSlave.to(port)
        assert await third.is_closed()

        await ha.shutdown()

        for slave in waiting:
            assert await slave.is_closed()


async def test_with_a_certificate_the_log_is_sent_only_over_tls(
    master: MessageStore, clock: ManualClock, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    made, key = certificate(tmp_path, "master")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made, key)
    client = ssl.create_default_context(cafile=str(made))
    gate = Gate(server)
    gate.read.set()
    put_bodies(master, 3)
    async with serving(master, clock, tls=gate) as (ha, port):
        plain = await FakeSlave.to(port)
        plain.report(0)
        assert await plain.is_closed()
        await until_async(lambda: bool(refusals(caplog)), "the refusal")
        assert not ha.connections()

        slave = FakeSlave(*await asyncio.open_connection("127.0.0.1", port, ssl=client))
        slave.report(0)
        assert await slave.log(0, master.max_commit_log_offset) == log_bytes(master)
    assert re.match(r"HA connection refused host=127\.0\.0\.1 count=1 .", refusals(caplog)[0])
