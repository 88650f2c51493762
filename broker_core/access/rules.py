"""What each request needs: one row a code. A code without a row is refused.

Source: acl/plain/PlainAccessValidator.java, acl/common/Permission.java (4.9.7).
Differs: the original asks nothing but an account of batches (320), offsets read (14), queue locks
(41, 42), expressions (46) and of most requests of administration. Here the first four need what
their clients have anyway, and what changes the broker, reads its configuration or accounts, or
watches other people's messages needs an administrator. A send to a retry topic needs SUB on that
topic's group, not on whatever group the request names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from broker_core.access.account import Permission
from broker_core.message.names import RETRY_GROUP_TOPIC_PREFIX
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker_core.protocol.command import RemotingCommand

PUB, SUB = Permission.PUB, Permission.SUB


class Need(NamedTuple):
    """A permission on a topic, or on a group by its retry topic's name."""

    resource: str
    action: int


class Rule(NamedTuple):
    """A row: in words what the request acts on and how, and how to find that in the request."""

    resource: str
    action: str
    needs: Callable[[RemotingCommand], Iterable[Need]]
    is_admin: bool = False


def _group(name: str) -> Need:
    return Need(RETRY_GROUP_TOPIC_PREFIX + name, SUB)


def _nothing(_: RemotingCommand) -> Iterable[Need]:
    return ()


def _send(field: str) -> Rule:
    """Return the row of a send to the topic in a field; to a retry topic its own group sends."""

    def needs(request: RemotingCommand) -> Iterable[Need]:
        topic = request.ext_fields.get(field)
        if topic is None:
            return ()
        return (Need(topic, SUB if topic.startswith(RETRY_GROUP_TOPIC_PREFIX) else PUB),)

    return Rule("topic", "PUB", needs)


def _subscribe(*, topic: str | None = None, group: str | None = None) -> Rule:
    """Return the row of a request that reads the topic and as the group in these fields."""

    def needs(request: RemotingCommand) -> Iterable[Need]:
        fields = request.ext_fields
        if topic is not None and topic in fields:
            yield Need(fields[topic], SUB)
        if group is not None and group in fields:
            yield _group(fields[group])

    words = [word for word, key in (("topic", topic), ("group", group)) if key is not None]
    return Rule(" and ".join(words), "SUB", needs)


class _Subscription(msgspec.Struct):
    topic: str | None = None


class _Consumer(msgspec.Struct, rename="camel"):
    group_name: str | None = None
    subscription_data_set: list[_Subscription] | None = None


class _Heartbeat(msgspec.Struct):
    consumers: list[_Consumer] | None = msgspec.field(name="consumerDataSet", default=None)


class _Queues(msgspec.Struct, rename="camel"):
    consumer_group: str | None = None
    mq_set: list[_Subscription] | None = None


class _ClientConfig(msgspec.Struct, rename="camel"):
    group: str | None = None
    subscription_data: _Subscription | None = None


def _heartbeat(request: RemotingCommand) -> Iterable[Need]:
    for consumer in java_json.decode_as(request.body, _Heartbeat).consumers or ():
        if consumer.group_name is not None:
            yield _group(consumer.group_name)
        yield from _topics(consumer.subscription_data_set or ())


def _queues(request: RemotingCommand) -> Iterable[Need]:
    body = java_json.decode_as(request.body, _Queues)
    if body.consumer_group is not None:
        yield _group(body.consumer_group)
    yield from _topics(body.mq_set or ())


def _client_config(request: RemotingCommand) -> Iterable[Need]:
    body = java_json.decode_as(request.body, _ClientConfig)
    if body.group is not None:
        yield _group(body.group)
    if body.subscription_data is not None:
        yield from _topics((body.subscription_data,))


def _topics(subscriptions: Iterable[_Subscription]) -> Iterable[Need]:
    return (Need(one.topic, SUB) for one in subscriptions if one.topic is not None)


ANY_ACCOUNT = Rule("any", "any", _nothing)
ADMINISTRATOR = Rule("broker", "administer", _nothing, is_admin=True)

