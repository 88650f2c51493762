"""Filters of groups that subscribe by expression: read all, update one, delete one.

The request codes are Trebuchet's own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.message.names import check_group, check_topic
from broker_core.processors.heartbeat import read_body
from broker_core.processors.subscription_check import require_property_filter
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields
from broker_core.protocol.signature import ACCESS_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker_core.clients.consumers import Consumers
    from broker_core.config.broker import BrokerConfig
    from broker_core.config.limits import LimitsConfig
    from broker_core.delivery.parked_pulls import ParkedPulls
    from broker_core.delivery.sql92.expression import Expression
    from broker_core.metadata.consumer_filters import ConsumerFilters
    from broker_core.metadata.topics import Topics
    from broker_core.processors.long_answers import LongAnswers
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection

logger = logging.getLogger(__name__)

LOGGED_CHARS = 300


class _FilterQuery(msgspec.Struct, rename="camel"):
    consumer_group: str
    topic: str
    expression_type: str
    expression: str


class FiltersAdmin:
    """GET_ALL_, UPDATE_ and DELETE_CONSUMER_FILTER. Event loop only."""

    def __init__(
        self,
        config: BrokerConfig,
        limits: LimitsConfig,
        topics: Topics,
        filters: ConsumerFilters[Expression],
        consumers: Consumers,
        parked_pulls: ParkedPulls,
        long_answers: LongAnswers,
    ) -> None:
        self._config = config
        self._limits = limits
        self._topics = topics
        self._filters = filters
        self._consumers = consumers
        self._parked_pulls = parked_pulls
        self._long_answers = long_answers

    def all_filters(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """GET_ALL_CONSUMER_FILTER. Answers SUCCESS with consumerFilter.json's content."""
        return self._long_answers.answer(request, connection, self._filters.document_steps())

    async def update(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """UPDATE_CONSUMER_FILTER: replace a group's filter on a topic.

        The body is {"consumerGroup", "topic", "expressionType", "expression"}. Without an existing
        filter, creates one; if the group isn't subscribed, it is dead like that of a group that
        left. The expression applies from the group's next pulls until a member subscribes again.
        Answers SUCCESS once consumerFilter.json is written; SUBSCRIPTION_PARSE_FAILED with the
        position of a syntax error; TOPIC_NOT_EXIST; SYSTEM_ERROR without enablePropertyFilter, for
        an invalid name, above clientExpressionCharsMax or consumerFilterNumsMax, and when the file
        can't be written.
        """
        wanted = read_body(request, _FilterQuery)
        group, topic = wanted.consumer_group, wanted.topic
        wrong = check_topic(topic) or check_group(group)
        if wrong is not None:
            raise _refusal(wrong)
        if self._topics.find(topic) is None:
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        require_property_filter(self._config, wanted.expression_type)
        most = self._limits.client_expression_chars_max
        if len(wanted.expression) > most:
            raise _refusal(
                f"the expression has {len(wanted.expression)} characters, more than "
                f"clientExpressionCharsMax={most}"
            )
        found = self._consumers.find(group)
        subscription = None if found is None else found.subscriptions.get(topic)
        before = self._filters.find(topic, group)
        try:
            self._filters.put(
                group,
                topic,
                wanted.expression_type,
                wanted.expression,
                None if subscription is None else subscription.data.sub_version,
            )
        except ValueError as error:
            raise RequestRefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        old_text = None if before is None else before.text
        self._log("put", group, topic, old_text, wanted.expression, connection, request)
        return await self._save(request, topic)

    async def delete(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """DELETE_CONSUMER_FILTER: delete a group's filter on a topic.

        Fields: consumerGroup, topic. Pulls of a subscribed group are rejected until a member's
        heartbeat registers the filter again. Answers SUCCESS once consumerFilter.json is written;
        SYSTEM_ERROR if no such filter exists or the file can't be written.
        """
        group = fields.text(request.ext_fields, "consumerGroup")
        topic = fields.text(request.ext_fields, "topic")
        before = self._filters.find(topic, group)
        if before is None or not self._filters.drop(group, topic):
            raise _refusal("the group has no filter on this topic")
        self._log("deleted", group, topic, before.text, None, connection, request)
        return await self._save(request, topic)

    async def _save(self, request: RemotingCommand, topic: str) -> RemotingCommand:
        # A waiting pull holds the old filter and would skip messages.
        self._parked_pulls.end(topic)
        if not await self._filters.persist_in_thread():
            raise _refusal(
                "the filter is in effect, but couldn't be written to disk; the broker will retry"
            )
        return request.answer(ResponseCode.SUCCESS)

    def _log(
        self,
        deed: str,
        group: str,
        topic: str,
        before: str | None,
        after: str | None,
        connection: Connection,
        request: RemotingCommand,
    ) -> None:
        logger.warning(
            "consumer filter changed by request change=%s group=%s topic=%s from=%.*r to=%.*r "
            "access_key=%s peer=%s",
            deed,
            group,
            topic,
            LOGGED_CHARS,
            before,
            LOGGED_CHARS,
            after,
            request.ext_fields.get(ACCESS_KEY),
            connection.remote_address,
        )


def _refusal(remark: str) -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
