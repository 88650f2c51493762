"""Fake FileGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.message import names
from console.gateway.answers import TopicQueue
from console.gateway.errors import TOPIC_NOT_EXIST, GatewayError, NotFoundError, RequestFailedError
from console.gateway.fakes.broker import ADDRESS, BROKER_NAME
from console.gateway.files import ConfigFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.gateway.fakes.broker import FakeBroker
    from console.gateway.files import GroupFilter

LEVELS = 18
REFUSED = 1


class FakeFiles:
    """The files of one broker, built from its state, and those in `other_files`."""

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

    def move_delay(self, level: int, offset: int, broker_name: str) -> None:
        self._broker.check()
        if not 1 <= level <= LEVELS:
            raise RequestFailedError(ADDRESS, REFUSED, f"there is no delay level {level}")
        queue = self._broker.queues.get(TopicQueue(names.RMQ_SYS_SCHEDULE_TOPIC, level - 1))
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        if not low <= offset <= high:
            said = f"delay level {level} has the offsets from {low} to {high}"
            raise RequestFailedError(ADDRESS, REFUSED, said)
        self._broker.other_tables.setdefault(ConfigFile.DELAYS, {})[str(level)] = offset

    def check_filter(self, wanted: GroupFilter, broker_name: str) -> str:
        """Reject expressions that end with an operator."""
        self._broker.check()
        text = wanted.expression.rstrip()
        if text.endswith((">", "<", "=")):
            return f"unexpected end at character {len(text) + 1}: expected a value"
        return ""

    def save_filter(self, wanted: GroupFilter, broker_name: str) -> None:
        if reason := self.check_filter(wanted, broker_name):
            raise RequestFailedError(ADDRESS, REFUSED, reason)
        if wanted.topic not in self._broker.topic_configs:
            raise NotFoundError(ADDRESS, TOPIC_NOT_EXIST, f"topic[{wanted.topic}] not exist")
        table = self._broker.other_tables.setdefault(ConfigFile.FILTERS, {})
        of_topic = table.setdefault(wanted.topic, {"groupFilterData": {}, "topic": wanted.topic})
        of_topic["groupFilterData"][wanted.group] = {
            "bloomFilterData": {"bitNum": 112, "bitPos": [1, 2, 3]},
            "bornTime": 1,
            "clientVersion": 0,
            "consumerGroup": wanted.group,
            "dead": False,
            "deadTime": 0,
            "expression": wanted.expression,
            "expressionType": wanted.expression_type,
            "topic": wanted.topic,
        }

    def drop_filter(self, group: str, topic: str, broker_name: str) -> None:
        self._broker.check()
        table = self._broker.other_tables.get(ConfigFile.FILTERS, {})
        of_group = table.get(topic, {}).get("groupFilterData", {})
        if group not in of_group:
            said = "the group has no filter on this topic"
            raise RequestFailedError(ADDRESS, REFUSED, said)
        del of_group[group]
        if not of_group:
            del table[topic]

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
