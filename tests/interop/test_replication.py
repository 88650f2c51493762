"""Our slave under a real master 4.9.7, and a real slave under ours."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from tests.conftest import require_java
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.log_end import log_end, until_caught_up
from tests.support.peer import Peer
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

VERSION = "4.9.7"
TOPIC = "replicated"
QUEUES = 4
LOG_BYTES = 1 << 18
CAUGHT_UP_SECONDS = 120.0
DOCUMENTS = ("topics", "subscriptionGroup", "consumerOffset", "delayOffset")
OK, NO_SLAVE = 0, 11
KEYS = {
    # Small files, so that there are several of each kind.
    "mappedFileSizeCommitLog": LOG_BYTES,
    "mappedFileSizeConsumeQueue": 2_000,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 5_000,
    "brokerIP1": "127.0.0.1",
}
MASTER = {**KEYS, "brokerRole": "SYNC_MASTER"}
SLAVE = {**KEYS, "brokerRole": "SLAVE", "brokerId": 1}


@contextmanager
def ours(broker: BrokerProcess) -> Iterator[None]:
    broker.start()
    try:
        yield
    finally:
        assert broker.stop() == 0, broker.words()


def send(port: int, numbers: range) -> set[int]:
    """Send messages, one of each kind; return the codes of their answers."""
    codes = set()
    with RawClient(port) as client:
        for number in numbers:
            pairs = {"UNIQ_KEY": f"U{number:08d}", "KEYS": f"k{number} all"}
            if number % 3:
                pairs["TAGS"] = f"tag{number % 5}"
            answer = client.ask(
                raw_remoting.SEND_MESSAGE,
                {
                    "producerGroup": "pg",
                    "topic": TOPIC,
                    "defaultTopic": "TBW102",
                    "defaultTopicQueueNums": str(QUEUES),
                    "queueId": str(number % QUEUES),
                    "sysFlag": "0",
                    "bornTimestamp": "1",
                    "flag": "0",
                    "properties": "\x02".join(f"{key}\x01{pairs[key]}" for key in pairs),
                },
                b"%08d" % number * (1 + number % 90),
            )
            codes.add(answer.code)
    return codes


def log_of(store: Path, offset_from: int, offset_to: int) -> str:
    """Return the SHA-256 of a range of a log."""
    digest = hashlib.sha256()
    while offset_from < offset_to:
        position = offset_from % LOG_BYTES
        file = store / "commitlog" / f"{offset_from - position:020d}"
        end = min(LOG_BYTES, position + offset_to - offset_from)
        digest.update(file.read_bytes()[position:end])
        offset_from += end - position
    return digest.hexdigest()


def leave_metadata(port: int, number: int) -> None:
    """Have a master create a topic and a group, store an offset, and deliver a delayed message."""
    raw_remoting.create_topic(port, f"made-{number}")
    delayed = raw_remoting.send_fields(f"made-{number}", properties="DELAY\x011")
    committed = {
        "consumerGroup": f"group-{number}",
        "topic": TOPIC,
        "queueId": "1",
        "commitOffset": str(10 + number),
    }
    group = json.dumps({"groupName": f"group-{number}", "retryMaxTimes": number}).encode()
    with RawClient(port) as client:
        for code, fields, body in (
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group),
            (RequestCode.UPDATE_CONSUMER_OFFSET, committed, b""),
            (raw_remoting.SEND_MESSAGE, delayed, b"late"),
        ):
            assert client.ask(code, fields, body).code in {OK, NO_SLAVE}


def documents_of(store: Path) -> dict[str, Any]:
    """Return the contents of the configuration files; RocketMQ writes them in place."""
    found = {}
    for name in DOCUMENTS:
        file = store / "config" / f"{name}.json"
        try:
            found[name] = java_json.decode(file.read_bytes())
        except (OSError, ValueError):
            return {}
    return found


def until_same_documents(master: Path, slave: Path, number: int) -> None:
    """Wait until both ends' files are equal, including the latest changes."""

    def are_same() -> bool:
        there, here = documents_of(master), documents_of(slave)
        return (
            bool(there)
            and here == there
            and f"made-{number}" in there["topics"]["topicConfigTable"]
            and f"group-{number}" in there["subscriptionGroup"]["subscriptionGroupTable"]
            and f"{TOPIC}@group-{number}" in there["consumerOffset"]["offsetTable"]
            and there["delayOffset"]["offsetTable"] == {"1": number + 1}
        )

    try:
        until(are_same, "the slave's files to equal its master's", seconds=CAUGHT_UP_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{documents_of(master)}\n{documents_of(slave)}") from None


def first_offset(store: Path) -> int:
    return int(min((store / "commitlog").iterdir()).name)


def units_of(store: Path) -> dict[str, bytes]:
    """Return the written part of each ConsumeQueue file, by its path."""
    found = {}
    for file in sorted((store / "consumequeue" / TOPIC).glob("*/0*")):
        data = file.read_bytes().rstrip(b"\0")
        # The tags code of a message without tags is 0.
        data += bytes(-len(data) % 20)
        if data:
            found[file.relative_to(store).as_posix()] = data
    return found


def assert_same(master: Path, slave: Path, end: int) -> None:
    begin = first_offset(slave)
    assert begin > first_offset(master), "an empty slave begins at the master's last file"
    assert log_of(slave, begin, end) == log_of(master, begin, end)
    there, here = units_of(master), units_of(slave)
    assert here.keys() <= there.keys()
    filler = (0).to_bytes(8, "big") + b"\x7f\xff\xff\xff" + bytes(8)
    for place, units in here.items():
        kept = units
        while kept.startswith(filler):
            kept = kept[len(filler) :]
        assert there[place].endswith(kept), place
        assert len(units) == len(there[place]), place
    assert sum(map(len, here.values())) > 20 * 500


def test_our_slave_follows_a_real_master(tmp_path: Path) -> None:
    require_java()
    master = Peer(VERSION, tmp_path / "master", **MASTER)
    master.ends_in_order = True
    keys = {
        **SLAVE,
        "namesrvAddr": master.namesrv,
        "haMasterAddress": f"127.0.0.1:{master.port + 1}",
        "haListenPort": 0,
    }
    slave = BrokerProcess(tmp_path / "slave", **keys)
    with master:
        assert send(master.port, range(900)) <= {OK, NO_SLAVE}
        with ours(slave):
            until_caught_up(master.port, slave.port)
            assert send(master.port, range(900, 1300)) == {OK}
        assert NO_SLAVE in send(master.port, range(1300, 1400))
        leave_metadata(master.port, 0)
        with ours(slave):
            until_caught_up(master.port, slave.port)
            until_same_documents(master.store, slave.store, 0)
            assert send(master.port, range(1400, 1500)) == {OK}
            master.__exit__(None, None, None)
            with master:
                until(
                    lambda: send(master.port, range(1500, 1510)) == {OK},
                    "the slave to follow the restarted master",
                    seconds=CAUGHT_UP_SECONDS,
                )
                assert send(master.port, range(1510, 1800)) == {OK}
                leave_metadata(master.port, 1)
                until_same_documents(master.store, slave.store, 1)
                until_caught_up(master.port, slave.port)
                end = log_end(slave.port)
    assert_same(master.store, slave.store, end)
    assert " ERROR " not in slave.words()


def test_a_real_slave_follows_our_master(tmp_path: Path) -> None:
    require_java()
    master = BrokerProcess(tmp_path / "master", **MASTER)
    keys = {
        **SLAVE,
        "namesrvAddr": master.namesrv,
        "haMasterAddress": f"127.0.0.1:{master.port + 1}",
    }
    slave = Peer(VERSION, tmp_path / "slave", **keys)
    slave.ends_in_order = True
    master.start()
    try:
        assert send(master.port, range(900)) == {NO_SLAVE}
        with slave:
            until_caught_up(master.port, slave.port)
            assert send(master.port, range(900, 1300)) == {OK}
        assert NO_SLAVE in send(master.port, range(1300, 1400))
        leave_metadata(master.port, 0)
        with slave:
            until_caught_up(master.port, slave.port)
            until_same_documents(master.store, slave.store, 0)
            assert send(master.port, range(1400, 1500)) == {OK}
            assert master.stop() == 0
            master.start()
            until(
                lambda: send(master.port, range(1500, 1510)) == {OK},
                "the slave to follow the restarted master",
                seconds=CAUGHT_UP_SECONDS,
            )
            assert send(master.port, range(1510, 1800)) == {OK}
            leave_metadata(master.port, 1)
            until_same_documents(master.store, slave.store, 1)
            until_caught_up(master.port, slave.port)
            end = log_end(slave.port)
    finally:
        assert master.stop() == 0
    assert_same(master.store, slave.store, end)
