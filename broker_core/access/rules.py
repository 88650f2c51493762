"""The permissions that each request needs, one row per code. A code without a row is refused.

Source: acl/plain/PlainAccessValidator.java, acl/common/Permission.java (4.9.7).
Differs: RocketMQ requires only an account for batches (320), reading offsets (14), queue locks
(41, 42), checking expressions (46) and most administrative requests. Here the first four require
the permissions that their clients have anyway, and only an administrator may change the broker,
read its configuration or accounts, or watch other clients' messages. A request with a message's log
offset requires a permission on that message's topic (`found`). A send to a retry topic needs SUB on
that topic's group, regardless of the group in the request. RocketMQ's name server doesn't
require accounts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from broker_core.access.account import Permission
from broker_core.message.names import RETRY_GROUP_TOPIC_PREFIX, pop_retry_topic
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker_core.protocol.command import RemotingCommand

PUB, SUB = Permission.PUB, Permission.SUB


class Need(NamedTuple):
    """A permission on a topic; for a group, `topic` is the name of its retry topic."""

    resource: str
    action: int


TRACE_NEED = Need("RMQ_SYS_TRACE_TOPIC", Permission.PUB)
"""Every account may send traces."""


class Rule(NamedTuple):
    """A row: resource and action in words, and a function that finds them in a request."""

    resource: str
    action: str
    needs: Callable[[RemotingCommand], Iterable[Need]]
    is_admin: bool = False
    is_broker: bool = False
    """Whether brokers' accounts have the same rights here as administrators' accounts."""
    found: str = ""
    """Describes the processor's later check of the message or other object that it finds."""
    is_private: bool = False
    """Whether the request is limited to the administration listener, if there is one; so are
    requests that need an administrator.
    """


def publish_needs(topic: str) -> list[Need]:
    """Return the permissions for a RocketMQ 5 client to send, end a transaction, or recall."""
    return [Need(topic, PUB)]


def subscribe_needs(topics: Iterable[str], group: str) -> list[Need]:
    """Return the permissions for a RocketMQ 5 client to consume topics in a group."""
    return [*(Need(topic, SUB) for topic in topics), _group(group)]


def _group(name: str) -> Need:
    return Need(RETRY_GROUP_TOPIC_PREFIX + name, SUB)


def _nothing(_: RemotingCommand) -> Iterable[Need]:
    return ()


def _send(field: str) -> Rule:
    """Return the row of a send to the topic in a field; a retry topic needs SUB on its group."""

    def needs(request: RemotingCommand) -> Iterable[Need]:
        topic = request.ext_fields.get(field)
        if topic is None:
            return ()
        return (Need(topic, SUB if topic.startswith(RETRY_GROUP_TOPIC_PREFIX) else PUB),)

    return Rule("topic", "PUB", needs)


def _subscribe(*, topic: str | None = None, group: str | None = None) -> Rule:
    """Return the row of a read request; the arguments name its topic and group fields."""

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
    for consumer in java_json.decode_request(request.body, _Heartbeat).consumers or ():
        if consumer.group_name is not None:
            yield _group(consumer.group_name)
        yield from _topics(consumer.subscription_data_set or ())


def _queues(request: RemotingCommand) -> Iterable[Need]:
    body = java_json.decode_request(request.body, _Queues)
    if body.consumer_group is not None:
        yield _group(body.consumer_group)
    yield from _topics(body.mq_set or ())


def _leased(topic: str, group: str) -> Iterable[Need]:
    """Yield the permissions for a message that a group has leased from a topic, or its retries."""
    yield Need(topic.removeprefix(pop_retry_topic(group, "")), SUB)
    yield _group(group)


def _lease(request: RemotingCommand) -> Iterable[Need]:
    fields = request.ext_fields
    if "topic" in fields and "consumerGroup" in fields:
        yield from _leased(fields["topic"], fields["consumerGroup"])


