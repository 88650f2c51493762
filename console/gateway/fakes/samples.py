"""Fake SampleGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.errors import UnconfirmedBrokerError
from console.gateway.fakes.broker import BROKER_NAME
from console.gateway.sample import (
    UNKNOWN,
    BrokerSample,
    GroupSample,
    ProgressSample,
    TopicSample,
)
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from console.gateway.answers import BrokerNode
    from console.gateway.errors import GatewayError
    from console.gateway.fakes.broker import FakeBroker

DISK_BYTES = 100 << 30


class FakeSamples:
    """The sample of one broker, started at `boot_timestamp` and extended by `gauges`."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self.boot_timestamp = 1
        self.gauges: dict[str, int | None] = {}

    def take(self) -> dict[BrokerNode, BrokerSample | GatewayError]:
        self._broker.check()
        found: dict[BrokerNode, BrokerSample | GatewayError] = {
            node: UnconfirmedBrokerError(node.address) for node in self._broker.strangers
        }
        if self._broker.has_broker:
            found[self._broker.node] = self._broker.silent or self._sample()
        return found

    def _sample(self) -> BrokerSample:
        broker = self._broker
        total = sum(len(queue.store_timestamps) for queue in broker.queues.values())
        return BrokerSample(
            broker_name=BROKER_NAME,
            broker_id=0,
            boot_timestamp=self.boot_timestamp,
            sampled_at=now_ms(),
            counters={"put": total, "putBytes": total * 100, "putFailed": 0, "got": 0, "cpuMs": 0},
            gauges={
                "diskUsed": DISK_BYTES // 4,
                "diskTotal": DISK_BYTES,
                "halfPending": 0,
                **self.gauges,
            },
            topics=[
                TopicSample(
                    name,
                    100 * sum(row.message_count for row in broker.status_of(name)),
                    [
                        number
                        for row in broker.status_of(name)
                        for number in (row.queue_id, row.min_offset, row.max_offset)
                    ],
                )
                for name in sorted(broker.topic_configs)
            ],
            groups=[
                GroupSample(name, len(broker.members.get(name, ())))
                for name in sorted(broker.group_configs)
            ],
            progress=[
                ProgressSample(group, topic, self._progress(group, topic))
                for group, topic in sorted({(group, topic) for group, topic, _ in broker.offsets})
            ],
        )

    def _progress(self, group: str, topic: str) -> list[int]:
        numbers: list[int] = []
        for queue_id, queue in self._broker.queues_of(topic).items():
            offset = self._broker.offsets.get((group, topic, queue_id))
            if offset is None:
                continue
            unread = queue.store_timestamps[offset - queue.min_offset :]
            since = unread[0] if unread else UNKNOWN
            numbers += (queue_id, offset, queue.max_offset, since)
        return numbers
