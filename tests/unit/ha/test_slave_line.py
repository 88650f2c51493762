"""When a slave connects, reports and gives up, to the millisecond."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker_core.config.ha import HaConfig
from broker_core.counted_log import CountedLog
from broker_core.formats.ha_frames import REPORT, encode_header
from broker_core.ha.slave import HaSlave
from tests.support.builders import log_bytes, put_bodies
from tests.support.memory_transport import MemoryTransport
from tests.support.time_steps import settle
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from broker_core.store.message_store import MessageStore
    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage

MASTER, MASTER_HOST = "10.0.0.1:10912", ("10.0.0.1", 10_912)


class Line:
    """A slave's connections, with the test as all masters: no sockets and no real time."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        store: MessageStore,
        clock: ManualClock,
        **keys: Any,
    ) -> None:
        self.clock = clock
        self.store = store
        self.requests: list[tuple[str, int]] = []
        self.transports: list[MemoryTransport] = []
        self.error: Exception | None = None
        """The reason why connections fail."""
        self.peer = MASTER_HOST
        """The address that a name resolves to."""
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", self._connect)
        self.log = CountedLog(clock)
        self.ha = HaSlave(HaConfig(**keys), clock, store, self.log, None)
        self.ha.follow(MASTER)

    async def _connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, **_: object
    ) -> tuple[MemoryTransport, asyncio.BaseProtocol]:
        self.requests.append((host, port))
        if self.error is not None:
            raise self.error
        transport = MemoryTransport(factory(), ("::1", 4_000, 0, 0), self.peer)
        self.transports.append(transport)
        transport.protocol.connection_made(transport)
        return transport, transport.protocol

    async def begins(self) -> None:
        self.ha.start()
        await settle()

    @property
    def transport(self) -> MemoryTransport:
        return self.transports[-1]

    def reports(self) -> list[int]:
        """Return the reports since the previous call."""
        return [offset for (offset,) in REPORT.iter_unpack(self.transport.drain())]

    def sends(self, offset: int, data: bytes = b"") -> None:
        """Let the master send one transfer."""
        protocol = cast("asyncio.BufferedProtocol", self.transport.protocol)
        stream = encode_header(offset, len(data)) + data
        while stream:
            buffer = memoryview(protocol.get_buffer(-1))
            count = min(len(stream), len(buffer))
            buffer[:count] = stream[:count]
            protocol.buffer_updated(count)
            stream = stream[count:]

    async def ends(self, error: Exception | None = None) -> None:
        """Let the master close the connection."""
        self.transport.protocol.connection_lost(error)
        await settle()

    async def passes(self, *milliseconds: int) -> None:
        """Let these times pass, one after the other."""
        for one in milliseconds:
            self.clock.advance_ms(one)
            await settle()


@pytest.fixture
async def line(
    monkeypatch: pytest.MonkeyPatch, slave: MessageStore, clock: ManualClock
) -> AsyncIterator[Line]:
    one = Line(monkeypatch, slave, clock)
    yield one
    await one.ha.shutdown()
    one.log.shutdown()


async def test_the_state_has_fields_from_before_and_after_connecting(
    line: Line, clock: ManualClock
) -> None:
    before = line.ha.state()
    assert (before.state, before.master_address, before.failures) == ("idle", MASTER, 0)
    assert (before.reported_offset, before.last_contact_seconds) == (-1, -1.0)
    assert (before.transferred_bytes, before.local_address, before.reason) == (0, "", "")

    await line.begins()
    state = line.ha.state()
    assert (state.state, state.reported_offset, state.local_address) == ("following", 0, "::1:4000")
    assert state.last_contact_seconds == -1.0, "the master has said nothing yet"
    assert line.requests == [MASTER_HOST]
    assert line.transport.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    line.sends(0)
    await line.passes(1_500)
    assert line.ha.state().last_contact_seconds == 1.5


async def test_a_slave_started_twice_follows_once_and_a_stopped_one_can_restart(
    line: Line,
) -> None:
    await line.ha.stop()
    await line.begins()
    await line.begins()
    assert len(line.transports) == 1
    line.ha.follow(MASTER)
    await settle()
    assert not line.transport.is_aborted

    await line.ha.stop()
    assert line.transport.is_aborted
    assert line.ha.state().state == "idle"

    await line.begins()
    assert len(line.transports) == 2
    assert line.reports() == [0]


async def test_after_a_stop_nothing_is_accepted(line: Line, master: MessageStore) -> None:
    put_bodies(master, 1)
    await line.begins()
    await line.ha.stop()

    line.sends(0, log_bytes(master))
    await line.passes(10_000)

    assert line.store.max_commit_log_offset == 0
    assert len(line.transports) == 1


