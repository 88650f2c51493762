"""FileGateway without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console.gateway.answers import TopicQueue
from console.gateway.errors import GatewayError
from console.gateway.fakes.broker import BROKER_NAME
from console.gateway.files import ConfigFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.gateway.fakes.broker import FakeBroker


class FakeFiles:
    """The files of one broker, made of what it knows, and those of `other_files`."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def read(
        self, file: ConfigFile, broker_names: Iterable[str]
    ) -> dict[str, dict[str, Any] | None]:
        self._broker.check()
        return {name: self._document(file, name) for name in broker_names}

    def drop_topic(self, topic: str, broker_name: str) -> None:
        self._broker.check()
        for queue_id in self._broker.queues_of(topic):
            del self._broker.queues[TopicQueue(topic, queue_id)]
        del self._broker.topic_configs[topic]

    def drop_group(self, group: str, broker_name: str) -> None:
        self._broker.check()
        self._broker.group_configs.pop(group, None)

    def _document(self, file: ConfigFile, broker_name: str) -> dict[str, Any] | None:
        if broker_name in self._broker.other_files:
            return self._broker.other_files[broker_name].get(file, {file.table: {}})
        if broker_name != BROKER_NAME:
            raise GatewayError(f"No broker named {broker_name} is registered.")
        match file:
            case ConfigFile.TOPICS:
                table: dict[str, Any] = {
                    name: {
                        "order": config.order,
                        "perm": config.perm,
                        "readQueueNums": config.read_queue_nums,
                        "topicFilterType": config.topic_filter_type,
                        "topicName": name,
                        "topicSysFlag": config.topic_sys_flag,
                        "writeQueueNums": config.write_queue_nums,
                    }
                    for name, config in self._broker.topic_configs.items()
                }
            case ConfigFile.GROUPS:
                table = {
                    name: {
                        "brokerId": config.broker_id,
                        "consumeBroadcastEnable": config.consume_broadcast_enable,
                        "consumeEnable": config.consume_enable,
                        "consumeFromMinEnable": config.consume_from_min_enable,
                        "groupName": name,
                        "notifyConsumerIdsChangedEnable": (
                            config.notify_consumer_ids_changed_enable
                        ),
                        "retryMaxTimes": config.retry_max_times,
                        "retryQueueNums": config.retry_queue_nums,
                        "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
                    }
                    for name, config in self._broker.group_configs.items()
                }
            case ConfigFile.OFFSETS:
                table = {}
                for (group, topic, queue_id), offset in sorted(self._broker.offsets.items()):
                    table.setdefault(f"{topic}@{group}", {})[str(queue_id)] = offset
            case _:
                table = self._broker.other_tables.get(file, {})
        return {file.table: table}
