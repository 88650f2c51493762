"""Heartbeats and what hangs on them: who is in a group, who may consume which queue.

Source: broker/processor/ClientManageProcessor.java, ConsumerManageProcessor.java,
AdminBrokerProcessor.java lockBatchMQ (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from broker_core.clients.consumers import ConsumerMember
from broker_core.clients.producers import ProducerMember
from broker_core.clients.rebalance_locks import LockedQueue
from broker_core.delivery.sql_filter import compile_filter
from broker_core.errors import RequestRefusedError
from broker_core.message import names
from broker_core.message.subscription import (
    EXPRESSION_TYPE_TAG,
    SubscriptionData,
    build_subscription,
)
from broker_core.processors.pull import require_property_filter
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.headers import fields

if TYPE_CHECKING:
    from broker_core.clients.client import ClientConnection
    from broker_core.clients.consumers import Consumers
    from broker_core.clients.producers import Producers
    from broker_core.clients.rebalance_locks import RebalanceLocks
    from broker_core.clock import Clock
    from broker_core.config import BrokerConfig
    from broker_core.delivery.sql92.expression import Expression
    from broker_core.metadata.consumer_filters import ConsumerFilters
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.remoting.connection import Connection

T = TypeVar("T")


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


class HeartbeatSubscription(msgspec.Struct, rename="camel", kw_only=True):
    """A subscription as a client sends it; its code_set is not read, see build_subscription."""

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
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._filters = filters
        self._consumers = consumers
        self._producers = producers
        self._locks = locks
        self._clock = clock

    def heart_beat(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """HEART_BEAT. Answers SUCCESS; the version in the answer is what SQL consumers look at."""
        data = read_body(request, HeartbeatData)
        now = self._clock.monotonic()
        for consumer in data.consumer_data_set:
            self._register_consumer(request, connection, data.client_id, consumer, now)
        for producer in data.producer_data_set:
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
        return request.answer(ResponseCode.SUCCESS)

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
        """CHECK_CLIENT_CONFIG. Answers SUCCESS for a tag expression and for one that compiles;
        SYSTEM_ERROR without enablePropertyFilter, SUBSCRIPTION_PARSE_FAILED with the reason.
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
        """GET_CONSUMER_LIST_BY_GROUP. Answers SUCCESS with the client ids, else SYSTEM_ERROR."""
        group = fields.text(request.ext_fields, "consumerGroup")
        found = self._consumers.find(group)
        if found is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        body = java_json.encode({"consumerIdList": found.client_ids()})
        return request.answer(ResponseCode.SUCCESS, body=body)

    def lock_batch_mq(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """LOCK_BATCH_MQ. Answers SUCCESS with the queues the client now holds, maybe none."""
        wanted = read_body(request, LockBatchRequest)
        held = self._locks.lock(wanted.consumer_group, _queues(wanted), wanted.client_id)
        locked = [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
            for queue in held
        ]
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode({"lockOKMQSet": locked}))

    def unlock_batch_mq(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """UNLOCK_BATCH_MQ. Answers SUCCESS."""
        wanted = read_body(request, LockBatchRequest)
        self._locks.unlock(wanted.consumer_group, _queues(wanted), wanted.client_id)
        return request.answer(ResponseCode.SUCCESS)

    def notify_consumer_ids_changed(self, group: str, connections: list[ClientConnection]) -> None:
        """Tell a group's members that they must share the queues anew."""
        for connection in connections:
            notice = RemotingCommand.request(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}
            )
            cast("Connection", connection).oneway(notice)

    def _register_consumer(
        self,
        request: RemotingCommand,
        connection: Connection,
        client_id: str,
        data: ConsumerData,
        now: float,
    ) -> None:
        group_config = self._groups.find_or_create(data.group_name)
        if group_config is not None and group_config.retry_queue_nums > 0:
            # Tools ask for the route of a group's retry topic before they ask for the group.
            self._topics.create_retry(
                names.retry_topic(data.group_name), group_config.retry_queue_nums
            )
        subscriptions = [_subscription(one) for one in data.subscription_data_set]
        self._consumers.register(
            connection,
            data.group_name,
            ConsumerMember(client_id, request.language, request.version, now),
            data.consume_type,
            data.message_model,
            data.consume_from_where,
            subscriptions,
            notify=self._notifies(data.group_name),
        )
        self._filters.register(data.group_name, subscriptions)

    def _notifies(self, group: str) -> bool:
        group_config = self._groups.find(group)
        return self._config.notify_consumer_ids_changed_enable and (
            group_config is None or group_config.notify_consumer_ids_changed_enable
        )


def read_body(request: RemotingCommand, kind: type[T]) -> T:
    """Return a request's JSON body as a structure.

    Raises:
        RequestRefusedError: the body is not that.
    """
    try:
        return java_json.decode_as(request.body, kind)
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
        # `||` subscribes to nothing in the original too; the group is registered all the same.
        return SubscriptionData(
            topic=data.topic,
            sub_string=data.sub_string or "",
            sub_version=data.sub_version,
            expression_type=data.expression_type or EXPRESSION_TYPE_TAG,
        )


def _queues(wanted: LockBatchRequest) -> list[LockedQueue]:
    return [LockedQueue(one.topic, one.broker_name, one.queue_id) for one in wanted.mq_set]
