"""Pulls: messages of one queue from one offset, at once or when they come.

Source: broker/processor/PullMessageProcessor.java (4.9.7).
Differs: an offset outside the queue is answered and logged, but no event is written to
OFFSET_MOVED_EVENT, as in 5.x.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from broker_core.delivery.sql_filter import (
    FilterBits,
    RetryFilter,
    SqlFilter,
    compile_filter,
)
from broker_core.delivery.tag_filter import TagFilter
from broker_core.errors import RequestRefusedError
from broker_core.formats.record import decode_all
from broker_core.message.ids import offset_msg_id
from broker_core.message.names import (
    HIDDEN_TOPICS,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    RETRY_GROUP_TOPIC_PREFIX,
)
from broker_core.message.subscription import build_subscription
from broker_core.message.topic_config import PERM_READ
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields
from broker_core.store.results import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.clients.consumers import Consumers
    from broker_core.clock import Clock
    from broker_core.config import BrokerConfig
    from broker_core.delivery.hold import PullHold
    from broker_core.delivery.sql92.expression import Expression
    from broker_core.metadata.consumer_filters import ConsumerFilters
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import MessageFilter
    from broker_core.trace.tracer import Tracer

logger = logging.getLogger(__name__)

FLAG_COMMIT_OFFSET = 1
FLAG_SUSPEND = 2
FLAG_SUBSCRIPTION = 4
SUSPEND_TIMEOUT_MS_MAX = 60_000
MAX_MSG_NUMS_MAX = 1024
FILTERS_KEPT = 4096

CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
EMPTY = frozenset({GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE})
"""Of a queue without messages only offset 0 may wait; any other offset has moved."""


class PullProcessor:
    """PULL_MESSAGE (11), LITE_PULL_MESSAGE (361). Event loop only.

    Attributes:
        on_pulled: called, when set, with group, topic, queue_id and next_begin_offset of a pull
            that was handed messages.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_host: bytes,
        topics: Topics,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        filters: ConsumerFilters[Expression],
        consumers: Consumers,
        store: MessageStore,
        hold: PullHold,
        stats: BrokerStats,
        tracer: Tracer,
        clock: Clock,
    ) -> None:
        self.on_pulled: Callable[[str, str, int, int], None] | None = None
        self._config = config
        self._store_host = store_host
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._filters = filters
        self._consumers = consumers
        self.store = store
        self._hold = hold
        self._stats = stats
        self._tracer = tracer
        self._clock = clock

    def pull_message(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """PULL_MESSAGE.

        Answers SUCCESS with the stored records as body; PULL_NOT_FOUND, after a wait when the
        request allows one; PULL_RETRY_IMMEDIATELY; PULL_OFFSET_MOVED; SYSTEM_ERROR, NO_PERMISSION,
        TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST, SUBSCRIPTION_PARSE_FAILED,
        SUBSCRIPTION_NOT_EXIST, SUBSCRIPTION_NOT_LATEST, FILTER_DATA_NOT_EXIST or
        FILTER_DATA_NOT_LATEST. None while the pull waits.
        """
        header = request.ext_fields
        pull = Pull(
            self,
            request,
            connection,
            group=fields.text(header, "consumerGroup"),
            topic=fields.text(header, "topic"),
            queue_id=fields.int32(header, "queueId"),
            queue_offset=fields.int64(header, "queueOffset"),
            max_msg_nums=fields.int32(header, "maxMsgNums"),
        )
        sys_flag = fields.int32(header, "sysFlag")
        pull.message_filter = self._check(pull, sys_flag)
        if sys_flag & FLAG_COMMIT_OFFSET:
            commit_offset = fields.int64(header, "commitOffset", 0)
            if commit_offset >= 0:
                self.commit_offset(pull.group, pull.topic, pull.queue_id, commit_offset, connection)
        if sys_flag & FLAG_SUSPEND:
            timeout_ms = fields.int64(header, "suspendTimeoutMillis", 0, low=0)
            if not self._config.long_polling_enable:
                timeout_ms = self._config.short_polling_time_mills
            pull.suspend_timeout_ms = min(timeout_ms, SUSPEND_TIMEOUT_MS_MAX)
        result = pull.get()
        if isinstance(result, GetMessageResult):
            return self.answer_or_hold(pull, result)
        return self._answer_later(pull, result)

    def commit_offset(
        self, group: str, topic: str, queue_id: int, offset: int, connection: Connection
    ) -> None:
        """Store a consumer's offset, and tell the trace when it moved."""
        if self._tracer.watching and self._offsets.query(group, topic, queue_id) != offset:
            self._tracer.emit(
                "acknowledged",
                topic,
                queue_id,
                offset,
                group=group,
                client=connection.remote_address,
                client_id=self._client_id(group, connection),
            )
        self._offsets.commit(group, topic, queue_id, offset)

    def answer_or_hold(self, pull: Pull, result: GetMessageResult) -> RemotingCommand | None:
        """Return the answer, or None after the pull was parked."""
        code = code_of(result.status, pull.queue_offset)
        if (
            code is ResponseCode.PULL_NOT_FOUND
            and pull.suspend_timeout_ms
            and not self._hold.is_full(pull.connection)
        ):
            self._hold.hold(pull.topic, pull.queue_id, pull, pull.suspend_timeout_ms)
            return None
        return self.answer(pull, result)

    def answer(self, pull: Pull, result: GetMessageResult) -> RemotingCommand:
        status = result.status
        code = code_of(status, pull.queue_offset)
        found = status is GetMessageStatus.FOUND
        self._stats.got(
            pull.topic,
            pull.group,
            pull.queue_id,
            result.message_count if found else 0,
            result.byte_count,
        )
        if code is ResponseCode.PULL_OFFSET_MOVED:
            logger.warning(
                "offset moved: group=%s topic=%s queue_id=%d queue_offset=%d next=%d status=%s",
                pull.group,
                pull.topic,
                pull.queue_id,
                pull.queue_offset,
                result.next_begin_offset,
                status.name,
            )
        if found and self.on_pulled is not None:
            self.on_pulled(pull.group, pull.topic, pull.queue_id, result.next_begin_offset)
        if found and self._tracer.watching:
            self._trace_delivered(pull, result)
        return pull.request.answer(
            code,
            status.name,
            {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": str(result.next_begin_offset),
                "minOffset": str(result.min_offset),
                "maxOffset": str(result.max_offset),
            },
            result.buffers if found else b"",
        )

    async def _answer_later(
        self, pull: Pull, result: Awaitable[GetMessageResult]
    ) -> RemotingCommand | None:
        started = self._clock.monotonic()
        read = await result
        answer = self.answer_or_hold(pull, read)
        if read.status is GetMessageStatus.FOUND:
            took = self._clock.monotonic() - started
            self._stats.got_late(pull.topic, pull.group, pull.queue_id, took)
        return answer

    def _check(self, pull: Pull, sys_flag: int) -> MessageFilter | None:
        """Return the filter of a pull that is allowed.

        Raises:
            RequestRefusedError: it is not; the checks and their order are the original's.
        """
        config = self._config
        if not config.broker_permission & PERM_READ:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] pulling message is forbidden",
            )
        group_config = self._groups.find_or_create(pull.group)
        if group_config is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{pull.group}] does not exist",
            )
        if not group_config.consume_enable:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {pull.group}",
            )
        topic_config = self._topics.find(pull.topic)
        if topic_config is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{pull.topic}] not exist, apply first please!"
            )
        if not topic_config.is_readable or pull.topic in HIDDEN_TOPICS:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION, f"the topic[{pull.topic}] pulling message is forbidden"
            )
        if not 0 <= pull.queue_id < topic_config.read_queue_nums:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{pull.queue_id}] is illegal, topic:[{pull.topic}] "
                f"topicConfig.readQueueNums:[{topic_config.read_queue_nums}] "
                f"consumer:[{pull.connection.remote_address}]",
            )
        header = pull.request.ext_fields
        if sys_flag & FLAG_SUBSCRIPTION:
            expression_type = header.get("expressionType") or None
            wanted = _filter_of(pull.topic, header.get("subscription") or "", expression_type)
            if isinstance(wanted, SqlFilter):
                require_property_filter(config, expression_type)
        else:
            wanted = self._subscribed_filter(pull, group_config.consume_broadcast_enable)
        if config.filter_support_retry and pull.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return RetryFilter(wanted, functools.partial(self._retried_expression, pull.group))
        return wanted

    def _retried_expression(self, group: str, topic: str) -> Expression | None:
        found = self._filters.find(topic, group)
        return None if found is None else found.expression

    def _subscribed_filter(self, pull: Pull, broadcast_enable: bool) -> MessageFilter | None:
        group = self._consumers.find(pull.group)
        if group is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist"
            )
        if not broadcast_enable and group.message_model == "BROADCASTING":
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{pull.group}] can not consume by broadcast way",
            )
        subscription = group.subscriptions.get(pull.topic)
        if subscription is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: group {pull.group} topic {pull.topic}",
            )
        sub_version = fields.int64(pull.request.ext_fields, "subVersion", 0)
        if subscription.data.sub_version < sub_version:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if subscription.data.is_tag_expression:
            return subscription.tag_filter
        found = self._filters.find(pull.topic, pull.group)
        if found is None:
            raise RequestRefusedError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if found.client_version < sub_version:
            raise RequestRefusedError(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )
        require_property_filter(self._config, subscription.data.expression_type)
        return SqlFilter(found.expression, FilterBits(found.bit_map, found.born_time))

    def _trace_delivered(self, pull: Pull, result: GetMessageResult) -> None:
        now_ms = self._clock.now_ms()
        client_id = self._client_id(pull.group, pull.connection)
        for buffer in result.buffers:
            for message in decode_all(buffer):
                get = message.properties.get
                self._tracer.emit(
                    "delivered",
                    pull.topic,
                    pull.queue_id,
                    message.queue_offset,
                    commit_log_offset=str(message.commit_log_offset),
                    store_size=message.store_size,
                    body_size=len(message.body),
                    tags=get(PROPERTY_TAGS),
                    keys=get(PROPERTY_KEYS),
                    uniq_key=get(PROPERTY_UNIQ_KEY),
                    offset_msg_id=offset_msg_id(self._store_host, message.commit_log_offset),
                    group=pull.group,
                    client=pull.connection.remote_address,
                    client_id=client_id,
                    latency_us=max(0, now_ms - message.store_timestamp) * 1000,
                )

    def _client_id(self, group: str, connection: Connection) -> str | None:
        consumer_group = self._consumers.find(group)
        member = consumer_group.members.get(connection) if consumer_group else None
        return member.client_id if member else None