class _Ack(msgspec.Struct):
    group: str | None = msgspec.field(name="c", default=None)
    topic: str | None = msgspec.field(name="t", default=None)


class _Acks(msgspec.Struct):
    acks: list[_Ack] | None = None


def _acks(request: RemotingCommand) -> Iterable[Need]:
    if not request.body:
        return
    for ack in java_json.decode_as(request.body, _Acks).acks or ():
        if ack.group is not None and ack.topic is not None:
            yield from _leased(ack.topic, ack.group)


class _Assignment(msgspec.Struct, rename="camel"):
    consumer_group: str | None = None
    topic: str | None = None


def _assignment(request: RemotingCommand) -> Iterable[Need]:
    body = java_json.decode_as(request.body, _Assignment)
    if body.topic is not None:
        yield Need(body.topic, SUB)
    if body.consumer_group is not None:
        yield _group(body.consumer_group)


def _client_config(request: RemotingCommand) -> Iterable[Need]:
    body = java_json.decode_request(request.body, _ClientConfig)
    if body.group is not None:
        yield _group(body.group)
    if body.subscription_data is not None:
        yield from _topics((body.subscription_data,))


def _topics(subscriptions: Iterable[_Subscription]) -> Iterable[Need]:
    return (Need(one.topic, SUB) for one in subscriptions if one.topic is not None)


ANY_ACCOUNT = Rule("any", "any", _nothing)
REPLY = ANY_ACCOUNT._replace(found="PUB on a topic that is not the cluster's reply topic")
ADMINISTRATOR = Rule("broker", "administer", _nothing, is_admin=True)
FOLLOWER = Rule("broker", "follow", _nothing, is_admin=True, is_broker=True)
"""The requests of a slave to its master."""
REGISTRATION = Rule("name server", "register", _nothing, is_admin=True, is_broker=True)

TRACE = ANY_ACCOUNT._replace(found="SUB on each event's topic", is_private=True)

