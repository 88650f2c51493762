"""Dead letters: when a consumer's message is given up, and where it goes then.

Source: broker/processor/SendMessageProcessor.java asyncConsumerSendMsgBack, handleRetryAndDLQ
(4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.message import names
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from broker_core.counted_log import CountedLog
    from broker_core.message.subscription import SubscriptionGroupConfig
    from broker_core.message.topic_config import TopicConfig
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics

logger = logging.getLogger(__name__)

DLQ_QUEUE_NUMS = 1
DLQ_QUEUE_ID = 0


class DeadLetters:
    """Applies a group's configuration and creates its dead-letter topic. Event loop only."""

    def __init__(self, topics: Topics, groups: SubscriptionGroups, counted_log: CountedLog) -> None:
        self._topics = topics
        self._groups = groups
        self._counted_log = counted_log

    def require_group(self, group: str) -> SubscriptionGroupConfig:
        """Return a group's configuration, creating it if that is allowed.

        Raises:
            RequestRefusedError: the group doesn't exist.
        """
        group_config = self._groups.find_or_create(group)
        if group_config is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group}",
            )
        return group_config

    def is_dead(
        self,
        group_config: SubscriptionGroupConfig,
        reconsume_times: int,
        max_reconsume_times: int | None,
    ) -> bool:
        """Return whether a message reached the maximum retries set by the consumer or its group."""
        if max_reconsume_times is None:
            max_reconsume_times = group_config.retry_max_times
        return reconsume_times >= max_reconsume_times

    def topic_of(self, group: str) -> TopicConfig:
        """Return a group's dead-letter topic, creating it for the first dead letter."""
        return self._topics.create_retry(names.dlq_topic(group), DLQ_QUEUE_NUMS)

    def note_put(
        self, group: str, topic: str | None, uniq_key: str | None, reconsume_times: int
    ) -> None:
        """Log a message put to its group's dead-letter topic."""
        self._counted_log.report(
            logger,
            logging.INFO,
            "dead letters stored",
            f"group={group}",
            "topic=%s uniq_key=%s reconsume_times=%d",
            topic,
            uniq_key,
            reconsume_times,
        )