class Pull:
    """One pull request; parked, it is tried again when its queue grows."""

    __slots__ = (
        "_processor",
        "connection",
        "group",
        "max_msg_nums",
        "message_filter",
        "queue_id",
        "queue_offset",
        "request",
        "suspend_timeout_ms",
        "topic",
    )

    def __init__(
        self,
        processor: PullProcessor,
        request: RemotingCommand,
        connection: Connection,
        *,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
    ) -> None:
        self._processor = processor
        self.request = request
        self.connection = connection
        self.group = group
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.max_msg_nums = max(1, min(max_msg_nums, MAX_MSG_NUMS_MAX))
        self.suspend_timeout_ms = 0
        self.message_filter: MessageFilter | None = None

    def get(self) -> GetMessageResult | Awaitable[GetMessageResult]:
        return self._processor.store.get_message(
            self.topic, self.queue_id, self.queue_offset, self.max_msg_nums, self.message_filter
        )

    def attempt(self, *, is_last: bool) -> bool:
        """See HeldPull."""
        if not self.connection.is_open:
            return True
        result = self.get()
        if not isinstance(result, GetMessageResult):
            # Cold so soon after it arrived: let the client ask again, its next pull reads it.
            self.connection.send(self._retry_immediately())
            return True
        if not is_last:
            if result.status is GetMessageStatus.NO_MATCHED_MESSAGE:
                self.queue_offset = result.next_begin_offset
                return False
            if code_of(result.status, self.queue_offset) is ResponseCode.PULL_NOT_FOUND:
                return False
        self.connection.send(self._processor.answer(self, result))
        return True

    def _retry_immediately(self) -> RemotingCommand:
        store = self._processor.store
        return self.request.answer(
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            GetMessageStatus.NO_MATCHED_MESSAGE.name,
            {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": str(self.queue_offset),
                "minOffset": str(store.min_offset_in_queue(self.topic, self.queue_id)),
                "maxOffset": str(store.max_offset_in_queue(self.topic, self.queue_id)),
            },
        )


def code_of(status: GetMessageStatus, queue_offset: int) -> ResponseCode:
    """Return what a status is on the wire."""
    if status in EMPTY:
        moved = queue_offset != 0
        return ResponseCode.PULL_OFFSET_MOVED if moved else ResponseCode.PULL_NOT_FOUND
    return CODES[status]


def require_property_filter(config: BrokerConfig, expression_type: str | None) -> None:
    """Refuse an expression that is not of tags where that is not switched on.

    Raises:
        RequestRefusedError: it is not.
    """
    if not config.enable_property_filter:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )


@functools.lru_cache(FILTERS_KEPT)
def _filter_of(topic: str, expression: str, expression_type: str | None) -> MessageFilter | None:
    """Return the filter of a pull that brings its subscription with it.

    Differs: the original delivers every message where an SQL expression does not compile.
    """
    try:
        subscription = build_subscription(topic, expression, 0, expression_type)
        if subscription.is_tag_expression:
            return TagFilter.of(subscription)
        return SqlFilter(compile_filter(subscription.expression_type, expression))
    except ValueError as error:
        raise RequestRefusedError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed: {error}",
        ) from error
