"""A broker returns to its size when its clients leave, and survives a lack of descriptors."""

from __future__ import annotations

import json
import resource
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until
from tools.soak.levels import DESCRIPTORS, MEMORY, MIB, STORE_FILES, process_usage

pytestmark = pytest.mark.fault

TOPIC, GROUP = "level", "level-group"
HEART_BEAT = 34
NO_FILE, SERVICE_NOT_AVAILABLE = 1, 14
WARM_UP, CYCLES = 200, 1_000
GROWTH_MAX = 1.05
SUSPENDED = "2"
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
NOTICE_BYTES_MIN = 50
SPARE_DESCRIPTORS = 12
CROWD = 64
LOG_BYTES = 1 << 20
BODY = b"x" * 40_000
SENDS_OVER_THE_END = 60
SECONDS_MAX = 120.0
TRACE_WATCH = 30001
ROUNDS = 5
SENDS_OF_A_ROUND = 55_000
"""A watch stores 20,000 events, 10,000 deliveries, and the store times of 50,000 messages."""
SENDS_AT_ONCE = 1_000
WATCHED_MIB_MAX = 96
"""Measured on 2026-11-26: 74 with all of these full."""
LAST_ROUNDS_MIB_MAX = 12
"""The tables are full after three rounds. Two more rounds added 5 MiB while the allocator settled
(2026-11-28). A leak of 110 bytes per message exceeds this."""


class Size(NamedTuple):
    """A process's resources."""

    descriptors: int
    threads: int
    mappings: int
    resident_kb: int


LATE = Size(descriptors=8, threads=8, mappings=40, resident_kb=0)
"""Threads that start with their first work, some seconds after the start. A leak in any of CYCLES
would be a hundred times that.
"""


def size_of(pid: int) -> Size:
    process = Path("/proc") / str(pid)
    status = dict(
        line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line
    )
    return Size(
        len(list((process / "fd").iterdir())),
        int(status["Threads"]),
        len((process / "maps").read_text().splitlines()),
        int(status["VmRSS"].split()[0]),
    )


def heartbeat(client_id: str) -> bytes:
    """Return a member's heartbeat, which makes the broker ask the other members to rebalance."""
    subscription = {"topic": TOPIC, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    return json.dumps(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": f"{GROUP}-producers"}],
            "consumerDataSet": [
                {
                    "groupName": GROUP,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "subscriptionDataSet": [subscription],
                    "unitMode": False,
                }
            ],
        }
    ).encode()


class ReaderThread(threading.Thread):
    """Reads the broker's messages to the member that stays: its answer, and notifications."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(daemon=True)
        self.size = 0
        self._connection = connection

    def run(self) -> None:
        # A reset at the end is fine: the broker may write while the test closes.
        with suppress(ConnectionResetError):
            while data := self._connection.recv(1 << 16):
                self.size += len(data)


def come_and_go(port: int, number: int) -> None:
    """Join the group, send, wait for a message, and be killed: the kernel resets the connection."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        pull = {
            **raw_remoting.pull_fields(TOPIC, 1, 0),
            "consumerGroup": GROUP,
            "sysFlag": SUSPENDED,
            "suspendTimeoutMillis": "60000",
        }
        connection.sendall(
            raw_remoting.request(HEART_BEAT, {}, heartbeat(f"member-{number}"), opaque=1)
            + raw_remoting.request(raw_remoting.PULL_MESSAGE, pull, opaque=2)
            + raw_remoting.request(
                raw_remoting.SEND_MESSAGE,
                raw_remoting.send_fields(TOPIC, queue_id=0),
                b"one",
                opaque=3,
            )
        )
        assert connection.recv(1)


def test_a_broker_does_not_grow_after_a_thousand_clients_have_come_and_gone(
    broker_process: BrokerProcess,
) -> None:
    broker = broker_process
    raw_remoting.create_topic(broker.port, TOPIC, queues=2)
    with socket.create_connection(("127.0.0.1", broker.port)) as stays:
        stays.sendall(raw_remoting.request(HEART_BEAT, {}, heartbeat("stays")))
        report = ReaderThread(stays)
        report.start()
        for number in range(WARM_UP):
            come_and_go(broker.port, number)
        before = size_of(broker.pid)
        for number in range(CYCLES):
            come_and_go(broker.port, number)

        def is_level() -> bool:
            now = size_of(broker.pid)
            return all(
                new <= max(old * GROWTH_MAX, old + late)
                for new, old, late in zip(now, before, LATE, strict=True)
            )

        until(is_level, f"the broker to return to its former size: {before}", seconds=SECONDS_MAX)
        stays.shutdown(socket.SHUT_RDWR)
        report.join(SECONDS_MAX)
    assert report.size > (WARM_UP + CYCLES) * NOTICE_BYTES_MIN


