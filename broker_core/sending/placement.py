"""Placement: the topic and the queue of a message, and whether it may go there.

Source: broker/processor/AbstractSendMessageProcessor.java msgCheck (4.9.7).
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import RequestRefusedError
from broker_core.message import names
from broker_core.message.names import NOT_ALLOWED_SEND_TOPICS
from broker_core.message.sys_flag import MULTI_TAGS_FLAG
from broker_core.message.topic_config import (
    FLAG_UNIT,
    FLAG_UNIT_SUB,
    MULTI_TAG,
    PERM_WRITE,
    SINGLE_TAG,
)
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock
    from broker_core.config.broker import BrokerConfig
    from broker_core.counted_log import CountedLog
    from broker_core.message.topic_config import TopicConfig
    from broker_core.metadata.topics import Topics

logger = logging.getLogger(__name__)

QUEUE_NUMS_DEFAULT = 4
RETRY_QUEUE_NUMS = 1


class Wanted(NamedTuple):
    """Where a producer wants its message, and the default topic to create a missing topic from."""

    topic: str
    queue_id: int
    """Below 0: any."""
    default_topic: str | None
    queue_nums: int | None
    """Queues of a topic that is made; None: QUEUE_NUMS_DEFAULT."""
    producer: str
    """The producer's address."""
    is_unit: bool = False
    """Whether the producer is one of a unit, and with it a topic that is made."""


class _PlainQueues(dict[str, int]):
    """How many queues of a topic take messages as they are, by topic; 0: `place` has to say.

    Counted when a topic is first asked for, the one question that almost every send asks.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        super().__init__()
        self._count = count

    def __missing__(self, topic: str) -> int:
        found = self._count(topic)
        if found:
            # Only of topics that exist: what strangers name takes no room.
            self[topic] = found
        return found


class Placement:
    """Finds, checks and creates the topics that messages are sent to. Event loop only.

    Attributes:
        plain_queues: the first so many queues of a topic take a message as it is.
    """

    def __init__(
        self, config: BrokerConfig, topics: Topics, counted_log: CountedLog, clock: Clock
    ) -> None:
        self._config = config
        self._topics = topics
        self._table = topics.table
        self.plain_queues = _PlainQueues(self._count_plain)
        topics.clear_on_change(self.plain_queues)
        self.unwritten_topics = topics.writer.unwritten
        self.until_topic_is_written = topics.writer.until_written
        self._counted_log = counted_log
        self._clock = clock
        self.reconfigure()

    def reconfigure(self) -> None:
        """Read again what of the configuration is kept here in a quicker form."""
        config = self._config
        self._is_writable = bool(config.broker_permission & PERM_WRITE)
        self._accept_from = config.start_accept_send_request_time_stamp
        self.plain_queues.clear()

    def sys_flag_of(self, topic: str) -> int:
        """Return the bits that a topic's messages have in their sys_flag."""
        topic_config = self._table.get(topic)
        is_multi = topic_config is not None and topic_config.topic_filter_type == MULTI_TAG
        return MULTI_TAGS_FLAG if is_multi else 0

    def place(self, wanted: Wanted) -> int:
        """Return the queue_id that a message is put to.

        Raises:
            RequestRefusedError: as require_topic, or the topic has no queue to write.
        """
        topic_config = self.require_topic(wanted)
        if wanted.queue_id >= 0:
            return wanted.queue_id
        if topic_config.write_queue_nums < 1:
            raise _illegal_queue_id(wanted, topic_config)
        return random.randrange(topic_config.write_queue_nums)

    def require_topic(self, wanted: Wanted) -> TopicConfig:
        """Return the configuration of a message's topic, which is created when that is allowed.

        Raises:
            RequestRefusedError: the topic may not be sent to, or has no such queue.
        """
        topic_config = self._find_or_create(wanted)
        queue_nums = max(topic_config.write_queue_nums, topic_config.read_queue_nums)
        if wanted.queue_id >= queue_nums:
            raise _illegal_queue_id(wanted, topic_config)
        if topic_config.order:
            self.require_writable_broker()
        return topic_config

    def require_writable_broker(self) -> None:
        """Let a message pass while brokerPermission has the write bit.

        Raises:
            RequestRefusedError: it has not.
        """
        if not self._is_writable:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending message is forbidden",
            )

    def _count_plain(self, topic: str) -> int:
        topic_config = self._table.get(topic)
        if (
            topic_config is None
            or self._accept_from
            or not self._is_writable
            or topic[0] == "%"
            or topic in NOT_ALLOWED_SEND_TOPICS
            or topic_config.topic_filter_type != SINGLE_TAG
        ):
            return 0
        return topic_config.write_queue_nums

    def _find_or_create(self, wanted: Wanted) -> TopicConfig:
        topic = wanted.topic
        if self._accept_from > self._clock.now_ms():
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {self._accept_from} ms since epoch",
            )
        wrong = names.check_topic(topic)
        if wrong is not None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, wrong)
        if topic in NOT_ALLOWED_SEND_TOPICS:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
            )
        return self._table.get(topic) or self._create(wanted)

    def _create(self, wanted: Wanted) -> TopicConfig:
        topic, queue_nums = wanted.topic, wanted.queue_nums
        self._counted_log.report(
            logger,
            logging.INFO,
            "send to an unknown topic",
            f"topic={topic}",
            "producer=%s",
            wanted.producer,
        )
        is_retry = names.is_retry_topic(topic)
        sys_flag = 0
        if wanted.is_unit:
            sys_flag = FLAG_UNIT_SUB if is_retry else FLAG_UNIT
        topic_config = self._topics.create_from_default(
            topic,
            wanted.default_topic or "",
            QUEUE_NUMS_DEFAULT if queue_nums is None else queue_nums,
            sys_flag,
        )
        if topic_config is None and is_retry:
            topic_config = self._topics.create_retry(topic, RETRY_QUEUE_NUMS, sys_flag)
        if topic_config is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
            )
        return topic_config


def require_writable(topic_config: TopicConfig) -> None:
    """Let a message of a consumer pass to a topic that may be written.

    Raises:
        RequestRefusedError: it may not.
    """
    if not topic_config.is_writable:
        raise RequestRefusedError(
            ResponseCode.NO_PERMISSION,
            f"the topic[{topic_config.topic_name}] sending message is forbidden",
        )


def _illegal_queue_id(wanted: Wanted, topic_config: TopicConfig) -> RequestRefusedError:
    return RequestRefusedError(
        ResponseCode.SYSTEM_ERROR,
        f"request queueId[{wanted.queue_id}] is illegal, topic {topic_config.topic_name} has "
        f"{topic_config.write_queue_nums} write queues, Producer: {wanted.producer}",
    )