RULES: dict[int, Rule] = {
    # Messages.
    RequestCode.SEND_MESSAGE: _send("topic"),
    RequestCode.SEND_MESSAGE_V2: _send("b"),
    RequestCode.SEND_BATCH_MESSAGE: _send("b"),
    RequestCode.SEND_REPLY_MESSAGE: ANY_ACCOUNT,
    RequestCode.SEND_REPLY_MESSAGE_V2: ANY_ACCOUNT,
    RequestCode.END_TRANSACTION: ANY_ACCOUNT,
    RequestCode.CONSUMER_SEND_MSG_BACK: _subscribe(group="group"),
    RequestCode.PULL_MESSAGE: _subscribe(topic="topic", group="consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: _subscribe(topic="topic", group="consumerGroup"),
    RequestCode.QUERY_MESSAGE: _subscribe(topic="topic"),
    RequestCode.VIEW_MESSAGE_BY_ID: ANY_ACCOUNT,
    RequestCode.RECALL_MESSAGE: _send("topic"),
    # Clients.
    RequestCode.HEART_BEAT: Rule("topic and group", "SUB", _heartbeat),
    RequestCode.UNREGISTER_CLIENT: _subscribe(group="consumerGroup"),
    RequestCode.CHECK_CLIENT_CONFIG: Rule("topic and group", "SUB", _client_config),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _subscribe(group="consumerGroup"),
    RequestCode.LOCK_BATCH_MQ: Rule("topic and group", "SUB", _queues),
    RequestCode.UNLOCK_BATCH_MQ: Rule("topic and group", "SUB", _queues),
    # Offsets.
    RequestCode.QUERY_CONSUMER_OFFSET: _subscribe(topic="topic", group="consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _subscribe(topic="topic", group="consumerGroup"),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: ANY_ACCOUNT,
    RequestCode.GET_MAX_OFFSET: ANY_ACCOUNT,
    RequestCode.GET_MIN_OFFSET: ANY_ACCOUNT,
    RequestCode.GET_EARLIEST_MSG_STORETIME: ANY_ACCOUNT,
    # Administration that reads.
    RequestCode.GET_ALL_TOPIC_CONFIG: ANY_ACCOUNT,
    RequestCode.GET_TOPIC_CONFIG: ANY_ACCOUNT,
    RequestCode.GET_BROKER_RUNTIME_INFO: ANY_ACCOUNT,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: ANY_ACCOUNT,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: ANY_ACCOUNT,
    RequestCode.GET_TOPIC_STATS_INFO: ANY_ACCOUNT,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: ANY_ACCOUNT,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: ANY_ACCOUNT,
    RequestCode.GET_ALL_PRODUCER_INFO: ANY_ACCOUNT,
    RequestCode.GET_CONSUME_STATS: ANY_ACCOUNT,
    RequestCode.GET_BROKER_CONSUME_STATS: ANY_ACCOUNT,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: ANY_ACCOUNT,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: ANY_ACCOUNT,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: ANY_ACCOUNT,
    RequestCode.QUERY_CONSUME_TIME_SPAN: ANY_ACCOUNT,
    RequestCode.QUERY_CORRECTION_OFFSET: ANY_ACCOUNT,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: ANY_ACCOUNT,
    RequestCode.VIEW_BROKER_STATS_DATA: ANY_ACCOUNT,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ANY_ACCOUNT,
    RequestCode.GET_BROKER_HA_STATUS: ANY_ACCOUNT,
    # Administration that changes, and what no one else is to see.
    RequestCode.UPDATE_AND_CREATE_TOPIC: ADMINISTRATOR,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: ADMINISTRATOR,
    RequestCode.DELETE_TOPIC_IN_BROKER: ADMINISTRATOR,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ADMINISTRATOR,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: ADMINISTRATOR,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: ADMINISTRATOR,
    RequestCode.UPDATE_BROKER_CONFIG: ADMINISTRATOR,
    RequestCode.GET_BROKER_CONFIG: ADMINISTRATOR,
    RequestCode.GET_ALL_CONSUMER_OFFSET: ADMINISTRATOR,
    RequestCode.GET_ALL_DELAY_OFFSET: ADMINISTRATOR,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: ADMINISTRATOR,
    RequestCode.CLONE_GROUP_OFFSET: ADMINISTRATOR,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: ADMINISTRATOR,
    RequestCode.GET_CONSUMER_RUNNING_INFO: ADMINISTRATOR,
    RequestCode.QUERY_CONSUME_QUEUE: ADMINISTRATOR,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: ADMINISTRATOR,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: ADMINISTRATOR,
    RequestCode.CLEAN_UNUSED_TOPIC: ADMINISTRATOR,
    RequestCode.DELETE_EXPIRED_COMMITLOG: ADMINISTRATOR,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: ADMINISTRATOR,
    RequestCode.DELETE_ACL_CONFIG: ADMINISTRATOR,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: ADMINISTRATOR,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: ADMINISTRATOR,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: ADMINISTRATOR,
    RequestCode.TRACE_WATCH: ADMINISTRATOR,
    RequestCode.TRACE_UNWATCH: ADMINISTRATOR,
}