def test_without_descriptors_a_broker_serves_existing_clients_and_recovers_automatically(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path, mappedFileSizeCommitLog=LOG_BYTES)
    broker.start()
    pid = broker.pid
    fields = raw_remoting.send_fields(TOPIC)
    try:
        raw_remoting.create_topic(broker.port, TOPIC, queues=1)
        with RawClient(broker.port) as client:
            assert client.ask(raw_remoting.SEND_MESSAGE, fields, b"before").code == 0
            soft = size_of(pid).descriptors + SPARE_DESCRIPTORS
            _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
            crowd = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(CROWD)]
            until(
                lambda: size_of(pid).descriptors >= soft,
                "all descriptors to be used",
                seconds=SECONDS_MAX,
            )
            codes = {
                client.ask(raw_remoting.SEND_MESSAGE, fields, BODY).code
                for _ in range(SENDS_OVER_THE_END)
            }
            assert codes <= {raw_remoting.SUCCESS, NO_FILE, SERVICE_NOT_AVAILABLE}
            pull = raw_remoting.pull_fields(TOPIC, 0, 0)
            assert client.ask(raw_remoting.PULL_MESSAGE, pull).code == raw_remoting.SUCCESS
            for one in crowd:
                one.close()

            def takes_messages() -> bool:
                with RawClient(broker.port) as another:
                    return another.ask(raw_remoting.SEND_MESSAGE, fields, BODY).code == 0

            until(takes_messages, "messages to be accepted again", seconds=SECONDS_MAX)
        assert broker.pid == pid
        assert broker.is_running
        assert broker.stop() == 0
    finally:
        broker.kill()


def test_a_watched_broker_uses_no_more_memory_for_unacknowledged_messages(
    broker_process: BrokerProcess,
) -> None:
    """More messages arrive than the watch can store, once each of its tables is full."""
    broker = broker_process
    raw_remoting.create_topic(broker.port, TOPIC, queues=1)
    one = raw_remoting.request(raw_remoting.SEND_MESSAGE, raw_remoting.send_fields(TOPIC), b"one")
    with (
        socket.create_connection(("127.0.0.1", broker.port)) as watcher,
        RawClient(broker.port) as client,
    ):
        seen = [process_usage(broker.store, broker.pid)]
        watcher.sendall(raw_remoting.request(TRACE_WATCH, {}, b"{}"))
        report = ReaderThread(watcher)
        report.start()
        until(lambda: report.size > 0, "the watch to begin", seconds=SECONDS_MAX)
        offset = 0
        for _ in range(ROUNDS):
            for _ in range(SENDS_OF_A_ROUND // SENDS_AT_ONCE):
                client.send_bytes(one * SENDS_AT_ONCE)
                client.read_successes(SENDS_AT_ONCE)
            while offset < SENDS_OF_A_ROUND * len(seen):
                fields = raw_remoting.pull_fields(TOPIC, 0, offset)
                answer = client.ask(raw_remoting.PULL_MESSAGE, fields)
                offset = int(answer.fields["nextBeginOffset"])
            seen.append(process_usage(broker.store, broker.pid))
        watcher.shutdown(socket.SHUT_RDWR)
        report.join(SECONDS_MAX)
    before, _, _, third, _, fifth = (one[MEMORY] / MIB for one in seen)
    assert report.size > offset * NOTICE_BYTES_MIN
    assert fifth - before < WATCHED_MIB_MAX
    assert fifth - third < LAST_ROUNDS_MIB_MAX


def test_a_broker_holds_one_descriptor_per_log_file_and_no_others(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, mappedFileSizeCommitLog=LOG_BYTES)
    broker.start()
    try:
        with RawClient(broker.port) as client:
            fields = raw_remoting.send_fields(TOPIC)
            for _ in range(SENDS_OVER_THE_END):
                assert client.ask(raw_remoting.SEND_MESSAGE, fields, BODY).code == 0
            before = process_usage(broker.store, broker.pid)
            for _ in range(10 * SENDS_OVER_THE_END):
                assert client.ask(raw_remoting.SEND_MESSAGE, fields, BODY).code == 0
            after = process_usage(broker.store, broker.pid)
        files = len(list((broker.store / "commitlog").iterdir()))
    finally:
        broker.stop()
    assert before[STORE_FILES] < files <= after[STORE_FILES]
    assert after[DESCRIPTORS] == before[DESCRIPTORS]
