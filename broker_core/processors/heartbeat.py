"""Heartbeats: group members, their subscriptions and their queue locks.

Source: broker/processor/ClientManageProcessor.java, ConsumerManageProcessor.java,
AdminBrokerProcessor.java lockBatchMQ (4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from broker_core.clients.consumers import ConsumerMember, subscription_text
from broker_core.clients.producers import ProducerMember
from broker_core.clients.rebalance_locks import LockedQueue
from broker_core.config.limits import LIMITS
from broker_core.delivery.sql_filter import compile_filter
from broker_core.errors import RequestRefusedError
from broker_core.isolation import isolated
from broker_core.message import names
from broker_core.message.subscription import (
    EXPRESSION_TYPE_TAG,
    SubscriptionData,
    build_subscription,
)
from broker_core.message.topic_config import FLAG_UNIT_SUB
from broker_core.processors.subscription_check import require_property_filter
from broker_core.protocol import java_json
from broker_core.protocol.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.headers import fields
from broker_core.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Iterable

    from broker_core.clients.client import ClientConnection
    from broker_core.clients.consumers import Consumers
    from broker_core.clients.producers import Producers
    from broker_core.clients.rebalance_locks import RebalanceLocks
    from broker_core.clock import Clock
    from broker_core.config.broker import BrokerConfig
    from broker_core.config.limits import LimitsConfig
    from broker_core.delivery.sql92.expression import Expression
    from broker_core.metadata.consumer_filters import ConsumerFilters
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.remoting.connection import Connection

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLIENT_ID_CHARS_MAX = 255
WORD_CHARS_MAX = 64
"""Limit for a group's consume settings, an expression's type and a client's language."""
PARTS_AT_ONCE = 100
"""A heartbeat with more groups and subscriptions takes several turns of its connection."""


class ProducerData(msgspec.Struct, rename="camel"):
    """A producer group in a heartbeat."""

    group_name: str


class ConsumerData(msgspec.Struct, rename="camel", kw_only=True):
    """A consumer group in a heartbeat."""

    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    consume_type: str = "CONSUME_PASSIVELY"
    group_name: str
    message_model: str = "CLUSTERING"
    subscription_data_set: list[HeartbeatSubscription] = []
    unit_mode: bool = False


class HeartbeatSubscription(msgspec.Struct, rename="camel", kw_only=True):
    """A subscription as sent by a client; its code_set isn't read, see build_subscription."""

    expression_type: str | None = None
    sub_string: str | None = None
    sub_version: int = 0
    topic: str


class HeartbeatData(msgspec.Struct, kw_only=True):
    """The body of HEART_BEAT."""

    client_id: str = msgspec.field(name="clientID")
    consumer_data_set: list[ConsumerData] = msgspec.field(name="consumerDataSet", default=[])
    producer_data_set: list[ProducerData] = msgspec.field(name="producerDataSet", default=[])


class CheckClientRequest(msgspec.Struct, rename="camel", kw_only=True):
    """The body of CHECK_CLIENT_CONFIG."""

    client_id: str = ""
    group: str = ""
    subscription_data: HeartbeatSubscription | None = None


class QueueInRequest(msgspec.Struct, rename="camel"):
    """A queue in a lock or unlock request."""

    broker_name: str
    queue_id: int
    topic: str


