"""Retries: a consumer gives a message back that it could not consume.

It is put to the group's retry topic, after a delay that grows with each attempt; after too many
attempts to the group's dead-letter topic.

Source: broker/processor/SendMessageProcessor.java asyncConsumerSendMsgBack (4.9.7).
Differs: a half message cannot be given back, it was never given out. With SYNC_FLUSH the answer
waits for the flush: the consumer goes on behind the message, and after a power cut the copy would
be gone; the original answers at once.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from broker_core.delay.levels import FIRST_RETRY_LEVEL
from broker_core.errors import CorruptRecordError, RequestRefusedError
from broker_core.formats import record
from broker_core.message import names
from broker_core.message.ids import offset_msg_id, parse_host
from broker_core.message.topic_config import PERM_WRITE
from broker_core.protocol.codes import V3_4_9, ResponseCode
from broker_core.protocol.headers import fields
from broker_core.store.results import PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker_core.config import BrokerConfig
    from broker_core.delay.levels import DelayLevels
    from broker_core.delay.schedule import ScheduleService
    from broker_core.message.message import MessageExt
    from broker_core.message.subscription import SubscriptionGroupConfig
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.message_store import MessageStore

logger = logging.getLogger(__name__)

DLQ_QUEUE_NUMS = 1


class SendBackProcessor:
    """CONSUMER_SEND_MSG_BACK (36). Event loop only."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        groups: SubscriptionGroups,
        store: MessageStore,
        levels: DelayLevels,
        schedule: ScheduleService,
        stats: BrokerStats,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._store = store
        self._levels = levels
        self._schedule = schedule
        self._stats = stats

    def consumer_send_msg_back(
        self, request: RemotingCommand, _: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """CONSUMER_SEND_MSG_BACK.

        Answers SUCCESS, also for a group without retry queues, whose message is dropped;
        SUBSCRIPTION_GROUP_NOT_EXIST, NO_PERMISSION or SYSTEM_ERROR.
        """
        header = request.ext_fields
        group = fields.text(header, "group")
        commit_log_offset = fields.int64(header, "offset", low=0)
        level = fields.int32(header, "delayLevel")
        group_config = self._group(group)
        if group_config.retry_queue_nums <= 0:
            return request.answer(ResponseCode.SUCCESS)
        retry_topic = self._writable_topic(names.retry_topic(group), group_config.retry_queue_nums)
        message = self._look(commit_log_offset)
        table = dict(message.properties)
        table.setdefault(names.PROPERTY_RETRY_TOPIC, message.topic)
        table[names.PROPERTY_WAIT_STORE_MSG_OK] = "false"
        table.setdefault(
            names.PROPERTY_ORIGIN_MESSAGE_ID,
            offset_msg_id(parse_host(message.store_host), message.commit_log_offset),
        )
        maximum = group_config.retry_max_times
        if request.version >= V3_4_9 and header.get("maxReconsumeTimes"):
            maximum = fields.int32(header, "maxReconsumeTimes")
        held = None
        if message.reconsume_times >= maximum or level < 0:
            table[names.PROPERTY_DELAY_TIME_LEVEL] = "0"
            place = self._writable_topic(names.dlq_topic(group), DLQ_QUEUE_NUMS), 0
            logger.info(
                "message is dead: group=%s topic=%s uniq_key=%s reconsume_times=%d",
                group,
                table[names.PROPERTY_RETRY_TOPIC],
                message.uniq_key,
                message.reconsume_times,
            )
        else:
            level = level or FIRST_RETRY_LEVEL + message.reconsume_times
            table[names.PROPERTY_DELAY_TIME_LEVEL] = str(level)
            place = retry_topic, random.randrange(group_config.retry_queue_nums)
            held = self._levels.hold(table, *place)
        result = self._store.put_copy(
            message, *(held or place), table, reconsume_times=message.reconsume_times + 1
        )
        if result.status is not PutMessageStatus.PUT_OK:
            return request.answer(ResponseCode.SYSTEM_ERROR, result.status.name)
        if held is not None:
            self._schedule.note_put(held[1], result)
            self._stats.put_again(held[0], result.wrote_size)
        self._stats.sent_back(group, table[names.PROPERTY_RETRY_TOPIC])
        durable = self._store.until_durable(result)
        if durable is None:
            return request.answer(ResponseCode.SUCCESS)
        return _answer_after(durable, request)

    def _group(self, group: str) -> SubscriptionGroupConfig:
        group_config = self._groups.find_or_create(group)
        if group_config is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group}",
            )
        if not self._config.broker_permission & PERM_WRITE:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending message is forbidden",
            )
        return group_config

    def _writable_topic(self, topic: str, queue_nums: int) -> str:
        topic_config = self._topics.create_retry(topic, queue_nums)
        if not topic_config.is_writable:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden"
            )
        return topic

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


async def _answer_after(
    durable: Awaitable[PutMessageStatus], request: RemotingCommand
) -> RemotingCommand:
    status = await durable
    if status is PutMessageStatus.PUT_OK:
        return request.answer(ResponseCode.SUCCESS)
    return request.answer(ResponseCode.SYSTEM_ERROR, status.name)
