"""The collector with RocketMQ's own brokers, which don't support our request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.samples import RemoteSamples
from console.gateway.sample import BrokerSample, GroupSample
from tests.conftest import require_java
from tests.support import raw_remoting
from tests.support.peer import Peer
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop

UPDATE_CONSUMER_OFFSET = 15
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
TIMEOUT_S = 30.0
SECONDS = 120


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_real_broker_reports_its_counters_and_its_groups_progress(
    tmp_path: Path, version: str
) -> None:
    require_java()
    found: list[BrokerSample] = []
    with Peer(version, tmp_path) as peer:
        raw_remoting.create_topic(peer.port, "Orders")
        with raw_remoting.RawClient(peer.port) as client:
            client.ask(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"billing"}')
            for _ in range(5):
                assert (
                    client.ask(10, raw_remoting.send_fields("Orders", queue_id=1), b"x").code == 0
                )
            offset = {
                "consumerGroup": "billing",
                "topic": "Orders",
                "queueId": "1",
                "commitOffset": "2",
            }
            assert client.ask(UPDATE_CONSUMER_OFFSET, offset).code == 0
        brokers = RemoteBrokers([peer.namesrv], TIMEOUT_S)

        def is_sampled() -> bool:
            answers = RemoteSamples(brokers).take().values()
            found.extend(
                each for each in answers if isinstance(each, BrokerSample) and each.progress
            )
            return bool(found) and any(end == 5 for _, _, end, _ in found[-1].progress[0].rows())

        until(is_sampled, "a sample of the real broker", seconds=SECONDS)
        brokers.close()

    sample = found[-1]
    rows = {row[0]: row for each in sample.progress for row in each.rows()}
    queue, consumer_offset, end, since = rows[1]
    assert (queue, consumer_offset, end) == (1, 2, 5)
    assert since > 0
    assert {each.group for each in sample.progress} == {"billing"}
    assert sample.counters["put"] == 5
    assert sample.boot_timestamp > 0
    assert 0 < (sample.gauges["diskUsed"] or 0) <= (sample.gauges["diskTotal"] or 0)
    assert (sample.gauges["logBytes"] or 0) > 0
    assert sample.groups == [GroupSample("billing", 0)]
    assert not sample.is_whole