RULES: dict[int, Rule] = {
    # Messages.
    RequestCode.SEND_MESSAGE: _send("topic"),
    RequestCode.SEND_MESSAGE_V2: _send("b"),
    RequestCode.SEND_BATCH_MESSAGE: _send("b"),
    RequestCode.SEND_REPLY_MESSAGE: REPLY,
    RequestCode.SEND_REPLY_MESSAGE_V2: REPLY,
    RequestCode.END_TRANSACTION: ANY_ACCOUNT._replace(found="PUB on the half message's topic"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _subscribe(group="group")._replace(
        found="SUB on the message's topic"
    ),
    RequestCode.PULL_MESSAGE: _subscribe(topic="topic", group="consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: _subscribe(topic="topic", group="consumerGroup"),
    RequestCode.QUERY_MESSAGE: _subscribe(topic="topic"),
    RequestCode.VIEW_MESSAGE_BY_ID: ANY_ACCOUNT._replace(found="SUB on the message's topic"),
    RequestCode.RECALL_MESSAGE: _send("topic"),
    # Leased messages.
    RequestCode.POP_MESSAGE: _subscribe(topic="topic", group="consumerGroup"),
    RequestCode.PEEK_MESSAGE: _subscribe(topic="topic", group="consumerGroup"),
    RequestCode.NOTIFICATION: _subscribe(topic="topic", group="consumerGroup"),
    RequestCode.POLLING_INFO: _subscribe(topic="topic", group="consumerGroup"),
    RequestCode.ACK_MESSAGE: Rule("topic and group", "SUB", _lease),
    RequestCode.BATCH_ACK_MESSAGE: Rule("topic and group", "SUB", _acks),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Rule("topic and group", "SUB", _lease),
    RequestCode.QUERY_ASSIGNMENT: Rule("topic and group", "SUB", _assignment),
    RequestCode.SET_MESSAGE_REQUEST_MODE: ADMINISTRATOR,
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
    # Administration, read-only.
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
    # Administration that changes the broker, or reads data reserved for administrators.
    RequestCode.UPDATE_AND_CREATE_TOPIC: ADMINISTRATOR,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: ADMINISTRATOR,
    RequestCode.DELETE_TOPIC_IN_BROKER: ADMINISTRATOR,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ADMINISTRATOR,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: ADMINISTRATOR,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: ADMINISTRATOR,
    RequestCode.UPDATE_BROKER_CONFIG: ADMINISTRATOR,
    RequestCode.GET_BROKER_CONFIG: ADMINISTRATOR,
    RequestCode.GET_ALL_CONSUMER_OFFSET: FOLLOWER,
    RequestCode.GET_ALL_DELAY_OFFSET: FOLLOWER,
    RequestCode.GET_ALL_CONSUMER_FILTER: FOLLOWER,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: FOLLOWER,
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: FOLLOWER,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: ADMINISTRATOR,
    RequestCode.RESET_OFFSETS: ADMINISTRATOR,
    RequestCode.GET_HALF_MESSAGES: ADMINISTRATOR,
    RequestCode.CHECK_HALF_MESSAGE: ADMINISTRATOR,
    RequestCode.GET_TIMER_MESSAGES: ADMINISTRATOR,
    RequestCode.CLONE_GROUP_OFFSET: ADMINISTRATOR,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: ADMINISTRATOR._replace(
        found="SUB on the message's topic"
    ),
    RequestCode.GET_CONSUMER_RUNNING_INFO: ADMINISTRATOR,
    RequestCode.DISCONNECT_CLIENT: ADMINISTRATOR,
    RequestCode.UPDATE_DELAY_OFFSET: ADMINISTRATOR,
    RequestCode.UPDATE_CONSUMER_FILTER: ADMINISTRATOR,
    RequestCode.DELETE_CONSUMER_FILTER: ADMINISTRATOR,
    RequestCode.QUERY_CONSUME_QUEUE: ADMINISTRATOR,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: ADMINISTRATOR._replace(
        found="PUB on the topic of transactions that were given up"
    ),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: ADMINISTRATOR,
    RequestCode.CLEAN_UNUSED_TOPIC: ADMINISTRATOR,
    RequestCode.DELETE_EXPIRED_COMMITLOG: ADMINISTRATOR,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: ADMINISTRATOR,
    RequestCode.DELETE_ACL_CONFIG: ADMINISTRATOR,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: FOLLOWER,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: ADMINISTRATOR,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: ADMINISTRATOR,
    RequestCode.EXPLAIN_ACCESS: ADMINISTRATOR,
    RequestCode.GET_BROKER_SAMPLE: ADMINISTRATOR,
    RequestCode.GET_BROKER_INTERNALS: ADMINISTRATOR,
    RequestCode.TRACE_WATCH: TRACE,
    RequestCode.TRACE_UNWATCH: TRACE,
    RequestCode.TRACE_RECORDED: TRACE,
    RequestCode.TRACE_LEVEL: ADMINISTRATOR,
    RequestCode.PROMOTE_BROKER: ADMINISTRATOR,
    # Between the brokers of a set.
    RequestCode.GET_REPLICATION_STATE: FOLLOWER,
    # Name server requests that change something. The others have no row there and are open to
    # everyone: clients look up routes without signing, as in RocketMQ.
    RequestCode.REGISTER_BROKER: REGISTRATION,
    RequestCode.UNREGISTER_BROKER: REGISTRATION,
    RequestCode.QUERY_DATA_VERSION: REGISTRATION,
    RequestCode.PUT_KV_CONFIG: ADMINISTRATOR,
    RequestCode.DELETE_KV_CONFIG: ADMINISTRATOR,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: ADMINISTRATOR,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: ADMINISTRATOR,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: ADMINISTRATOR,
    RequestCode.UPDATE_NAMESRV_CONFIG: ADMINISTRATOR,
}
