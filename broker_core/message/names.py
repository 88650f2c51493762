"""Names with a meaning (system topics, prefixes, property keys), and the rules for names.

Source: common/message/MessageConst.java, common/MixAll.java, common/topic/TopicValidator.java
(4.9.8).
"""

from __future__ import annotations

import re

TOPIC_LENGTH_MAX = 127
RETRY_TOPIC_LENGTH_MAX = 255
GROUP_LENGTH_MAX = 255

RETRY_GROUP_TOPIC_PREFIX = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
CID_RMQ_SYS_PREFIX = "CID_RMQ_SYS_"
TRANSACTION_CONSUMER_GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose offsets are the broker's progress with transactions."""
POP_REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""The group whose offset is where leases are read from at startup."""
POP_REVIVE_SEEN_GROUP = "CID_RMQ_SYS_REVIVE_SEEN"
"""The group whose offset is the end of the lease records in the other offsets. Trebuchet only."""
POP_REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
REPLY_TOPIC_POSTFIX = "REPLY_TOPIC"

AUTO_CREATE_TOPIC_KEY_TOPIC = "TBW102"
RMQ_SYS_SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
RMQ_SYS_BENCHMARK_TOPIC = "BenchmarkTest"
RMQ_SYS_TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
RMQ_SYS_TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
RMQ_SYS_TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
RMQ_SYS_SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
RMQ_SYS_OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
RMQ_SYS_TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Holds pending timer messages; TimerMessageStore.TIMER_TOPIC of 5.x."""
TIMER_QUEUE_ID = 0
TIMER_COMPLETION_QUEUE_ID = 1
"""The queue for completion records, which only Trebuchet has; RocketMQ doesn't read it."""

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC_KEY_TOPIC,
        RMQ_SYS_SCHEDULE_TOPIC,
        RMQ_SYS_BENCHMARK_TOPIC,
        RMQ_SYS_TRANS_HALF_TOPIC,
        RMQ_SYS_TRACE_TOPIC,
        RMQ_SYS_TRANS_OP_HALF_TOPIC,
        RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
        RMQ_SYS_SELF_TEST_TOPIC,
        RMQ_SYS_OFFSET_MOVED_EVENT,
    }
)
# Topics that clients may not send to.
NOT_ALLOWED_SEND_TOPICS = frozenset(
    {
        RMQ_SYS_SCHEDULE_TOPIC,
        RMQ_SYS_TRANS_HALF_TOPIC,
        RMQ_SYS_TRANS_OP_HALF_TOPIC,
        RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
        RMQ_SYS_SELF_TEST_TOPIC,
        RMQ_SYS_OFFSET_MOVED_EVENT,
        RMQ_SYS_TIMER_TOPIC,
    }
)
# Topics hidden from every read path, because their messages aren't committed.
HIDDEN_TOPICS = frozenset({RMQ_SYS_TRANS_HALF_TOPIC})

DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"
FILTERSRV_CONSUMER_GROUP = "FILTERSRV_CONSUMER"
SELF_TEST_CONSUMER_GROUP = "SELF_TEST_C_GROUP"
ONS_HTTP_PROXY_GROUP = "CID_ONS-HTTP-PROXY"
CID_ONSAPI_PERMISSION_GROUP = "CID_ONSAPI_PERMISSION"
CID_ONSAPI_OWNER_GROUP = "CID_ONSAPI_OWNER"
CID_ONSAPI_PULL_GROUP = "CID_ONSAPI_PULL"
SCHEDULE_CONSUMER_GROUP = "SCHEDULE_CONSUMER"
SYSTEM_GROUPS = frozenset(
    {
        TOOLS_CONSUMER_GROUP,
        FILTERSRV_CONSUMER_GROUP,
        SELF_TEST_CONSUMER_GROUP,
        ONS_HTTP_PROXY_GROUP,
        CID_ONSAPI_PERMISSION_GROUP,
        CID_ONSAPI_OWNER_GROUP,
        CID_ONSAPI_PULL_GROUP,
    }
)

PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_WAIT_STORE_MSG_OK = "WAIT"
PROPERTY_DELAY_TIME_LEVEL = "DELAY"
PROPERTY_RETRY_TOPIC = "RETRY_TOPIC"
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP = "PGROUP"
PROPERTY_MIN_OFFSET = "MIN_OFFSET"
PROPERTY_MAX_OFFSET = "MAX_OFFSET"
PROPERTY_BUYER_ID = "BUYER_ID"
PROPERTY_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
PROPERTY_TRANSFER_FLAG = "TRANSFER_FLAG"
PROPERTY_CORRECTION_FLAG = "CORRECTION_FLAG"
PROPERTY_MQ2_FLAG = "MQ2_FLAG"
PROPERTY_RECONSUME_TIME = "RECONSUME_TIME"
PROPERTY_MSG_REGION = "MSG_REGION"
PROPERTY_TRACE_SWITCH = "TRACE_ON"
PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX = "UNIQ_KEY"
PROPERTY_UNIQ_KEY = PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
PROPERTY_MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
PROPERTY_CONSUME_START_TIMESTAMP = "CONSUME_START_TIME"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_TRANSACTION_ID = "__transactionId__"
PROPERTY_INSTANCE_ID = "INSTANCE_ID"
PROPERTY_CORRELATION_ID = "CORRELATION_ID"
PROPERTY_MESSAGE_REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PROPERTY_MESSAGE_TTL = "TTL"
PROPERTY_REPLY_MESSAGE_ARRIVE_TIME = "ARRIVE_TIME"
PROPERTY_PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
PROPERTY_CLUSTER = "CLUSTER"
PROPERTY_MESSAGE_TYPE = "MSG_TYPE"
PROPERTY_INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_CRC32 = "__CRC32#"
PROPERTY_TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
PROPERTY_TIMER_OUT_MS = "TIMER_OUT_MS"
PROPERTY_TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
PROPERTY_POP_CK = "POP_CK"
PROPERTY_FIRST_POP_TIME = "1ST_POP_TIME"
PROPERTY_DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
KEY_SEPARATOR = " "
NAMESPACE_SEPARATOR = "%"

LEGAL_NAME = r"^[%|a-zA-Z0-9_-]+$"
# Use fullmatch: `$` would let a trailing newline pass.
_LEGAL_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")

PROPERTY_NAMES = frozenset(
    value for name, value in list(globals().items()) if name.startswith("PROPERTY_")
)
"""RocketMQ's own properties."""
ORIGIN_PROPERTIES = (PROPERTY_RETRY_TOPIC, PROPERTY_REAL_TOPIC, PROPERTY_DLQ_ORIGIN_TOPIC)
"""The properties that name a message's original topic."""


def is_legal_name(name: str) -> bool:
    """Return whether a topic or group has only legal characters and is safe as a directory name."""
    return _LEGAL_NAME.fullmatch(name) is not None


def is_retry_topic(topic: str) -> bool:
    """Return whether this is a group's retry topic."""
    return topic.startswith(RETRY_GROUP_TOPIC_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Return whether this is a group's dead-letter topic."""
    return topic.startswith(DLQ_GROUP_TOPIC_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Return whether the broker itself uses this topic."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_not_allowed_send_topic(topic: str) -> bool:
    """Return whether clients may not send to this topic."""
    return topic in NOT_ALLOWED_SEND_TOPICS or topic.startswith(POP_REVIVE_TOPIC_PREFIX)


def retry_topic(consumer_group: str) -> str:
    """Return a group's retry topic."""
    return RETRY_GROUP_TOPIC_PREFIX + consumer_group


def dlq_topic(consumer_group: str) -> str:
    """Return a group's dead-letter topic."""
    return DLQ_GROUP_TOPIC_PREFIX + consumer_group


def pop_retry_topic(consumer_group: str, topic: str) -> str:
    """Return the topic for messages that a group leased from a topic and didn't acknowledge."""
    return f"{RETRY_GROUP_TOPIC_PREFIX}{consumer_group}_{topic}"


def pop_revive_topic(cluster: str) -> str:
    """Return the topic in which a cluster's brokers log leases."""
    return POP_REVIVE_TOPIC_PREFIX + cluster


def reply_topic(cluster: str) -> str:
    """Return the topic to which a cluster's consumers send replies."""
    return f"{cluster}_{REPLY_TOPIC_POSTFIX}"


def group_of(topic: str) -> str | None:
    """Return the consumer group of a retry or dead-letter topic."""
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return None


def namespace_of(resource: str) -> str:
    """Return the namespace of a topic or group, NAMESPACE%NAME; empty if it has no namespace."""
    if is_system_topic(resource) or resource.startswith(CID_RMQ_SYS_PREFIX):
        return ""
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        resource = resource.removeprefix(prefix)
    namespace, separator, _ = resource.partition(NAMESPACE_SEPARATOR)
    return namespace if separator else ""


def check_topic(topic: str) -> str | None:
    """Return why a topic name is invalid, in RocketMQ's words; None if it is valid."""
    if not topic.strip():
        return "The specified topic is blank."
    if not is_legal_name(topic):
        return f"The specified topic contains illegal characters, allowing only {LEGAL_NAME}"
    internal = is_retry_topic(topic) or is_dlq_topic(topic)
    length_max = RETRY_TOPIC_LENGTH_MAX if internal else TOPIC_LENGTH_MAX
    if len(topic) > length_max:
        return f"The specified topic is longer than topic max length {length_max}."
    return None


def check_group(group: str) -> str | None:
    """Return why a group name is invalid, in RocketMQ's words; None if it is valid."""
    if not group.strip():
        return "the specified group is blank"
    if len(group) > GROUP_LENGTH_MAX:
        return f"the specified group is longer than group max length {GROUP_LENGTH_MAX}."
    if not is_legal_name(group):
        return (
            f"the specified group[{group}] contains illegal characters, allowing only {LEGAL_NAME}"
        )
    return None
