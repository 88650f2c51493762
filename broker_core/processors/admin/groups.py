"""Administration of consumer groups: their configuration, their offsets, their backlog.

Source: broker/processor/AdminBrokerProcessor.java, broker/client/net/Broker2Client.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.message import names
from broker_core.message.subscription import SubscriptionGroupConfig
from broker_core.processors.heartbeat import read_body
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.headers import fields

if TYPE_CHECKING:
    from broker_core.clients.consumers import Consumers
    from broker_core.clock import Clock
    from broker_core.config import BrokerConfig
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.remoting.connection import Connection
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.message_store import MessageStore

RETRY_QUEUE_NUMS_MAX = 1024
RETRY_TIMES_MAX = 1_000_000
TO_THE_END = -1
"""The timestamp that asks for a queue's end."""


class GroupsAdmin:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    DELETE_SUBSCRIPTIONGROUP, GET_CONSUME_STATS, GET_ALL_CONSUMER_OFFSET,
    INVOKE_BROKER_TO_RESET_OFFSET. Event loop only.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        consumers: Consumers,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._store = store
        self._stats = stats
        self._clock = clock

    def update_and_create(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP. Answers SUCCESS, or SYSTEM_ERROR."""
        group_config = read_body(request, SubscriptionGroupConfig)
        wrong = names.check_group(group_config.group_name)
        if wrong is not None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, wrong)
        if not 0 <= group_config.retry_queue_nums <= RETRY_QUEUE_NUMS_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"retryQueueNums {group_config.retry_queue_nums} is not within 0 and "
                f"{RETRY_QUEUE_NUMS_MAX}",
            )
        if not -1 <= group_config.retry_max_times <= RETRY_TIMES_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"retryMaxTimes {group_config.retry_max_times} is not within -1 and "
                f"{RETRY_TIMES_MAX}",
            )
        self._groups.put(group_config)
        return request.answer(ResponseCode.SUCCESS)

    def get_all(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG. Answers SUCCESS with subscriptionGroup.json's table."""
        body = {
            "dataVersion": msgspec.to_builtins(self._groups.data_version),
            "subscriptionGroupTable": msgspec.to_builtins(self._groups.table),
        }
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode(body))

    def delete(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """DELETE_SUBSCRIPTIONGROUP. Answers SUCCESS; 4.9 says removeOffset, 5.x cleanOffset."""
        header = request.ext_fields
        group = fields.text(header, "groupName")
        self._groups.delete(group)
        if fields.boolean(header, "removeOffset") or fields.boolean(header, "cleanOffset"):
            self._offsets.delete_group(group)
        return request.answer(ResponseCode.SUCCESS)

    def all_offsets(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_ALL_CONSUMER_OFFSET. Answers SUCCESS with consumerOffset.json's content."""
        body = java_json.encode(self._offsets.document())
        return request.answer(ResponseCode.SUCCESS, body=body)

    def consume_stats(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_CONSUME_STATS. Answers SUCCESS with ConsumeStats, empty when nothing is known."""
        header = request.ext_fields
        group = fields.text(header, "consumerGroup")
        only = header.get("topic")
        topics = [only] if only else sorted(self._offsets.topics_of(group))
        now = self._clock.monotonic()
        table: dict[str, Any] = {}
        consume_tps = 0.0
        for topic in topics:
            topic_config = self._topics.find(topic)
            if topic_config is None or not self._is_consumed(group, topic):
                continue
            for queue_id in range(topic_config.read_queue_nums):
                key = java_json.message_queue_key(topic, self._config.broker_name, queue_id)
                table[key] = self._offset_wrapper(group, topic, queue_id)
            item = self._stats.group_get_nums.get(f"{topic}@{group}")
            consume_tps += item.minute(now).tps if item else 0.0
        body = {"consumeTps": consume_tps, "offsetTable": table}
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode(body))

    def reset_offset(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """INVOKE_BROKER_TO_RESET_OFFSET: tell a live group's clients where to go on.

        Answers SUCCESS with the offsets; SYSTEM_ERROR for an unknown topic; CONSUMER_NOT_ONLINE
        when nobody of the group is connected: then UPDATE_CONSUMER_OFFSET is the way.
        """
        header = request.ext_fields
        topic = fields.text(header, "topic")
        group = fields.text(header, "group")
        timestamp = fields.int64(header, "timestamp")
        is_force = fields.boolean(header, "isForce")
        topic_config = self._topics.find(topic)
        if topic_config is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"[reset-offset] reset offset failed, no topic {topic}"
            )
        found = self._consumers.find(group)
        if found is None:
            raise RequestRefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} "
                f"Timestamp: {timestamp}",
            )
        table = {}
        for queue_id in range(topic_config.write_queue_nums):
            wanted = self._offset_at(topic, queue_id, timestamp)
            current = self._offsets.query(group, topic, queue_id)
            if not is_force and 0 <= current < wanted:
                wanted = current
            key = java_json.message_queue_key(topic, self._config.broker_name, queue_id)
            table[key] = wanted
        body = java_json.encode({"offsetTable": table})
        for connection in found.members:
            notice = RemotingCommand.request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                {
                    "topic": topic,
                    "group": group,
                    "timestamp": str(timestamp),
                    "isForce": str(is_force).lower(),
                },
                body,
            )
            cast("Connection", connection).oneway(notice)
        return request.answer(ResponseCode.SUCCESS, body=body)

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp == TO_THE_END:
            return self._store.max_offset_in_queue(topic, queue_id)
        return self._store.offset_in_queue_by_time(topic, queue_id, timestamp)

    def _is_consumed(self, group: str, topic: str) -> bool:
        """Say whether the group, when it is online, still subscribes to the topic."""
        found = self._consumers.find(group)
        return found is None or not found.subscriptions or topic in found.subscriptions

    def _offset_wrapper(self, group: str, topic: str, queue_id: int) -> dict[str, int]:
        store = self._store
        consumer_offset = max(0, self._offsets.query(group, topic, queue_id))
        last = -1
        if consumer_offset > 0:
            last = store.store_timestamp(topic, queue_id, consumer_offset - 1)
        return {
            "brokerOffset": store.max_offset_in_queue(topic, queue_id),
            "consumerOffset": consumer_offset,
            "lastTimestamp": max(0, last),
        }