class LockBatchRequest(msgspec.Struct, rename="camel", kw_only=True):
    """The body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    client_id: str
    consumer_group: str
    mq_set: list[QueueInRequest] = []


class HeartbeatProcessor:
    """HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG, GET_CONSUMER_LIST_BY_GROUP,
    LOCK_BATCH_MQ, UNLOCK_BATCH_MQ. Event loop only.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        groups: SubscriptionGroups,
        filters: ConsumerFilters[Expression],
        consumers: Consumers,
        producers: Producers,
        locks: RebalanceLocks,
        clock: Clock,
        limits: LimitsConfig = LIMITS,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._filters = filters
        self._consumers = consumers
        self._producers = producers
        self._locks = locks
        self._clock = clock
        self._limits = limits

    def heart_beat(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """HEART_BEAT. Answers SUCCESS; SQL consumers read the version in the answer.

        Differs: SYSTEM_ERROR for more groups or subscriptions than LimitsConfig allows.
        """
        data = read_body(request, HeartbeatData)
        self._require_bounded(data)
        _require_words(
            [
                request.language,
                *(
                    word
                    for one in data.consumer_data_set
                    for word in (one.consume_from_where, one.consume_type, one.message_model)
                ),
                *(
                    one.expression_type or ""
                    for consumer in data.consumer_data_set
                    for one in consumer.subscription_data_set
                ),
            ]
        )
        steps = self._register(request, connection, data)
        if _size(data) > PARTS_AT_ONCE:
            return _answer_after(request, connection.run_alone(steps))
        run_to_end(steps)
        return request.answer(ResponseCode.SUCCESS)

    def _register(
        self, request: RemotingCommand, connection: Connection, data: HeartbeatData
    ) -> Generator[None, None, None]:
        """Register a client's groups; yield after each group and after compiling each filter."""
        now = self._clock.monotonic()
        yield from self._register_consumers(request, connection, data, now)
        for producer in data.producer_data_set:
            if not connection.is_open:
                return
            self._producers.register(
                connection,
                producer.group_name,
                ProducerMember(
                    data.client_id,
                    request.language,
                    request.version,
                    now,
                    self._clock.now_ms(),
                ),
            )
            yield

    def unregister_client(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """UNREGISTER_CLIENT. Answers SUCCESS."""
        header = request.ext_fields
        producer_group = header.get("producerGroup")
        if producer_group:
            self._producers.unregister(connection, producer_group)
        consumer_group = header.get("consumerGroup")
        if consumer_group:
            self._consumers.unregister(
                connection, consumer_group, notify=self._notifies(consumer_group)
            )
        return request.answer(ResponseCode.SUCCESS)

    def check_client_config(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """CHECK_CLIENT_CONFIG. Answers SUCCESS for a tag expression and for SQL that compiles;
        SYSTEM_ERROR without enablePropertyFilter; SUBSCRIPTION_PARSE_FAILED with the reason.
        """
        subscription = read_body(request, CheckClientRequest).subscription_data
        expression_type = subscription.expression_type if subscription is not None else None
        if subscription is None or expression_type in (None, "", EXPRESSION_TYPE_TAG):
            return request.answer(ResponseCode.SUCCESS)
        require_property_filter(self._config, expression_type)
        try:
            compile_filter(expression_type or "", subscription.sub_string or "")
        except ValueError as error:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"Invalid MessageSelector. {error}"
            ) from error
        return request.answer(ResponseCode.SUCCESS)

    def get_consumer_list_by_group(
        self, request: RemotingCommand, _: Connection
    ) -> RemotingCommand:
        """GET_CONSUMER_LIST_BY_GROUP. Answers SUCCESS with the client IDs, else SYSTEM_ERROR."""
        group = fields.text(request.ext_fields, "consumerGroup")
        found = self._consumers.find(group)
        if found is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}"
            )
        body = java_json.encode({"consumerIdList": found.client_ids()})
        return request.answer(ResponseCode.SUCCESS, body=body)

    def lock_batch_mq(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """LOCK_BATCH_MQ. Answers SUCCESS with the queues that the client has locked, possibly
        empty.
        """
        wanted = read_body(request, LockBatchRequest)
        most = self._limits.client_lock_nums_max
        _require_at_most(most, len(wanted.mq_set), "clientLockNumsMax", "queues")
        _require_short(
            wanted.client_id,
            [wanted.consumer_group, *(one.topic for one in wanted.mq_set)],
            [one.broker_name for one in wanted.mq_set],
        )
        host = connection.remote_address.rpartition(":")[0]
        held = self._locks.lock(wanted.consumer_group, _queues(wanted), wanted.client_id, host)
        locked = [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
            for queue in held
        ]
        # Identical to fastjson's text, as the keys are sorted and all are strings; C encodes
        # thousands of them.
        body = msgspec.json.encode({"lockOKMQSet": locked})
        return request.answer(ResponseCode.SUCCESS, body=body)

    def unlock_batch_mq(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """UNLOCK_BATCH_MQ. Answers SUCCESS."""
        wanted = read_body(request, LockBatchRequest)
        self._locks.unlock(wanted.consumer_group, _queues(wanted), wanted.client_id)
        return request.answer(ResponseCode.SUCCESS)

    def _require_bounded(self, data: HeartbeatData) -> None:
        limits = self._limits
        for groups in (data.consumer_data_set, data.producer_data_set):
            most = limits.client_group_nums_max
            _require_at_most(most, len(groups), "clientGroupNumsMax", "groups")
        subscriptions = [
            one for consumer in data.consumer_data_set for one in consumer.subscription_data_set
        ]
        most = limits.client_subscription_nums_max
        _require_at_most(most, len(subscriptions), "clientSubscriptionNumsMax", "subscriptions")
        chars = sum(len(one.sub_string or "") for one in subscriptions)
        most = limits.client_expression_chars_max
        _require_at_most(most, chars, "clientExpressionCharsMax", "characters of expressions")
        _require_short(
            data.client_id,
            (consumer.group_name for consumer in data.consumer_data_set),
            (producer.group_name for producer in data.producer_data_set),
            (one.topic for one in subscriptions),
        )

    def _register_consumers(
        self, request: RemotingCommand, connection: Connection, data: HeartbeatData, now: float
    ) -> Generator[None, None, None]:
        # Log one line instead of one for each of 500 groups, which would cost more than the groups.
        joined: list[str] = []
        filters = 0
        try:
            for consumer in data.consumer_data_set:
                if not connection.is_open:
                    # The broker has already removed this client; a new member would stay forever.
                    return
                subscriptions = [_subscription(one) for one in consumer.subscription_data_set]
                if self._register_consumer(
                    request, connection, data.client_id, consumer, subscriptions, now
                ):
                    joined.append(consumer.group_name)
                yield
                filters += yield from self._filters.register_steps(
                    consumer.group_name, subscriptions
                )
        finally:
            if joined or filters:
                logger.info(
                    "consumer joined group=%s groups=%d filters=%d client_id=%s address=%s",
                    joined[0] if joined else "",
                    len(joined),
                    filters,
                    data.client_id,
                    connection.remote_address,
                )

    def _register_consumer(
        self,
        request: RemotingCommand,
        connection: Connection,
        client_id: str,
        data: ConsumerData,
        subscriptions: list[SubscriptionData],
        now: float,
    ) -> bool:
        """Register a group; return whether the connection is new to it."""
        group_config = self._groups.find_or_create(data.group_name)
        if group_config is not None and group_config.retry_queue_nums > 0:
            # Tools ask for the route of a group's retry topic before they ask for the group.
            self._topics.create_retry(
                names.retry_topic(data.group_name),
                group_config.retry_queue_nums,
                FLAG_UNIT_SUB if data.unit_mode else 0,
            )
        return self._consumers.register(
            connection,
            data.group_name,
            ConsumerMember(
                client_id, request.language, request.version, now, subscription_text(subscriptions)
            ),
            data.consume_type,
            data.message_model,
            data.consume_from_where,
            subscriptions,
            notify=self._notifies(data.group_name),
        )

    def _notifies(self, group: str) -> bool:
        group_config = self._groups.find(group)
        return self._config.notify_consumer_ids_changed_enable and (
            group_config is None or group_config.notify_consumer_ids_changed_enable
        )


def _size(data: HeartbeatData) -> int:
    """Return the number of groups and subscriptions in a heartbeat."""
    return len(data.producer_data_set) + sum(
        1 + len(consumer.subscription_data_set) for consumer in data.consumer_data_set
    )


async def _answer_after(request: RemotingCommand, done: Awaitable[None]) -> RemotingCommand:
    await done
    return request.answer(ResponseCode.SUCCESS)


def notify_consumer_ids_changed(group: str, connections: list[ClientConnection]) -> None:
    """Notify a group's members to rebalance."""
    notice = RemotingCommand.request(
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}
    )
    notice.flag |= ONEWAY_FLAG
    # Encode one frame for all: the members don't answer it, so its opaque has no meaning.
    frame = notice.encode()
    for connection in connections:
        with isolated("notifying a consumer", connection.remote_address):
            cast("Connection", connection).send(frame)


def _require_at_most(most: int, count: int, key: str, what: str) -> None:
    if count > most:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR, f"{what}: {count} is more than {key}={most}"
        )


