"""Retries: a consumer returns a message that it couldn't consume.

The broker stores a copy, delayed longer with each attempt, and delivers it to the group's retry
topic. After too many attempts the copy goes to the group's dead-letter topic.

Source: broker/processor/SendMessageProcessor.java asyncConsumerSendMsgBack (4.9.7). Differs: a half
message can't be returned, because no consumer ever gets one. With SYNC_FLUSH the answer waits for
the flush, because the consumer moves on and a power failure would lose the copy; RocketMQ answers
immediately.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from broker_core.access.account import Permission
from broker_core.access.message_permissions import need_of
from broker_core.delay.levels import FIRST_RETRY_LEVEL
from broker_core.errors import CorruptRecordError, RequestRefusedError
from broker_core.formats import record
from broker_core.message import names
from broker_core.message.ids import offset_msg_id, parse_host
from broker_core.message.origins import origin_properties
from broker_core.message.topic_config import FLAG_UNIT_SUB
from broker_core.protocol.codes import V3_4_9, ResponseCode
from broker_core.protocol.headers import fields
from broker_core.sending.dead_letters import DLQ_QUEUE_ID
from broker_core.sending.placement import require_writable
from broker_core.store.results import PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker_core.delay.levels import DelayLevels
    from broker_core.delay.schedule import ScheduleService
    from broker_core.message.message import MessageExt
    from broker_core.metadata.topics import Topics
    from broker_core.processors.wrappers.guard import Gate
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.sending.dead_letters import DeadLetters
    from broker_core.sending.placement import Placement
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.message_store import MessageStore
    from broker_core.trace.stored import StoredTrace

WITH_ORIGIN = "withOrigin"
"""Trebuchet's own field: add the properties from which gRPC clients read a dead letter's origin."""


class SendBackProcessor:
    """CONSUMER_SEND_MSG_BACK (36). Event loop only."""

    def __init__(
        self,
        placement: Placement,
        dead_letters: DeadLetters,
        topics: Topics,
        store: MessageStore,
        levels: DelayLevels,
        schedule: ScheduleService,
        stats: BrokerStats,
        trace: StoredTrace,
        gate: Gate | None,
    ) -> None:
        self._placement = placement
        self._dead_letters = dead_letters
        self._topics = topics
        self._store = store
        self._levels = levels
        self._schedule = schedule
        self._stats = stats
        self._trace = trace
        self._gate = gate

    def consumer_send_msg_back(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """CONSUMER_SEND_MSG_BACK.

        Answers SUCCESS, also for a group without retry queues, whose message is dropped;
        SUBSCRIPTION_GROUP_NOT_EXIST, NO_PERMISSION or SYSTEM_ERROR.
        """
        header = request.ext_fields
        group = fields.text(header, "group")
        commit_log_offset = fields.int64(header, "offset", low=0)
        level = fields.int32(header, "delayLevel")
        group_config = self._dead_letters.require_group(group)
        self._placement.require_writable_broker()
        if group_config.retry_queue_nums <= 0:
            return request.answer(ResponseCode.SUCCESS)
        retry_topic = self._topics.create_retry(
            names.retry_topic(group),
            group_config.retry_queue_nums,
            FLAG_UNIT_SUB if fields.boolean(header, "unitMode") else 0,
        )
        require_writable(retry_topic)
        message = self._look(commit_log_offset)
        if self._gate is not None:
            need = need_of(message, Permission.SUB)
            self._gate.require(request, connection.remote_address, [need])
        table = _properties_of_copy(message)
        times_max = None
        if request.version >= V3_4_9 and header.get("maxReconsumeTimes"):
            times_max = fields.int32(header, "maxReconsumeTimes")
        times = message.reconsume_times
        is_dead = level < 0 or self._dead_letters.is_dead(group_config, times, times_max)
        deferred = None
        if is_dead:
            table[names.PROPERTY_DELAY_TIME_LEVEL] = "0"
            dead_letter_topic = self._dead_letters.topic_of(group)
            require_writable(dead_letter_topic)
            place = dead_letter_topic.topic_name, DLQ_QUEUE_ID
            if fields.boolean(header, WITH_ORIGIN):
                table |= origin_properties(message, group)
        else:
            table[names.PROPERTY_DELAY_TIME_LEVEL] = str(level or FIRST_RETRY_LEVEL + times)
            place = retry_topic.topic_name, random.randrange(group_config.retry_queue_nums)
            deferred = self._levels.defer(table, *place)
        result = self._store.put_copy(
            message, *(deferred or place), table, reconsume_times=times + 1
        )
        if result.status is not PutMessageStatus.PUT_OK:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, result.status.name)
        origin_topic = table[names.PROPERTY_RETRY_TOPIC]
        if is_dead:
            self._dead_letters.note_put(group, origin_topic, message.uniq_key, times)
            # Differs: RocketMQ counts it only in its 5.x metrics.
            self._stats.put_again(place[0], result.wrote_size)
            self._trace.dead(message, table, place, result, group, connection.remote_address)
        else:
            self._trace.given_back(message, group, connection.remote_address)
        if deferred is not None:
            self._schedule.note_put(deferred[1], result)
            self._trace.deferred(message, table, place[0], result, connection.remote_address)
            self._stats.put_again(deferred[0], result.wrote_size)
        self._stats.sent_back(group, origin_topic)
        acknowledged = self._store.acknowledge.until_acknowledged(result)
        if acknowledged is None and place[0] not in self._topics.writer.unwritten:
            return request.answer(ResponseCode.SUCCESS)
        return self._answer_after(acknowledged, place[0], request)

    async def _answer_after(
        self,
        acknowledged: Awaitable[PutMessageStatus] | None,
        topic: str,
        request: RemotingCommand,
    ) -> RemotingCommand:
        await self._topics.writer.until_written(topic)
        status = PutMessageStatus.PUT_OK if acknowledged is None else await acknowledged
        if status is not PutMessageStatus.PUT_OK:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, status.name)
        return request.answer(ResponseCode.SUCCESS)

    def _look(self, commit_log_offset: int) -> MessageExt:
        view = self._store.look_message(commit_log_offset)
        try:
            message = None if view is None else record.decode(view)
        except CorruptRecordError:
            message = None
        if message is None or message.topic in names.HIDDEN_TOPICS:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {commit_log_offset}"
            )
        return message


def _properties_of_copy(message: MessageExt) -> dict[str, str]:
    """Return the properties of the copy, which keep the original topic and message ID."""
    table = dict(message.properties)
    table.setdefault(names.PROPERTY_RETRY_TOPIC, message.topic)
    table[names.PROPERTY_WAIT_STORE_MSG_OK] = "false"
    table.setdefault(
        names.PROPERTY_ORIGIN_MESSAGE_ID,
        offset_msg_id(parse_host(message.store_host), message.commit_log_offset),
    )
    return table
