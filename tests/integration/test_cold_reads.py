"""Threads other than the event loop wait for data that is only on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.metrics.process import MAJOR_FAULTS
from tests.support.broker_process import BrokerProcess
from tests.support.page_cache import forget
from tests.support.raw_remoting import (
    PULL_MESSAGE,
    SEND_MESSAGE,
    SUCCESS,
    RawClient,
    create_topic,
    pull_fields,
    read_queue,
    send_fields,
)
from tests.support.twins import is_compiled

TOPIC = "Archive"
QUEUES = 2
COUNT, BODY = 2_000, bytes(range(256)) * 64
"""Per queue: 32 MiB, interleaved with those of the other one."""
LOG_FILE_BYTES = 4 << 20
"""A start reads the last three."""
FAULTS_MAX = 8


@pytest.mark.parametrize("native", ["0", "1"])
def test_a_consumer_that_reads_from_disk_does_not_block_the_loop(
    native: str, tmp_path: Path
) -> None:
    if native == "1" and not is_compiled():
        pytest.fail("no compiled turn: python -m broker_core.native.build")
    broker = BrokerProcess(tmp_path / "broker", mappedFileSizeCommitLog=LOG_FILE_BYTES)
    broker.environment["TREBUCHET_NATIVE"] = native
    broker.start()
    try:
        create_topic(broker.port, TOPIC, queues=QUEUES)
        with RawClient(broker.port) as client:
            for _ in range(COUNT // 50):
                for number in range(50 * QUEUES):
                    fields = send_fields(TOPIC, queue_id=number % QUEUES)
                    client.send_request(SEND_MESSAGE, fields, BODY)
                client.read_successes(50 * QUEUES)
        broker.stop()
        forget(broker.store)
        broker.start()
        # The first answer needs some of our own pages.
        with RawClient(broker.port) as client:
            answer = client.ask(PULL_MESSAGE, pull_fields(TOPIC, 0, COUNT - 32))
        assert answer.code == SUCCESS, answer
        before = loop_faults(broker)

        records = read_queue(broker.port, TOPIC, 0)

        assert [record.body for record in records] == [BODY] * COUNT
        assert loop_faults(broker) - before <= FAULTS_MAX
    finally:
        broker.stop()


def loop_faults(broker: BrokerProcess) -> int:
    """Return how often the loop's thread has waited for a page of a file."""
    stat = Path(f"/proc/{broker.pid}/task/{broker.pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[MAJOR_FAULTS])