async def test_pauses_double_from_half_a_second_up_to_five(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    await line.begins()
    for milliseconds in (500, 1_000, 2_000, 4_000, 5_000, 5_000):
        await line.ends()
        tries = len(line.requests)
        await line.passes(milliseconds - 1)
        assert (line.ha.state().state, len(line.requests)) == ("waiting", tries)
        await line.passes(1)
        assert (line.ha.state().state, len(line.requests)) == ("following", tries + 1)

    assert line.ha.state().failures == 6
    first = "count=1 reason=the master closed the connection"
    assert f"not following the master address={MASTER} {first}" in caplog.messages


async def test_a_master_that_sends_data_is_no_longer_a_failure(
    line: Line, master: MessageStore
) -> None:
    put_bodies(master, 1)
    data = log_bytes(master)
    await line.begins()
    await line.ends()
    await line.passes(500)
    line.sends(0)
    await line.passes(1_000)
    assert line.ha.state().failures == 1, "a heartbeat alone does not count"

    line.sends(0, data)
    await line.passes(1_000)

    assert line.ha.state().failures == 0
    assert line.ha.state().transferred_bytes == len(data)
    await line.ends()
    assert line.ha.state().transferred_bytes == len(data)
    assert line.ha.state().failures == 1


async def test_a_new_master_is_followed_without_the_pause_and_its_failure_is_the_first(
    line: Line,
) -> None:
    await line.begins()
    await line.ends()
    await line.passes(500)
    await line.ends()
    assert line.ha.state().failures == 2

    line.ha.follow("10.0.0.3:10912")
    await settle()

    assert line.requests[-1] == ("10.0.0.3", 10_912)
    assert (line.ha.state().state, line.ha.state().failures) == ("following", 0)
    # The previous master's pause ends nothing when its time comes.
    await line.passes(1_000)
    await line.ends()
    assert (line.ha.state().state, line.ha.state().failures) == ("waiting", 1)


async def test_a_late_connection_to_the_former_master_is_closed(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = asyncio.Event()

    async def connect(factory: Callable[[], Any], host: str, port: int, **_: object) -> None:
        if port == MASTER_HOST[1]:
            await made.wait()
        transport = MemoryTransport(factory(), ("10.0.0.2", 4_000))
        line.transports.append(transport)
        transport.protocol.connection_made(transport)

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", connect)
    await line.begins()
    assert line.ha.state().state == "connecting"
    line.ha.follow("10.0.0.3:7000")
    made.set()
    await settle()

    old, new = line.transports
    assert (old.is_aborted, old.drain()) == (True, b"")
    assert not new.is_aborted
    assert line.ha.state().state == "following"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "the master closed the connection"),
        (ConnectionResetError("reset by peer"), "reset by peer"),
    ],
)
async def test_the_reason_of_a_connections_end_is_reported(
    line: Line, error: Exception | None, reason: str
) -> None:
    await line.begins()

    await line.ends(error)

    assert line.ha.state().reason == reason


async def test_a_connection_that_ends_during_the_comparison_gets_no_report(
    line: Line,
) -> None:
    async def compare(_: str) -> None:
        line.transport.protocol.connection_lost(None)

    line.ha.before_transfer = compare

    await line.begins()

    assert line.ha.state().reason == "the master closed the connection"
    assert line.reports() == []


async def test_an_error_without_a_text_is_shown_by_its_name(line: Line) -> None:
    async def compare(_: str) -> None:
        raise OSError

    line.ha.before_transfer = compare

    await line.begins()

    assert line.ha.state().reason == "OSError"


@pytest.mark.parametrize(
    ("address", "requests"),
    [
        ("[2001:db8::1]:10912", ("2001:db8::1", 10_912)),
        ("X.example:7", ("X.example", 7)),
    ],
)
async def test_a_master_may_be_named_in_any_way(
    line: Line, address: str, requests: tuple[str, int]
) -> None:
    line.ha.follow(address)

    await line.begins()

    assert line.requests == [requests]


@pytest.mark.parametrize("address", ["", "garbage", "10.0.0.1:x", "10.0.0.1:0", "10.0.0.1:70000"])
async def test_an_invalid_address_is_reported_and_the_next_one_used(
    line: Line, address: str
) -> None:
    line.ha.follow(address or "nowhere")
    await line.begins()
    assert "is not an address of the form host:port" in line.ha.state().reason
    assert line.requests == []

    line.ha.follow(MASTER)
    await settle()

    assert line.ha.state().state == "following"


