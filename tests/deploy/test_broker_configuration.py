"""The broker's messages about configuration and files that it rejects."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import raw_remoting
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.raw_remoting import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def sentences(broker: BrokerProcess) -> list[str]:
    """Return its output without the lines of a normal start."""
    return [line for line in broker.words().splitlines() if " INFO " not in line]


def run_broker(broker: BrokerProcess) -> int:
    """Start a broker that is expected to refuse; return its exit code."""
    broker.launch()
    return broker.wait()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


@pytest.mark.parametrize("key", ["listenPort", "namesrvListenPort"])
def test_a_port_in_use_is_named_in_one_sentence(tmp_path: Path, taken_port: int, key: str) -> None:
    broker = BrokerProcess(tmp_path, **{key: taken_port})

    code = run_broker(broker)

    assert code != 0
    assert len(sentences(broker)) == 1
    assert str(taken_port) in sentences(broker)[0]
    assert "Traceback" not in broker.words()


def test_a_store_in_use_by_another_process_is_rejected(
    tmp_path: Path, broker_process: BrokerProcess
) -> None:
    second = BrokerProcess(tmp_path / "second", storePathRootDir=broker_process.store)

    code = run_broker(second)

    assert code != 0
    assert len(sentences(second)) == 1
    assert str(broker_process.store) in sentences(second)[0]
    assert broker_process.is_running


@pytest.mark.parametrize("file_name", ["topics.json", "subscriptionGroup.json"])
@pytest.mark.parametrize("damage", ["half", "empty", "garbage"])
def test_a_damaged_document_is_read_from_its_backup(
    tmp_path: Path, file_name: str, damage: str
) -> None:
    broker = BrokerProcess(tmp_path, autoCreateTopicEnable="false")
    broker.start()
    raw_remoting.create_topic(broker.port, "kept")
    raw_remoting.create_topic(broker.port, "created-last")
    with RawClient(broker.port) as client:
        for group in ("group-1", "group-2"):
            fields = f'{{"groupName":"{group}","consumeEnable":true,"retryQueueNums":1}}'
            assert client.ask(200, body=fields.encode()).code == raw_remoting.SUCCESS
    assert broker.stop() == 0
    document = broker.store / "config" / file_name
    text = document.read_bytes()
    document.write_bytes(
        {"half": text[: len(text) // 2], "empty": b"", "garbage": b"\0\xff{"}[damage]
    )

    broker.start()

    report = [line for line in sentences(broker) if file_name in line]
    assert len(report) == 1
    assert ".bak" in report[0]
    with RawClient(broker.port) as client:
        kept = client.ask(raw_remoting.SEND_MESSAGE, raw_remoting.send_fields("kept"), b"x")
    assert kept.code == raw_remoting.SUCCESS
    assert broker.stop() == 0


def test_the_start_logs_settings_that_differ_from_the_defaults_but_no_secret(
    tmp_path: Path,
) -> None:
    keys: dict[str, object] = {
        "maxMessageSize": 1000,
        "tls.server.keyPassword": "hunter2",
        "sendMessageThreadPoolNums": 9,
        "logLevel.broker_core.store": "ERROR",
    }
    broker = BrokerProcess(tmp_path, **keys)
    broker.start()
    assert broker.stop() == 0

    words = broker.words()
    assert "INFO broker_core - configuration: maxMessageSize=1000\n" in words
    assert "configuration: tls.server.keyPassword=******\n" in words
    assert "hunter2" not in words
    assert "configuration keys without effect keys=sendMessageThreadPoolNums=9\n" in words
    assert "flushDiskType" not in words
    # The store's own lines are below its configured level.
    assert "broker_core.store" not in words.replace("logLevel.broker_core.store", "")


def test_at_debug_the_start_logs_the_whole_configuration(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, logLevel="DEBUG")
    broker.start()
    assert broker.stop() == 0

    assert "DEBUG broker_core - configuration: flushDiskType=ASYNC_FLUSH\n" in broker.words()


def test_an_unknown_key_is_one_warning_with_the_nearest_known_key(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, flushDiskTipe="SYNC_FLUSH")
    broker.start()

    report = [line for line in broker.words().splitlines() if "flushDiskTipe" in line]

    assert len(report) == 1
    assert "flushDiskType" in report[0]
    assert "WARN" in report[0]
    assert broker.stop() == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("flushDiskType", "SOMETIMES"),
        ("listenPort", "none"),
        ("maxMessageSize", "-1"),
        ("namesrvAddr", "localhost"),
        ("namesrvAddr", "127.0.0.1:99999"),
        ("bindAddress", "not-an-address"),
    ],
)
def test_an_invalid_value_exits_with_2_before_any_port_opens(
    tmp_path: Path, key: str, value: str
) -> None:
    broker = BrokerProcess(tmp_path, **{key: value})

    code = run_broker(broker)

    assert code == 2
    assert len(sentences(broker)) == 1
    assert key in sentences(broker)[0]
    assert value in sentences(broker)[0]
    assert not broker.store.exists()


def test_a_missing_file_exits_with_2(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "broker_core", "-c", str(tmp_path / "none.conf")],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "none.conf" in done.stderr
