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
from broker_core.protocol.codes import V3_0_7_SNAPSHOT, V5_0_0, RequestCode, ResponseCode
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
    INVOKE_BROKER_TO_RESET_OFFSET, QUERY_CONSUME_TIME_SPAN, QUERY_CORRECTION_OFFSET,
    CLONE_GROUP_OFFSET, GET_BROKER_CONSUME_STATS. Event loop only.
    """

    def __init__(
        self,
        config: BrokerConfig,
        listen_port: int,
        topics: Topics,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        consumers: Consumers,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self._config = config
        self._listen_port = listen_port
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
        self._stats.forget_group(group)
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
        table: dict[str, Any] = {}
        consume_tps = 0.0
        for topic in topics:
            topic_config = self._topics.find(topic)
            if topic_config is None or not self._is_consumed(group, topic):
                continue
            table.update(self._offset_table(group, topic, topic_config.read_queue_nums))
            consume_tps += self._consume_tps(group, topic)
        body = {"consumeTps": consume_tps, "offsetTable": table}
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode(body))

    def broker_consume_stats(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_BROKER_CONSUME_STATS. Answers SUCCESS with each group's ConsumeStats by topic."""
        is_order = fields.boolean(request.ext_fields, "isOrder")
        groups = []
        total_diff = 0
        for group in self._groups.table:
            by_topic = []
            for topic in sorted(self._offsets.topics_of(group)):
                topic_config = self._topics.find(topic)
                if topic_config is None or (is_order and not topic_config.order):
                    continue
                if not self._is_consumed(group, topic):
                    continue
                table = self._offset_table(group, topic, topic_config.write_queue_nums)
                total_diff += sum(
                    one["brokerOffset"] - one["consumerOffset"] for one in table.values()
                )
                tps = self._consume_tps(group, topic)
                by_topic.append({"consumeTps": tps, "offsetTable": table})
            groups.append({group: by_topic})
        body = {
            "brokerAddr": f"{self._config.broker_ip1}:{self._listen_port}",
            "consumeStatsList": groups,
            "totalDiff": total_diff,
        }
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode(body))

    def consume_time_span(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """QUERY_CONSUME_TIME_SPAN. Answers SUCCESS with the span of times stored in each queue and
        how far behind the group is, in milliseconds; TOPIC_NOT_EXIST.
        """
        header = request.ext_fields
        topic, group = fields.text(header, "topic"), fields.text(header, "group")
        topic_config = self._topics.find(topic)
        if topic_config is None:
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        store = self._store
        spans = []
        for queue_id in range(topic_config.write_queue_nums):
            max_offset = store.max_offset_in_queue(topic, queue_id)
            first = store.min_offset_in_queue(topic, queue_id)
            earliest = store.store_timestamp(topic, queue_id, first)
            offset = self._offsets.query(group, topic, queue_id)
            consumed = earliest
            if offset > 0:
                consumed = store.store_timestamp(topic, queue_id, offset - 1)
            delay_time = 0
            if offset < max_offset:
                waiting = store.store_timestamp(topic, queue_id, max(offset, first))
                delay_time = max(0, self._clock.now_ms() - waiting)
            spans.append(
                {
                    "consumeTimeStamp": consumed,
                    "delayTime": delay_time,
                    "maxTimeStamp": store.store_timestamp(topic, queue_id, max_offset - 1),
                    "messageQueue": {
                        "brokerName": self._config.broker_name,
                        "queueId": queue_id,
                        "topic": topic,
                    },
                    "minTimeStamp": earliest,
                }
            )
        return request.answer(
            ResponseCode.SUCCESS, body=java_json.encode({"consumeTimeSpanSet": spans})
        )

    def correction_offset(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """QUERY_CORRECTION_OFFSET: the least offset of all groups in each queue of a topic.

        Answers SUCCESS. A queue in which compareGroup is behind that least offset gets Long.MAX.
        Differs: the original looks compareGroup up under the topic's name and finds nothing, and
        deletes the offsets of filterGroups; here they are only left out.
        """
        header = request.ext_fields
        topic = fields.text(header, "topic")
        compare_group = fields.text(header, "compareGroup")
        left_out = {name for name in header.get("filterGroups", "").split(",") if name}
        least: dict[int, int] = {}
        for group in self._offsets.groups_of(topic) - left_out:
            for queue_id, offset in self._offsets.queues(group, topic).items():
                if offset >= self._store.min_offset_in_queue(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        for queue_id, offset in self._offsets.queues(compare_group, topic).items():
            if queue_id in least and least[queue_id] > offset:
                least[queue_id] = fields.INT64_MAX
        return request.answer(
            ResponseCode.SUCCESS, body=java_json.encode({"correctionOffsets": least})
        )

    def clone_offset(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """CLONE_GROUP_OFFSET: one group continues where another stands. Answers SUCCESS.

        Differs: without a topic all topics are cloned, of which the original clones none.
        """
        header = request.ext_fields
        source, target = fields.text(header, "srcGroup"), fields.text(header, "destGroup")
        wrong = names.check_group(target)
        if wrong is not None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, wrong)
        only = header.get("topic", "").strip()
        is_offline = fields.boolean(header, "offline")
        for topic in [only] if only else sorted(self._offsets.topics_of(source)):
            if self._topics.find(topic) is None:
                continue
            if not is_offline and not self._is_consumed(source, topic):
                continue
            for queue_id, offset in self._offsets.queues(source, topic).items():
                self._offsets.commit(target, topic, queue_id, offset)
        return request.answer(ResponseCode.SUCCESS)

    def reset_offset(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """INVOKE_BROKER_TO_RESET_OFFSET: tell a live group's clients where to go on.

        Answers SUCCESS with the offsets; SYSTEM_ERROR for an unknown topic or group, a client that
        is too old. When nobody of the group is connected a 4.9 tool is answered
        CONSUMER_NOT_ONLINE and goes on with UPDATE_CONSUMER_OFFSET; for one of 5.x, which leaves it
        to its broker, the offsets are set here. 5.x may ask for one queue, and for an offset.
        """
        header = request.ext_fields
        topic = fields.text(header, "topic")
        group = fields.text(header, "group")
        timestamp = fields.int64(header, "timestamp")
        is_force = fields.boolean(header, "isForce")
        only_queue = fields.int32(header, "queueId", -1)
        only_offset = fields.int64(header, "offset", -1)
        topic_config = self._topics.find(topic)
        if topic_config is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"[reset-offset] reset offset failed, no topic {topic}"
            )
        if only_queue >= topic_config.write_queue_nums:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"topic {topic} has no queue {only_queue}"
            )
        found = self._consumers.find(group)
        is_known = found or self._groups.find(group) or self._offsets.queues(group, topic)
        if not is_known:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist"
            )
        if found is None and request.version < V5_0_0:
            raise RequestRefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} "
                f"Timestamp: {timestamp}",
            )
        members = found.members if found is not None else {}
        for member in members.values():
            if member.version < V3_0_7_SNAPSHOT:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client does not support this feature. version={member.version}",
                )
        table = {}
        queue_ids = range(topic_config.write_queue_nums) if only_queue < 0 else [only_queue]
        for queue_id in queue_ids:
            wanted = self._offset_at(topic, queue_id, timestamp)
            if only_queue >= 0 and only_offset >= 0:
                wanted = self._within(topic, queue_id, only_offset)
            current = self._offsets.query(group, topic, queue_id)
            if not is_force and only_offset < 0 and 0 <= current < wanted:
                wanted = current
            table[queue_id] = wanted
        by_queue = {
            java_json.message_queue_key(topic, self._config.broker_name, queue_id): offset
            for queue_id, offset in table.items()
        }
        body = java_json.encode({"offsetTable": by_queue})
        notice_body = body
        if request.language == "CPP":
            notice_body = java_json.encode({"offsetTable": self._as_list(topic, table)})
        if found is None:
            for queue_id, offset in table.items():
                self._offsets.commit(group, topic, queue_id, offset)
        for connection in members:
            notice = RemotingCommand.request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                {
                    "topic": topic,
                    "group": group,
                    "timestamp": str(timestamp),
                    "isForce": str(is_force).lower(),
                },
                notice_body,
            )
            cast("Connection", connection).oneway(notice)
        return request.answer(ResponseCode.SUCCESS, body=body)

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp == TO_THE_END:
            return self._store.max_offset_in_queue(topic, queue_id)
        return self._store.offset_in_queue_by_time(topic, queue_id, timestamp)

    def _within(self, topic: str, queue_id: int, offset: int) -> int:
        low = self._store.min_offset_in_queue(topic, queue_id)
        high = self._store.max_offset_in_queue(topic, queue_id)
        if not low <= offset <= high + 1:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{low}-{high}]",
            )
        return offset

    def _as_list(self, topic: str, table: dict[int, int]) -> list[dict[str, Any]]:
        """Return offsets by queue as a C++ client reads them."""
        return [
            {
                "brokerName": self._config.broker_name,
                "offset": offset,
                "queueId": queue_id,
                "topic": topic,
            }
            for queue_id, offset in table.items()
        ]

    def _consume_tps(self, group: str, topic: str) -> float:
        item = self._stats.group_get_nums.get(f"{topic}@{group}")
        return item.minute(self._clock.monotonic()).tps if item else 0.0

    def _offset_table(self, group: str, topic: str, queue_nums: int) -> dict[str, dict[str, int]]:
        broker_name = self._config.broker_name
        return {
            java_json.message_queue_key(topic, broker_name, queue_id): self._offset_wrapper(
                group, topic, queue_id
            )
            for queue_id in range(queue_nums)
        }

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