def _require_short(client_id: str, *texts: Iterable[str]) -> None:
    longest = max((len(text) for some in texts for text in some), default=0)
    if longest > names.GROUP_LENGTH_MAX or len(client_id) > CLIENT_ID_CHARS_MAX:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"a name in the request has {longest} characters and the client id {len(client_id)}: "
            f"no more than {names.GROUP_LENGTH_MAX} and {CLIENT_ID_CHARS_MAX} are allowed",
        )


def _require_words(words: list[str]) -> None:
    longest = max(map(len, words))
    if longest > WORD_CHARS_MAX:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"a consumer setting has {longest} characters: no more than {WORD_CHARS_MAX} are "
            "allowed",
        )


def read_body(request: RemotingCommand, kind: type[T]) -> T:
    """Decode a request's JSON body into a struct.

    Raises:
        RequestRefusedError: the body doesn't match the struct.
    """
    try:
        return java_json.decode_request(request.body, kind)
    except ValueError as error:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR, f"the request's body cannot be read: {error}"
        ) from error


def _subscription(data: HeartbeatSubscription) -> SubscriptionData:
    try:
        return build_subscription(
            data.topic, data.sub_string, data.sub_version, data.expression_type
        )
    except ValueError:
        # `||` subscribes to nothing, as in RocketMQ; the group is registered anyway.
        return SubscriptionData(
            topic=data.topic,
            sub_string=data.sub_string or "",
            sub_version=data.sub_version,
            expression_type=data.expression_type or EXPRESSION_TYPE_TAG,
        )


def _queues(wanted: LockBatchRequest) -> list[LockedQueue]:
    return [LockedQueue(one.topic, one.broker_name, one.queue_id) for one in wanted.mq_set]
