"""A backup during sends: it has every message acknowledged before, once."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from broker_core.config.properties import replace_values
from broker_core.protocol.codes import RequestCode
from broker_core.verify.verifier import verify
from deploy.archive import manifest as backup_manifest
from tests.support import backups, raw_remoting
from tests.support.appliance import Appliance, Visitor
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient, pull_fields
from tests.support.waiting import until
from tools.faults.broker_kill import QUEUES, TOPIC, Sender

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.fault

GROUP = "reader"
SECONDS = 120.0
MESSAGES_BEFORE = 500
LOG_FILE_BYTES = 4 << 20
STATE = """
import json
from django.contrib.auth import get_user_model
from django_celery_beat.models import PeriodicTask
from console.people.audit.models import Entry
print(json.dumps({
    "accounts": sorted(get_user_model().objects.values_list("username", flat=True)),
    "schedules": sorted(PeriodicTask.objects.values_list("name", flat=True)),
    "entries": Entry.objects.count(),
}))
"""


class Committer(threading.Thread):
    """Commits the sender's acknowledged messages as consumed, until the connection breaks."""

    def __init__(self, port: int, sender: Sender, queue_id: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._sender = sender
        self._queue_id = queue_id

    def run(self) -> None:
        try:
            with RawClient(self._port) as client:
                while True:
                    offset = max(self._sender.acknowledged, default=-1) + 1
                    fields = {
                        "consumerGroup": GROUP,
                        "topic": TOPIC,
                        "queueId": str(self._queue_id),
                        "commitOffset": str(offset),
                    }
                    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        except (OSError, RuntimeError):
            return  # the dictionary grew meanwhile, or the broker is down


def loaded(port: int) -> list[Sender]:
    """Start to send to each queue of a broker, and wait until there is data to copy."""
    raw_remoting.create_topic(port, TOPIC, queues=QUEUES)
    senders = [Sender(port, f"q{queue}", queue) for queue in range(QUEUES)]
    for sender in senders:
        sender.start()
    until(
        lambda: min(len(one.acknowledged) for one in senders) >= MESSAGES_BEFORE,
        "messages to be sent",
        seconds=SECONDS,
    )
    return senders


def promised(
    senders: list[Sender], before: list[dict[int, bytes]], to_offset: int
) -> list[dict[int, bytes]]:
    """Return the messages that a backup must have, by queue and queue_offset.

    These were acknowledged before it began, or are before the position that it states.
    """
    found = []
    for sender, early in zip(senders, before, strict=True):
        late = {
            queue_offset: body
            for queue_offset, body in sender.acknowledged.items()
            if sender.commit_log_offsets[queue_offset] < to_offset
        }
        assert early.keys() <= late.keys(), "acknowledged before, and behind the stated position"
        found.append(late)
    return found


def assert_holds(port: int, senders: list[Sender], expected: list[dict[int, bytes]]) -> None:
    """Compare a restored broker's messages with the promised ones."""
    for queue_id, sender in enumerate(senders):
        stored = raw_remoting.read_queue(port, TOPIC, queue_id)
        assert [one.queue_offset for one in stored] == list(range(len(stored)))
        bodies = [one.body for one in stored]
        assert len(set(bodies)) == len(bodies)
        assert set(bodies) <= sender.attempted
        assert expected[queue_id].items() <= dict(enumerate(bodies)).items()
        assert committed(port, queue_id) <= len(stored)


def committed(port: int, queue_id: int) -> int:
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
    with RawClient(port) as client:
        answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return int(answer.fields["offset"]) if answer.code == raw_remoting.SUCCESS else 0


def readable(port: int) -> int:
    """Return how many messages a broker has, or -1 without the topic."""
    count = 0
    with RawClient(port) as client:
        for queue_id in range(QUEUES):
            fields = {"topic": TOPIC, "queueId": str(queue_id)}
            answer = client.ask(RequestCode.PULL_MESSAGE, pull_fields(TOPIC, queue_id, 0))
            if answer.code != raw_remoting.SUCCESS:
                return -1
            count += int(client.ask(RequestCode.GET_MAX_OFFSET, fields).fields["offset"])
    return count


def ranges(target: Path) -> Mapping[str, int]:
    """Return the end of each broker's log in a backup."""
    manifest = backup_manifest.decode((target / backup_manifest.NAME).read_bytes())
    return {one.process: one.to_offset for one in manifest.brokers}


def backed_up(data: Path, target: Path, *more: str | Path) -> None:
    done = backups.run("backup", target, "--data", data, *more)
    assert done.returncode == 0, done.stderr


def restored_from(target: Path, data: Path) -> None:
    verified = backups.run("backup", "--verify", target)
    assert verified.returncode == 0, verified.stderr
    done = backups.run("restore", target, "--data", data)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_broker_is_backed_up_while_it_receives_sends(
    tmp_path: Path, flush_disk_type: str
) -> None:
    keys = {"flushDiskType": flush_disk_type, "mappedFileSizeCommitLog": LOG_FILE_BYTES}
    broker = BrokerProcess(tmp_path / "data", flushConsumerOffsetInterval=100, **keys)
    target, restored = tmp_path / "backup", tmp_path / "restored"
    broker.start()
    try:
        senders = loaded(broker.port)
        for queue_id, sender in enumerate(senders):
            Committer(broker.port, sender, queue_id).start()
        before = [dict(sender.acknowledged) for sender in senders]
        backed_up(broker.directory, target)
        # Sends continued: all answers were acknowledgements.
        behind = [len(sender.acknowledged) for sender in senders]
        until(
            lambda: all(
                len(one.acknowledged) > count for one, count in zip(senders, behind, strict=True)
            ),
            "sends to go on behind the backup",
            seconds=SECONDS,
        )
        broker.kill()
        for sender in senders:
            sender.join(SECONDS)
        assert [sender.refused for sender in senders] == [[]] * QUEUES
        restored_from(target, restored)

        broker.file, broker.store = restored / "broker.conf", restored / "store"
        broker.start()
        assert_holds(broker.port, senders, promised(senders, before, ranges(target)["broker"]))
        assert broker.stop() == 0
        assert verify(broker.store).problems == []
    finally:
        broker.kill()


def test_a_master_and_its_slave_are_restored_as_a_pair(tmp_path: Path) -> None:
    data, target, restored = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    master = BrokerProcess(data, mappedFileSizeCommitLog=LOG_FILE_BYTES)
    slave = BrokerProcess(
        data / "slave",
        brokerRole="SLAVE",
        brokerId=1,
        haMasterAddress=f"127.0.0.1:{master.port + 1}",
        namesrvAddr=master.namesrv,
        embeddedNamesrv="false",
        mappedFileSizeCommitLog=LOG_FILE_BYTES,
    )
    try:
        master.start()
        slave.start()
        senders = loaded(master.port)
        before = [dict(sender.acknowledged) for sender in senders]
        backed_up(data, target)
        master.kill()
        slave.kill()
        for sender in senders:
            sender.join(SECONDS)
        ends = ranges(target)
        assert 0 < ends["slave"] <= ends["broker"]
        restored_from(target, restored)

        master.file, slave.file = restored / "broker.conf", restored / "slave" / "broker.conf"
        moved = {"storePathRootDir": str(restored / "slave" / "store")}
        slave.file.write_text(replace_values(slave.file.read_text(), moved))
        master.start()
        slave.start()
        expected = promised(senders, before, ends["broker"])
        assert_holds(master.port, senders, expected)
        length = readable(master.port)
        until(
            lambda: readable(slave.port) == length,
            "the slave to follow its master again",
            seconds=SECONDS,
        )
        assert_holds(slave.port, senders, expected)
        assert not (restored / "slave" / "store" / "diverged").exists()
    finally:
        slave.kill()
        master.kill()


def test_a_whole_appliance_is_backed_up_while_it_serves(tmp_path: Path) -> None:
    first = Appliance(tmp_path / "first")
    target, restored = tmp_path / "backup.tar.zst", tmp_path / "second" / "data"
    first.start()
    try:
        visitor = Visitor(first.url)
        visitor.sign_in()
        first.in_django(
            "from django.core.management import call_command;"
            "from django_celery_beat.models import IntervalSchedule, PeriodicTask;"
            "call_command('add_account', 'grace', '--operator');"
            "every, _ = IntervalSchedule.objects.get_or_create(every=1, period='days');"
            "PeriodicTask.objects.create(name='of a test', task='nobody.runs', interval=every,"
            " enabled=False)"
        )
        state = json.loads(first.in_django(STATE))
        assert {"admin", "grace"} <= set(state["accounts"])
        assert "of a test" in state["schedules"]
        assert state["entries"] > 0
        senders = loaded(first.port)
        before = [dict(sender.acknowledged) for sender in senders]
        backed_up(first.data, target, "-c", first.file)
        visitor.read("/")
        assert first.stop() == 0
        for sender in senders:
            sender.join(SECONDS)
        restored_from(target, restored)

        second = Appliance(tmp_path / "second")
        second.file = restored / "broker.conf"
        second.start()
        try:
            expected = [dict(early) for early in before]
            assert_holds(first.port, senders, expected)
            again = json.loads(second.in_django(STATE))
            assert again["accounts"] == state["accounts"]
            assert again["schedules"] == state["schedules"]
            assert again["entries"] >= state["entries"]
            text = second.in_django(
                "from django.core.management import call_command;call_command('audit', 'verify')"
            )
            assert text
            Visitor(second.url).sign_in()
            assert second.stop() == 0
        finally:
            second.stop()
    finally:
        first.stop()
