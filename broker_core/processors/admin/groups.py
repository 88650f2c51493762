"""Administration of consumer groups: configuration, offsets and backlog.

Source: broker/processor/AdminBrokerProcessor.java, broker/client/net/Broker2Client.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.message import names
from broker_core.message.subscription import SubscriptionGroupConfig
from broker_core.processors.heartbeat import read_body
from broker_core.protocol import java_json
from broker_core.protocol.codes import (
    ONEWAY_FLAG,
    V3_0_7_SNAPSHOT,
    V5_0_0,
    RequestCode,
    ResponseCode,
)
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.headers import fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from broker_core.clients.client import ClientConnection
    from broker_core.clients.consumers import ConsumerGroup, Consumers
    from broker_core.clock import Clock
    from broker_core.config.configuration import Configuration
    from broker_core.delivery.parked_pulls import ParkedPulls
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.pop.leases import InFlight
    from broker_core.processors.long_answers import LongAnswers, Steps
    from broker_core.remoting.connection import Connection
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.message_store import MessageStore

    LongAnswer = RemotingCommand | Awaitable[RemotingCommand]

RETRY_QUEUE_NUMS_MAX = 1024
RETRY_TIMES_MAX = 1_000_000
TO_THE_END = -1
"""The timestamp that means the end of a queue."""


class _Reset(NamedTuple):
    """The parameters of INVOKE_BROKER_TO_RESET_OFFSET."""

    topic: str
    group: str
    timestamp: int
    is_force: bool
    queue_ids: Sequence[int]
    offset: int
    """The new offset of the single queue; -1 to use the timestamp."""
    is_one_queue: bool
    language: str


class _Places(msgspec.Struct):
    """The parameters of RESET_OFFSETS: an offset for each queue ID."""

    topic: str
    group: str
    offsets: list[tuple[int, int]]


class GroupsAdmin:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    DELETE_SUBSCRIPTIONGROUP, GET_CONSUME_STATS, GET_ALL_CONSUMER_OFFSET,
    INVOKE_BROKER_TO_RESET_OFFSET, RESET_OFFSETS (Trebuchet only), QUERY_CONSUME_TIME_SPAN,
    QUERY_CORRECTION_OFFSET, CLONE_GROUP_OFFSET, GET_BROKER_CONSUME_STATS. Event loop only.

    Attributes:
        in_flight_of: returns the messages of a queue that a group has leased by POP.
    """

    def __init__(
        self,
        configuration: Configuration,
        topics: Topics,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        consumers: Consumers,
        store: MessageStore,
        stats: BrokerStats,
        parked_pulls: ParkedPulls,
        clock: Clock,
        long_answers: LongAnswers,
    ) -> None:
        self.in_flight_of: Callable[[str, str, int], InFlight] | None = None
        self._config = configuration.broker
        self._listen_port = configuration.server.listen_port
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._store = store
        self._stats = stats
        self._parked_pulls = parked_pulls
        self._clock = clock
        self._long_answers = long_answers

    def update_and_create(
        self, request: RemotingCommand, _: Connection
    ) -> Awaitable[RemotingCommand]:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP. Answers SUCCESS, or SYSTEM_ERROR."""
        group_config = read_body(request, SubscriptionGroupConfig)
        wrong = names.check_group(group_config.group_name)
        if wrong is not None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, wrong)
        if not 0 <= group_config.retry_queue_nums <= RETRY_QUEUE_NUMS_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"retryQueueNums {group_config.retry_queue_nums} is not between 0 and "
                f"{RETRY_QUEUE_NUMS_MAX}",
            )
        if not -1 <= group_config.retry_max_times <= RETRY_TIMES_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"retryMaxTimes {group_config.retry_max_times} is not between -1 and "
                f"{RETRY_TIMES_MAX}",
            )
        self._groups.require_room(group_config.group_name)
        former = self._groups.find(group_config.group_name)
        if former is not None and group_config.consume_message_orderly is msgspec.UNSET:
            # Tools of 4.9 and the console don't send this field.
            group_config.consume_message_orderly = former.consume_message_orderly
        self._groups.put(group_config)
        if not group_config.consume_enable:
            self._parked_pulls.end_group(group_config.group_name)
        return self._answer_when_written(request, group_config.group_name)

    def get_all(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG. Answers SUCCESS with subscriptionGroup.json's table."""
        # See GET_ALL_TOPIC_CONFIG.
        body = msgspec.json.encode(
            {
                "dataVersion": self._groups.data_version,
                "subscriptionGroupTable": dict(sorted(self._groups.table.items())),
            }
        )
        return request.answer(ResponseCode.SUCCESS, body=body)

    def delete(self, request: RemotingCommand, _: Connection) -> Awaitable[RemotingCommand]:
        """DELETE_SUBSCRIPTIONGROUP. Answers SUCCESS. Field: removeOffset (4.9) or cleanOffset.

        Ends the group's leases. Without the field, its offsets return to the first leased messages.
        """
        header = request.ext_fields
        group = fields.text(header, "groupName")
        self._groups.delete(group)
        self._stats.forget_group(group)
        if fields.boolean(header, "removeOffset") or fields.boolean(header, "cleanOffset"):
            self._offsets.delete_group(group)
        else:
            self._offsets.on_group_deleted(group)
        self._parked_pulls.end_group(group)
        return self._answer_when_written(request, group)

    async def _answer_when_written(self, request: RemotingCommand, group: str) -> RemotingCommand:
        await self._groups.writer.until_written(group)
        return request.answer(ResponseCode.SUCCESS)

    def all_offsets(self, request: RemotingCommand, connection: Connection) -> LongAnswer:
        """GET_ALL_CONSUMER_OFFSET. Answers SUCCESS with consumerOffset.json's content."""
        return self._long_answers.answer(request, connection, self._all_offsets())

    def _all_offsets(self) -> Steps:
        table = {}
        for key, queues in list(self._offsets.table.items()):
            table[key] = dict(queues)
            yield
        return {"offsetTable": table}

    def consume_stats(self, request: RemotingCommand, connection: Connection) -> LongAnswer:
        """GET_CONSUME_STATS. Answers SUCCESS with ConsumeStats, empty for an unknown group."""
        header = request.ext_fields
        group = fields.text(header, "consumerGroup")
        only = header.get("topic")
        topics = [only] if only else sorted(self._offsets.topics_of(group))
        return self._long_answers.answer(request, connection, self._consume_stats(group, topics))

    def _consume_stats(self, group: str, topics: list[str]) -> Steps:
        table: dict[str, Any] = {}
        consume_tps = 0.0
        for topic in topics:
            yield
            topic_config = self._topics.find(topic)
            if topic_config is None or not self._is_consumed(group, topic):
                continue
            yield from self._add_wrappers(table, group, topic, topic_config.read_queue_nums)
            consume_tps += self._consume_tps(group, topic)
        return {"consumeTps": consume_tps, "offsetTable": table}

    def broker_consume_stats(self, request: RemotingCommand, connection: Connection) -> LongAnswer:
        """GET_BROKER_CONSUME_STATS. Answers SUCCESS with each group's ConsumeStats by topic."""
        is_order = fields.boolean(request.ext_fields, "isOrder")
        steps = self._broker_consume_stats(is_order=is_order)
        return self._long_answers.answer(request, connection, steps)

    def _broker_consume_stats(self, *, is_order: bool) -> Steps:
        groups = []
        total_diff = 0
        topics_by_group = self._offsets.topics_by_group()
        for group in list(self._groups.table):
            yield
            by_topic = []
            for topic in sorted(topics_by_group.get(group, ())):
                yield
                topic_config = self._topics.find(topic)
                if topic_config is None or (is_order and not topic_config.order):
                    continue
                if not self._is_consumed(group, topic):
                    continue
                table: dict[str, Any] = {}
                yield from self._add_wrappers(table, group, topic, topic_config.write_queue_nums)
                total_diff += sum(
                    one["brokerOffset"] - one["consumerOffset"] for one in table.values()
                )
                tps = self._consume_tps(group, topic)
                by_topic.append({"consumeTps": tps, "offsetTable": table})
            groups.append({group: by_topic})
        return {
            "brokerAddr": f"{self._config.broker_ip1}:{self._listen_port}",
            "consumeStatsList": groups,
            "totalDiff": total_diff,
        }

    def consume_time_span(self, request: RemotingCommand, connection: Connection) -> LongAnswer:
        """QUERY_CONSUME_TIME_SPAN. Answers SUCCESS with the store times of each queue's first and
        last message and the group's delay in milliseconds; TOPIC_NOT_EXIST.
        """
        header = request.ext_fields
        topic, group = fields.text(header, "topic"), fields.text(header, "group")
        topic_config = self._topics.find(topic)
        if topic_config is None:
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        steps = self._time_spans(topic, group, topic_config.write_queue_nums)
        return self._long_answers.answer(request, connection, steps)

    def _time_spans(self, topic: str, group: str, queue_nums: int) -> Steps:
        store = self._store
        spans = []
        for queue_id in range(queue_nums):
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
            yield
        return {"consumeTimeSpanSet": spans}

    def correction_offset(self, request: RemotingCommand, connection: Connection) -> LongAnswer:
        """QUERY_CORRECTION_OFFSET: the smallest offset of all groups in each queue of a topic.

        Answers SUCCESS. A queue in which compareGroup is behind that offset gets Long.MAX. Differs:
        RocketMQ looks up compareGroup under the topic's name and never finds it, and deletes the
        offsets of filterGroups; here filterGroups are excluded from the minimum.
        """
        header = request.ext_fields
        topic = fields.text(header, "topic")
        compare_group = fields.text(header, "compareGroup")
        left_out = {name for name in header.get("filterGroups", "").split(",") if name}
        groups = self._offsets.groups_of(topic) - left_out
        steps = self._correction_offsets(topic, compare_group, groups)
        return self._long_answers.answer(request, connection, steps)

    def _correction_offsets(self, topic: str, compare_group: str, groups: set[str]) -> Steps:
        least: dict[int, int] = {}
        for group in groups:
            yield
            for queue_id, offset in self._offsets.queues(group, topic).items():
                yield
                if offset >= self._store.min_offset_in_queue(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        for queue_id, offset in self._offsets.queues(compare_group, topic).items():
            yield
            if queue_id in least and least[queue_id] > offset:
                least[queue_id] = fields.INT64_MAX
        return {"correctionOffsets": least}

    def clone_offset(self, request: RemotingCommand, connection: Connection) -> LongAnswer:
        """CLONE_GROUP_OFFSET: copy a group's offsets to another group. Answers SUCCESS.

        Differs: without a topic, all topics are cloned; RocketMQ clones nothing.
        """
        header = request.ext_fields
        source, target = fields.text(header, "srcGroup"), fields.text(header, "destGroup")
        wrong = names.check_group(target)
        if wrong is not None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, wrong)
        only = header.get("topic", "").strip()
        is_offline = fields.boolean(header, "offline")
        topics = [only] if only else sorted(self._offsets.topics_of(source))
        steps = self._clone(source, target, topics, is_offline=is_offline)
        return self._long_answers.answer(request, connection, steps)

    def _clone(self, source: str, target: str, topics: list[str], *, is_offline: bool) -> Steps:
        for topic in topics:
            yield
            if self._topics.find(topic) is None:
                continue
            if not is_offline and not self._is_consumed(source, topic):
                continue
            for queue_id, offset in self._offsets.queues(source, topic).items():
                end = self._store.max_offset_in_queue(topic, queue_id)
                self._offsets.commit(target, topic, queue_id, min(offset, end))
                yield

    def reset_offset(self, request: RemotingCommand, connection: Connection) -> LongAnswer:
        """INVOKE_BROKER_TO_RESET_OFFSET: send a live group's clients their new offsets.

        Answers SUCCESS with the offsets; SYSTEM_ERROR for an unknown topic or group, or a client
        that is too old. Without a connected client a 4.9 tool gets CONSUMER_NOT_ONLINE and
        continues with UPDATE_CONSUMER_OFFSET; for a 5.x tool the broker sets the offsets itself.
        5.x can name a single queue and an offset.
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
        members = None if found is None else self._connections_to_notify(found)
        queue_ids = range(topic_config.write_queue_nums) if only_queue < 0 else [only_queue]
        wanted = _Reset(
            topic,
            group,
            timestamp,
            is_force,
            queue_ids,
            only_offset,
            only_queue >= 0,
            request.language,
        )
        return self._long_answers.answer(request, connection, self._reset(wanted, members))

    def reset_offsets(self, request: RemotingCommand, connection: Connection) -> LongAnswer:
        """RESET_OFFSETS: send a live group's clients new offsets for several queues.

        INVOKE_BROKER_TO_RESET_OFFSET accepts an offset for one queue only, and clients pause for 10
        s at each. Answers SUCCESS with the offsets; CONSUMER_NOT_ONLINE without a connected client;
        SYSTEM_ERROR for a queue or offset that the topic doesn't have, and for a client that is too
        old.
        """
        asked = read_body(request, _Places)
        topic_config = self._topics.find(asked.topic)
        if topic_config is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic {asked.topic}",
            )
        found = self._consumers.find(asked.group)
        if found is None or not found.members:
            raise RequestRefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {asked.group} "
                f"Topic: {asked.topic}",
            )
        queue_nums = max(topic_config.read_queue_nums, topic_config.write_queue_nums)
        for queue_id, _offset in asked.offsets:
            if not 0 <= queue_id < queue_nums:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR, f"topic {asked.topic} has no queue {queue_id}"
                )
        steps = self._go_to(asked, self._connections_to_notify(found), request.language)
        return self._long_answers.answer(request, connection, steps)

    def _go_to(self, asked: _Places, members: Sequence[ClientConnection], language: str) -> Steps:
        table = {}
        for queue_id, offset in asked.offsets:
            table[queue_id] = self._checked_offset(asked.topic, queue_id, offset)
            yield
        wanted = _Reset(asked.topic, asked.group, 0, True, [], -1, False, language)
        return (yield from self._notify(wanted, table, members))

    def _connections_to_notify(self, found: ConsumerGroup) -> list[ClientConnection]:
        """Return a group's connections.

        Raises:
            RequestRefusedError: a client is too old for the notice.
        """
        for member in found.members.values():
            if member.version < V3_0_7_SNAPSHOT:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client does not support this feature. version={member.version}",
                )
        return list(found.members)

    def _reset(self, wanted: _Reset, members: Sequence[ClientConnection] | None) -> Steps:
        topic, group = wanted.topic, wanted.group
        table = {}
        for queue_id in wanted.queue_ids:
            offset = self._offset_at(topic, queue_id, wanted.timestamp)
            if wanted.offset >= 0 and wanted.is_one_queue:
                offset = self._checked_offset(topic, queue_id, wanted.offset)
            current = self._offsets.query(group, topic, queue_id)
            if not wanted.is_force and wanted.offset < 0 and 0 <= current < offset:
                offset = current
            table[queue_id] = offset
            yield
        return (yield from self._notify(wanted, table, members))

    def _notify(
        self, wanted: _Reset, table: dict[int, int], members: Sequence[ClientConnection] | None
    ) -> Steps:
        topic, group = wanted.topic, wanted.group
        by_queue = []
        for queue_id, offset in table.items():
            key = java_json.message_queue_key(topic, self._config.broker_name, queue_id)
            by_queue.append(f"{key}:{offset}")
            yield
        # fastjson's format with sorted keys; the notices need it before the answer exists.
        body = f'{{"offsetTable":{{{",".join(sorted(by_queue))}}}}}'.encode()
        notice_body = body
        if wanted.language == "CPP":
            notice_body = msgspec.json.encode({"offsetTable": self._as_list(topic, table)})
        if members is None:
            for queue_id, offset in table.items():
                self._offsets.commit(group, topic, queue_id, offset)
                yield
        notice = RemotingCommand.request(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            {
                "topic": topic,
                "group": group,
                "timestamp": str(wanted.timestamp),
                "isForce": str(wanted.is_force).lower(),
            },
            notice_body,
        )
        notice.flag |= ONEWAY_FLAG
        # Encode one frame for all: there can be thousands of members and megabytes of body.
        frame = notice.encode()
        for connection in members or ():
            cast("Connection", connection).send(frame)
            yield
        return body

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp == TO_THE_END:
            return self._store.max_offset_in_queue(topic, queue_id)
        return self._store.offset_in_queue_by_time(topic, queue_id, timestamp)

    def _checked_offset(self, topic: str, queue_id: int, offset: int) -> int:
        """Return an administrator's offset for a queue, limited to the queue's end.

        Differs: 5.x accepts the end plus 1, as here, but stores it unchanged, so that the group
        skips the next message.
        """
        low = self._store.min_offset_in_queue(topic, queue_id)
        high = self._store.max_offset_in_queue(topic, queue_id)
        if not low <= offset <= high + 1:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{low}-{high}]",
            )
        return min(offset, high)

    def _as_list(self, topic: str, table: dict[int, int]) -> list[dict[str, Any]]:
        """Return offsets by queue in the format that C++ clients read."""
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

    def _add_wrappers(
        self, table: dict[str, Any], group: str, topic: str, queue_nums: int
    ) -> Steps:
        """Add an OffsetWrapper for each queue to a table."""
        for queue_id in range(queue_nums):
            key = java_json.message_queue_key(topic, self._config.broker_name, queue_id)
            table[key] = self._offset_wrapper(group, topic, queue_id)
            yield

    def _is_consumed(self, group: str, topic: str) -> bool:
        """Return whether the group is offline or still subscribes to the topic."""
        found = self._consumers.find(group)
        if found is None or not found.subscriptions or topic in found.subscriptions:
            return True
        prefix = names.pop_retry_topic(group, "")
        return topic.startswith(prefix) and topic.removeprefix(prefix) in found.subscriptions

    def _offset_wrapper(self, group: str, topic: str, queue_id: int) -> dict[str, int]:
        store = self._store
        consumer_offset = max(0, self._offsets.query(group, topic, queue_id))
        last = -1
        if consumer_offset > 0:
            last = store.store_timestamp(topic, queue_id, consumer_offset - 1)
        wrapper = {
            "brokerOffset": store.max_offset_in_queue(topic, queue_id),
            "consumerOffset": consumer_offset,
            "lastTimestamp": max(0, last),
        }
        flight = self.in_flight_of and self.in_flight_of(group, topic, queue_id)
        if flight and flight.message_count:
            # Trebuchet's own field; RocketMQ's tools ignore unknown fields.
            wrapper["inFlight"] = flight.message_count
            wrapper["oldestLease"] = flight.oldest_ms
        return wrapper
