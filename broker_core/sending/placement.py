"""Placement: the topic and the queue of a message, and whether it may go there.

Source: broker/processor/AbstractSendMessageProcessor.java msgCheck (4.9.7).
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import RequestRefusedError
from broker_core.message import names
from broker_core.message.names import is_not_allowed_send_topic
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


class Destination(NamedTuple):
    """The destination requested by a producer, and the template for creating a missing topic."""

    topic: str
    queue_id: int
    """Negative for any queue."""
    default_topic: str | None
    queue_nums: int | None
    """Number of queues for a new topic; None for QUEUE_NUMS_DEFAULT."""
    producer: str
    """The producer's address."""
    is_unit: bool = False
    """Whether the producer, and a topic created for it, belongs to a unit."""


class _PlainQueues(dict[str, int]):
    """The number of plain queues by topic; 0 if `place` must decide.

    Computed on first use, because almost every send needs this number.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        super().__init__()
        self._count = count

    def __missing__(self, topic: str) -> int:
        found = self._count(topic)
        if found:
            # Cache only existing topics: names sent by unknown clients must not use memory.
            self[topic] = found
        return found


class Placement:
    """Finds, checks and creates the topics that messages are sent to. Event loop only.

    Attributes:
        plain_queues: the number of queues of a topic, from 0 on, that accept messages unchanged.
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
        """Update the values cached from the configuration."""
        config = self._config
        self._is_writable = bool(config.broker_permission & PERM_WRITE)
        self._accept_from = config.start_accept_send_request_time_stamp
        self.plain_queues.clear()

    def sys_flag_of(self, topic: str) -> int:
        """Return the sys_flag bits of a topic's messages."""
        topic_config = self._table.get(topic)
        is_multi = topic_config is not None and topic_config.topic_filter_type == MULTI_TAG
        return MULTI_TAGS_FLAG if is_multi else 0

    def place(self, wanted: Destination) -> int:
        """Return the queue_id for a message.

        Raises:
            RequestRefusedError: as require_topic, or the topic has no writable queue.
        """
        topic_config = self.require_topic(wanted)
        if wanted.queue_id >= 0:
            return wanted.queue_id
        if topic_config.write_queue_nums < 1:
            raise _illegal_queue_id(wanted, topic_config)
        return random.randrange(topic_config.write_queue_nums)

    def require_topic(self, wanted: Destination) -> TopicConfig:
        """Return the configuration of a message's topic, creating it if that is allowed.

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
        """Require the write bit in brokerPermission.

        Raises:
            RequestRefusedError: the bit is missing.
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
            or is_not_allowed_send_topic(topic)
            or topic_config.topic_filter_type != SINGLE_TAG
        ):
            return 0
        return topic_config.write_queue_nums

    def _find_or_create(self, wanted: Destination) -> TopicConfig:
        topic = wanted.topic
        if self._accept_from > self._clock.now_ms():
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {self._accept_from} ms since epoch",
            )
        wrong = names.check_topic(topic)
        if wrong is not None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, wrong)
        if is_not_allowed_send_topic(topic):
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
            )
        return self._table.get(topic) or self._create(wanted)

    def _create(self, wanted: Destination) -> TopicConfig:
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
    """Require that a consumer's message may be written to its topic.

    Raises:
        RequestRefusedError: the topic isn't writable.
    """
    if not topic_config.is_writable:
        raise RequestRefusedError(
            ResponseCode.NO_PERMISSION,
            f"the topic[{topic_config.topic_name}] sending message is forbidden",
        )


def _illegal_queue_id(wanted: Destination, topic_config: TopicConfig) -> RequestRefusedError:
    return RequestRefusedError(
        ResponseCode.SYSTEM_ERROR,
        f"request queueId[{wanted.queue_id}] is illegal, topic {topic_config.topic_name} has "
        f"{topic_config.write_queue_nums} write queues, Producer: {wanted.producer}",
    )
