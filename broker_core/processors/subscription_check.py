"""SubscriptionCheck: whether a group may read a queue, and which of its messages it gets.

Source: broker/processor/PullMessageProcessor.java processRequest (4.9.7).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from broker_core.config.limits import LIMITS
from broker_core.delivery.filter_cache import FilterCache
from broker_core.delivery.sql_filter import FilterBits, RetryFilter, SqlFilter, compile_filter
from broker_core.delivery.tag_filter import TagFilter
from broker_core.errors import RequestRefusedError
from broker_core.message.names import HIDDEN_TOPICS, RETRY_GROUP_TOPIC_PREFIX
from broker_core.message.subscription import build_subscription
from broker_core.message.topic_config import PERM_READ
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from broker_core.clients.consumers import Consumers
    from broker_core.config.broker import BrokerConfig
    from broker_core.config.limits import LimitsConfig
    from broker_core.delivery.sql92.expression import Expression
    from broker_core.message.subscription import SubscriptionData, SubscriptionGroupConfig
    from broker_core.metadata.consumer_filters import ConsumerFilters
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.store.results import MessageFilter

FILTERS_KEPT = 1_024
KEPT_CHARS_MAX = 512
"""Longer expressions need more memory, so the cache of their filters limits the total length."""


class SubscriptionCheck:
    """Checks groups, topics and subscriptions, independent of requests. Event loop only.

    Attributes:
        topics, groups, consumers, limits: the data checked, for the native turn.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        groups: SubscriptionGroups,
        filters: ConsumerFilters[Expression],
        consumers: Consumers,
        limits: LimitsConfig = LIMITS,
    ) -> None:
        self._config = config
        self.limits = limits
        self.topics = topics
        self.groups = groups
        self._filters = filters
        self.consumers = consumers

    def filter_of(
        self,
        group: str,
        topic: str,
        queue_id: int,
        client: str,
        sub_version: int,
        expression: str | None,
        expression_type: str | None,
    ) -> MessageFilter | None:
        """Return the filter of a reader that may read a queue; None delivers every message.

        `client` is the reader's address. The reader supplies an expression or uses its group's
        subscription, which must have at least sub_version.

        Raises:
            RequestRefusedError: the reader may not; the checks are in RocketMQ's order.
        """
        group_config = self._require(group, topic, queue_id, client)
        if expression is not None:
            self._require_short(expression)
            wanted = own_filter(topic, expression, expression_type)
            if isinstance(wanted, SqlFilter):
                require_property_filter(self._config, expression_type)
        else:
            wanted = self._subscribed_filter(group_config, topic, sub_version)
        if self._config.filter_support_retry and topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return RetryFilter(wanted, functools.partial(self._retried_expression, group))
        return wanted

    def _require_short(self, expression: str) -> None:
        """Differs: RocketMQ accepts expressions of any length."""
        most = self.limits.client_expression_chars_max
        if len(expression) > most:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the pull's subscription has {len(expression)} characters, more than "
                f"clientExpressionCharsMax={most}",
            )

    def _require(
        self, group: str, topic: str, queue_id: int, client: str
    ) -> SubscriptionGroupConfig:
        config = self._config
        if not config.broker_permission & PERM_READ:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] pulling message is forbidden",
            )
        group_config = self.groups.find_or_create(group)
        if group_config is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group}] does not exist",
            )
        if not group_config.consume_enable:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}"
            )
        topic_config = self.topics.find(topic)
        if topic_config is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
            )
        if not topic_config.is_readable or topic in HIDDEN_TOPICS:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden"
            )
        if not 0 <= queue_id < topic_config.read_queue_nums:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{topic_config.read_queue_nums}] "
                f"consumer:[{client}]",
            )
        return group_config

    def _subscribed_filter(
        self, group_config: SubscriptionGroupConfig, topic: str, sub_version: int
    ) -> MessageFilter | None:
        name = group_config.group_name
        group = self.consumers.find(name)
        if group is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist"
            )
        if not group_config.consume_broadcast_enable and group.message_model == "BROADCASTING":
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{name}] can not consume by broadcast way",
            )
        subscription = group.subscriptions.get(topic)
        if subscription is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: group {name} topic {topic}",
            )
        if subscription.data.sub_version < sub_version:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if subscription.data.is_tag_expression:
            return subscription.tag_filter
        found = self._filters.find(topic, name)
        if found is None:
            raise RequestRefusedError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!"
                + _fault_of(subscription.data),
            )
        if found.client_version < sub_version:
            raise RequestRefusedError(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )
        require_property_filter(self._config, subscription.data.expression_type)
        return SqlFilter(found.expression, FilterBits(found.bit_map, found.born_time))

    def _retried_expression(self, group: str, topic: str) -> Expression | None:
        found = self._filters.find(topic, group)
        return None if found is None else found.expression


def require_property_filter(config: BrokerConfig, expression_type: str | None) -> None:
    """Refuse a non-tag expression unless enablePropertyFilter allows it.

    Raises:
        RequestRefusedError: the key is off.
    """
    if not config.enable_property_filter:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )


def own_filter(topic: str, expression: str, expression_type: str | None) -> MessageFilter | None:
    """Return the filter of a subscription that the reader supplies.

    Differs: RocketMQ delivers every message if an SQL expression doesn't compile.

    Raises:
        RequestRefusedError: the expression doesn't compile.
    """
    if len(expression) > KEPT_CHARS_MAX:
        return _kept_long_filter(topic, expression, expression_type)
    return kept_filter(topic, expression, expression_type)


def _compiled(topic: str, expression: str, expression_type: str | None) -> MessageFilter | None:
    try:
        data = build_subscription(topic, expression, 0, expression_type)
        if data.is_tag_expression:
            return TagFilter.of(data)
        return SqlFilter(compile_filter(data.expression_type, expression))
    except ValueError as error:
        raise RequestRefusedError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed: {error}",
        ) from error


def _fault_of(data: SubscriptionData) -> str:
    """Return why a subscribed expression has no filter, for clients that don't check it first."""
    try:
        compile_filter(data.expression_type, data.sub_string)
    except ValueError as error:
        return f" {error}"
    return ""


kept_filter = functools.lru_cache(FILTERS_KEPT)(_compiled)
_kept_long_filter = FilterCache(_compiled)