async def test_a_host_that_cannot_be_a_broker_receives_nothing(line: Line) -> None:
    line.peer = ("169.254.169.254", 10_912)
    line.ha.follow("master.example:10912")

    await line.begins()

    assert "169.254.169.254: its host is link-local" in line.ha.state().reason
    assert line.transport.drain() == b""
    assert line.transport.is_aborted


async def test_the_configured_address_may_be_any(
    monkeypatch: pytest.MonkeyPatch, slave: MessageStore, clock: ManualClock
) -> None:
    line = Line(monkeypatch, slave, clock, ha_master_address="169.254.1.1:10912")
    line.peer = ("169.254.1.1", 10_912)
    line.ha.follow("169.254.1.1:10912")

    await line.begins()
    state = line.ha.state().state
    await line.ha.shutdown()

    assert state == "following"


@pytest.mark.parametrize(
    "error", [OSError("refused"), UnicodeError("label too long")], ids=["system", "name"]
)
async def test_unreachable_brokers_are_retried(line: Line, error: Exception) -> None:
    line.error = error
    await line.begins()
    assert line.ha.state().reason == f"no connection: {error}"

    line.error = None
    await line.passes(500)

    assert line.ha.state().state == "following"


async def test_a_report_is_sent_when_there_is_more_and_heartbeats_are_not_answered(
    line: Line, master: MessageStore
) -> None:
    put_bodies(master, 2)
    data = log_bytes(master)
    await line.begins()
    assert line.reports() == [0]
    line.sends(0)
    assert line.reports() == []

    line.sends(0, data)
    assert line.reports() == [len(data)]
    line.sends(len(data))
    assert line.reports() == []


async def test_a_heartbeat_is_sent_one_interval_after_the_last_report(
    monkeypatch: pytest.MonkeyPatch,
    slave: MessageStore,
    master: MessageStore,
    clock: ManualClock,
) -> None:
    put_bodies(master, 1)
    data = log_bytes(master)
    line = Line(monkeypatch, slave, clock, ha_send_heartbeat_interval=10_000)
    await line.begins()
    assert line.reports() == [0]
    await line.passes(*[1_000] * 9)
    assert line.reports() == []
    await line.passes(1_000)
    assert line.reports() == [0]

    # It's checked each second, so the heartbeat is due 5 ms after a check.
    await line.passes(5)
    line.sends(0, data)
    assert line.reports() == [len(data)]
    await line.passes(995, *[1_000] * 9)
    assert line.reports() == []
    await line.passes(1_000)
    assert line.reports() == [len(data)]
    await line.ha.shutdown()


async def test_heartbeats_may_be_sent_more_often_than_once_a_second(
    monkeypatch: pytest.MonkeyPatch, slave: MessageStore, clock: ManualClock
) -> None:
    line = Line(monkeypatch, slave, clock, ha_send_heartbeat_interval=500)
    await line.begins()
    assert line.reports() == [0]

    counts = []
    for milliseconds in (499, 1, 499, 1):
        await line.passes(milliseconds)
        counts.append(len(line.reports()))

    assert counts == [0, 1, 0, 1]
    await line.ha.shutdown()


async def test_a_silent_master_is_dropped_after_the_housekeeping_interval_and_not_before(
    line: Line,
) -> None:
    await line.begins()
    await line.passes(*[1_000] * 20)
    assert line.ha.state().state == "following", "20 s are not more than 20 s"
    await line.passes(10)
    line.sends(0)
    # Checks run each second: the last one in time finds 19.99 s.
    await line.passes(990, *[1_000] * 19)
    assert line.ha.state().state == "following"

    await line.passes(1_000)

    assert line.ha.state().reason == ("the master sent nothing for 20 s (haHousekeepingInterval)")
    assert line.transport.is_aborted


@pytest.mark.parametrize("mode", ["received", "flushed"])
async def test_data_is_flushed_before_it_is_reported_only_in_flushed_mode(
    monkeypatch: pytest.MonkeyPatch,
    slave: MessageStore,
    master: MessageStore,
    clock: ManualClock,
    slave_disk: FaultyStorage,
    mode: str,
) -> None:
    put_bodies(master, 1)
    slave.files.log.append_data(memoryview(log_bytes(master)))
    slave.replay.advance()
    slave_disk.fail("fdatasync")
    line = Line(monkeypatch, slave, clock, ha_ack_mode=mode)

    await line.begins()

    if mode == "received":
        assert line.reports() == [slave.max_commit_log_offset]
    else:
        await until_async(lambda: line.ha.state().state == "waiting", "the flush to fail")
        assert line.reports() == []
        assert line.ha.state().reason == (
            "the broker can't write to its disk; see its log, then restart it"
        )
    await line.ha.shutdown()
