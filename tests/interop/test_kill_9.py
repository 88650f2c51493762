"""The broker is killed during sends."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.java_clients import JavaClients

TOPIC = "killed"
QUEUES = 4
SENDERS = 4
WINDOW = 16
ROUNDS = 3


class Sender(threading.Thread):
    """Sends numbered messages over one connection, WINDOW unanswered at a time, until it breaks."""

    def __init__(self, port: int, name: str, queue_id: int) -> None:
        super().__init__(name=name, daemon=True)
        self._port = port
        self._queue_id = queue_id
        self.acknowledged: dict[bytes, int] = {}
        """Body to the queue_offset in the broker's answer."""
        self.refused: list[raw_remoting.Answer] = []

    def run(self) -> None:
        fields = raw_remoting.send_fields(TOPIC, queue_id=self._queue_id)
        waiting: dict[int, bytes] = {}
        try:
            with RawClient(self._port) as client:
                number = 0
                while True:
                    body = f"{self.name}-{number}".encode().ljust(500, b".")
                    waiting[client.send_request(raw_remoting.SEND_MESSAGE, fields, body)] = body
                    number += 1
                    if len(waiting) < WINDOW:
                        continue
                    answer = client.read_answer()
                    sent = waiting.pop(answer.opaque)
                    if answer.code == raw_remoting.SUCCESS:
                        self.acknowledged[sent] = int(answer.fields["queueOffset"])
                    else:
                        self.refused.append(answer)
        except OSError:
            return


def wait_for_acknowledgements(senders: Sequence[Sender], enough: int) -> None:
    until(
        lambda: sum(len(one.acknowledged) for one in senders) >= enough,
        f"{enough} messages to be acknowledged",
    )


@pytest.mark.fault
@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_every_acknowledged_message_survives_kill_9(
    tmp_path: Path, rng: random.Random, flush_disk_type: str
) -> None:
    broker = BrokerProcess(tmp_path, flushDiskType=flush_disk_type, mappedFileSizeCommitLog=4 << 20)
    promised: list[dict[bytes, int]] = [{} for _ in range(QUEUES)]
    try:
        for round_number in range(ROUNDS):
            broker.start()
            raw_remoting.create_topic(broker.port, TOPIC, queues=QUEUES)
            senders = [
                Sender(broker.port, f"round-{round_number}-sender-{index}", index)
                for index in range(SENDERS)
            ]
            for sender in senders:
                sender.start()
            # Somewhere in the middle, at a different point each time.
            wait_for_acknowledgements(senders, rng.randrange(300, 3_000))
            broker.kill()
            for index, sender in enumerate(senders):
                sender.join(30)
                assert not sender.is_alive()
                assert sender.refused == []
                promised[index] |= sender.acknowledged

            broker.start()
            for queue_id, expected in enumerate(promised):
                stored = raw_remoting.read_queue(broker.port, TOPIC, queue_id)
                # No gaps, no duplicates, and each at its promised offset.
                assert [record.queue_offset for record in stored] == list(range(len(stored)))
                found = {record.body: record.queue_offset for record in stored}
                assert len(found) == len(stored)
                assert expected.items() <= found.items()
            assert broker.stop() == 0
    finally:
        broker.kill()


@pytest.mark.fault
@pytest.mark.interop
def test_a_java_consumer_finds_every_acknowledged_message_after_kill_9(
    tmp_path: Path, java_4: JavaClients
) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        raw_remoting.create_topic(broker.port, TOPIC, queues=QUEUES)
        arguments = (broker.namesrv, TOPIC, "killed-producer", "sync", 100_000, "A,B", "k")
        sender = java_4.start("SendMessages", *arguments)
        assert sender.stdout is not None
        acknowledged = [sender.stdout.readline() for _ in range(500)]
        broker.kill()
        rest, _ = sender.communicate(timeout=300)
        acknowledged += rest.splitlines()
        keys = {line.split()[1] for line in acknowledged if line.startswith("sent ")}
        assert len(keys) >= 500

        broker.start()
        received = java_4.receive(broker.namesrv, TOPIC, "killed-group", count=len(keys))

        assert keys <= {line[0] for line in received}
    finally:
        broker.kill()
