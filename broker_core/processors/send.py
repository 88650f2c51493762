"""Sends: one message, or a batch of them, in the long and the short header form.

Source: broker/processor/SendMessageProcessor.java, AbstractSendMessageProcessor.java (4.9.7).
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.message import names, properties
from broker_core.message.ids import offset_msg_id
from broker_core.message.topic_config import PERM_WRITE
from broker_core.protocol.codes import SERIALIZE_JSON, V3_4_9, ResponseCode
from broker_core.protocol.command import json_answer
from broker_core.protocol.headers import fields
from broker_core.store.results import PutMessageStatus
from broker_core.transaction.half import prepare

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from broker_core.clock import Clock
    from broker_core.config import BrokerConfig
    from broker_core.delay.levels import DelayLevels
    from broker_core.delay.schedule import ScheduleService
    from broker_core.message.topic_config import TopicConfig
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.message_store import MessageStore
    from broker_core.trace.tracer import Tracer
    from broker_core.transaction.resolve import Transactions

    Answer = RemotingCommand | bytes | Awaitable[RemotingCommand | bytes]

logger = logging.getLogger(__name__)

LONG_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
}
"""SendMessageRequestHeaderV2's letters and what they stand for."""

TRANSACTION_TYPE = 0x4 | 0x8
"""The sysFlag bits that say prepared, commit, rollback."""
DLQ_QUEUE_NUMS = 1
UNSERVED_PROPERTIES = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
SPECIAL_PROPERTIES = frozenset(
    {
        names.PROPERTY_TRANSACTION_PREPARED,
        names.PROPERTY_DELAY_TIME_LEVEL,
        *UNSERVED_PROPERTIES,
    }
)
"""A message without any of these goes straight to its queue."""
SHORT_NAMES = {long: short for short, long in LONG_NAMES.items()}

_REFUSALS: Mapping[PutMessageStatus, tuple[ResponseCode, str]] = {
    PutMessageStatus.FLUSH_DISK_TIMEOUT: (ResponseCode.FLUSH_DISK_TIMEOUT, ""),
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: (ResponseCode.FLUSH_SLAVE_TIMEOUT, ""),
    PutMessageStatus.SLAVE_NOT_AVAILABLE: (ResponseCode.SLAVE_NOT_AVAILABLE, ""),
    PutMessageStatus.CREATE_MAPEDFILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy or broken.",
    ),
    PutMessageStatus.MESSAGE_ILLEGAL: (
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. "
        "msg body length limit {max_message_size}B, msg properties length limit 32KB.",
    ),
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: (
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. "
        "msg body length limit {max_message_size}B, msg properties length limit 32KB.",
    ),
    PutMessageStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now. It may be caused by one of the following reasons: the "
        "broker's disk is full, an earlier write or flush failed, the broker is shutting down.",
    ),
    PutMessageStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_BUSY,
        "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    ),
    PutMessageStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
}


class SendProcessor:
    """SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320). Event loop only.

    Plain functions: with asynchronous flush an answer is ready when the message is in the mapping.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_host: bytes,
        max_message_size: int,
        topics: Topics,
        groups: SubscriptionGroups,
        store: MessageStore,
        levels: DelayLevels,
        schedule: ScheduleService,
        transactions: Transactions,
        stats: BrokerStats,
        tracer: Tracer,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store_host = store_host
        self._topics = topics
        self._groups = groups
        self._store = store
        self._levels = levels
        self._schedule = schedule
        self._transactions = transactions
        self._stats = stats
        self._tracer = tracer
        self._clock = clock
        self._cluster_name = config.broker_cluster_name
        self.reconfigure(max_message_size)

    def reconfigure(self, max_message_size: int) -> None:
        """Read again what of the configuration is kept here in a quicker form."""
        config = self._config
        self._is_writable = bool(config.broker_permission & PERM_WRITE)
        self._accept_from = config.start_accept_send_request_time_stamp
        # A producer dereferences these two in every answer.
        self.ext_fields = self._ext = {
            "MSG_REGION": config.region_id,
            "TRACE_ON": "true" if config.trace_on else "false",
        }
        constant = msgspec.json.encode(self._ext)[:-1]
        # % formatting of one template is the fastest way CPython has to make these bytes.
        self._template = (
            constant.replace(b"%", b"%%")
            + b',"msgId":"'
            + self._store_host.hex().upper().encode()
            + b'%016X","queueId":"%d","queueOffset":"%d"}'
        )
        self._remarks = {
            status: (code, remark.format(max_message_size=max_message_size) or None)
            for status, (code, remark) in _REFUSALS.items()
        }

    def send_message(self, request: RemotingCommand, connection: Connection) -> Answer:
        """SEND_MESSAGE. Answers as send_message_v2."""
        ext_fields = request.ext_fields
        short = {
            SHORT_NAMES[name]: value for name, value in ext_fields.items() if name in SHORT_NAMES
        }
        if short.get("m") == "true":
            return self._send_batch(request, connection, short)
        return self._send(request, connection, short)

    def send_message_v2(self, request: RemotingCommand, connection: Connection) -> Answer:
        """SEND_MESSAGE_V2.

        Answers SUCCESS with msgId, queueId and queueOffset; FLUSH_DISK_TIMEOUT (stored all the
        same); SYSTEM_ERROR, NO_PERMISSION, TOPIC_NOT_EXIST, MESSAGE_ILLEGAL, SYSTEM_BUSY,
        SUBSCRIPTION_GROUP_NOT_EXIST or SERVICE_NOT_AVAILABLE.
        """
        ext_fields = request.ext_fields
        if ext_fields.get("m") == "true":
            return self._send_batch(request, connection, ext_fields)
        return self._send(request, connection, ext_fields)

    def send_batch_message(self, request: RemotingCommand, connection: Connection) -> Answer:
        """SEND_BATCH_MESSAGE. Answers as send_message_v2; msgId lists the ids of all messages."""
        return self._send_batch(request, connection, request.ext_fields)

    def _send(
        self, request: RemotingCommand, connection: Connection, header: Mapping[str, str]
    ) -> Answer:
        try:
            topic = header["b"]
            queue_id = int(header["e"])
            sys_flag = int(header["f"])
            born_timestamp = int(header["g"])
            flag = int(header["h"])
            reconsume_times = int(header.get("j") or 0)
            # One look at all, since they are small but for what is rare or wrong.
            bits = flag | sys_flag | reconsume_times | born_timestamp >> 32
            if not 0 <= bits <= fields.INT32_MAX:
                _check_ranges(header)
        except (KeyError, ValueError, RequestRefusedError):
            return self._refuse(request, *_what_is_wrong(header))
        topic_config = self._topics.table.get(topic)
        refusal = None
        if topic_config is None or topic in names.NOT_ALLOWED_SEND_TOPICS or self._accept_from:
            topic_config, refusal = self._check_topic(header, topic, connection)
            if topic_config is None:
                return self._refuse(request, *refusal)
        queue_nums = max(topic_config.write_queue_nums, topic_config.read_queue_nums)
        if not 0 <= queue_id < queue_nums:
            if queue_id >= queue_nums or topic_config.write_queue_nums < 1:
                return self._refuse(request, *_illegal_queue_id(queue_id, topic_config, connection))
            queue_id = random.randrange(topic_config.write_queue_nums)
        if not self._is_writable and topic_config.order:
            return self._refuse(request, *self._broker_not_writable())
        message_properties = properties.decode(header.get("i", ""))
        if topic[0] == "%" and topic.startswith(names.RETRY_GROUP_TOPIC_PREFIX):
            moved = self._move_to_dead_letters(request, header, topic, reconsume_times)
            if isinstance(moved, tuple):
                return self._refuse(request, *moved)
            if moved is not None:
                topic, queue_id = moved.topic_name, 0
                message_properties.pop(names.PROPERTY_DELAY_TIME_LEVEL, None)
        wait = message_properties.pop(names.PROPERTY_WAIT_STORE_MSG_OK, None)
        message_properties[names.PROPERTY_CLUSTER] = self._cluster_name
        place, is_held = (topic, queue_id), False
        if not SPECIAL_PROPERTIES.isdisjoint(message_properties):
            held = self._hold(message_properties, topic, queue_id)
            if isinstance(held, RequestRefusedError):
                return self._refuse(request, held.code, held.remark)
            if held is not None:
                place, is_held = held, True
                if wait is not None:
                    # Stored with what is held, as in the original.
                    message_properties[names.PROPERTY_WAIT_STORE_MSG_OK] = wait
        get = message_properties.get
        tags = get(names.PROPERTY_TAGS)
        keys = get(names.PROPERTY_KEYS)
        uniq_key = get(names.PROPERTY_UNIQ_KEY)
        result = self._store.put_message(
            *place,
            request.body,
            properties.encode(message_properties),
            tags=tags,
            keys=keys,
            uniq_key=uniq_key,
            flag=flag,
            sys_flag=sys_flag & ~TRANSACTION_TYPE,
            born_timestamp=born_timestamp,
            born_host=connection.remote_host,
            reconsume_times=reconsume_times,
        )
        if result.status is not PutMessageStatus.PUT_OK:
            return self._refuse(request, *self._remarks[result.status])
        self._stats.put(place[0], 1, result.wrote_size)
        commit_log_offset = result.commit_log_offset
        if is_held:
            if place[0] == names.RMQ_SYS_SCHEDULE_TOPIC:
                self._schedule.note_put(place[1], result)
            else:
                self._transactions.add(
                    result,
                    message_properties,
                    request.body,
                    born_timestamp,
                    connection.remote_host,
                )
        elif self._tracer.watching:
            self._tracer.emit(
                "stored",
                topic,
                queue_id,
                result.queue_offset,
                commit_log_offset=str(commit_log_offset),
                store_size=result.wrote_size,
                body_size=len(request.body),
                tags=tags,
                keys=keys,
                uniq_key=uniq_key,
                offset_msg_id=offset_msg_id(self._store_host, commit_log_offset),
                producer_group=header.get("a"),
                client=connection.remote_address,
                latency_us=max(0, result.store_timestamp - born_timestamp) * 1000,
            )
        if request.serialize_type == SERIALIZE_JSON:
            ext = self._template % (commit_log_offset, queue_id, result.queue_offset)
            answer: RemotingCommand | bytes = json_answer(request.opaque, 0, ext)
        else:
            msg_id = offset_msg_id(self._store_host, commit_log_offset)
            answer = self._success(request, msg_id, queue_id, result.queue_offset)
        durable = self._store.until_durable(result) if wait != "false" else None
        return answer if durable is None else self._after(request, durable, answer)

    def _hold(
        self, message_properties: dict[str, str], topic: str, queue_id: int
    ) -> tuple[str, int] | RequestRefusedError | None:
        """Return where a message waits for its time or its commit, None when it does not.

        The properties get where it goes after that; or it is refused.
        """
        is_retry = names.is_retry_topic(topic) or names.is_dlq_topic(topic)
        prepared = message_properties.get(names.PROPERTY_TRANSACTION_PREPARED, "")
        # A consumer's retry repeats the property of a message that was committed.
        if prepared.lower() == "true" and not is_retry:
            if self._config.reject_transaction_message:
                return RequestRefusedError(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{self._config.broker_ip1}] sending transaction message is "
                    "forbidden",
                )
            return prepare(message_properties, topic, queue_id)
        for name in UNSERVED_PROPERTIES:
            if name in message_properties:
                return RequestRefusedError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"the message asks for a later delivery ({name}), which this broker does not "
                    "serve",
                )
        try:
            return self._levels.hold(message_properties, topic, queue_id)
        except ValueError as error:
            return RequestRefusedError(ResponseCode.SYSTEM_ERROR, str(error))

    def require_topic(
        self, header: Mapping[str, str], topic: str, queue_id: int, connection: Connection
    ) -> TopicConfig:
        """Return the configuration of the topic of a send.

        Raises:
            RequestRefusedError: it may not be sent to, or has no such queue.
        """
        topic_config, refusal = self._check_topic(header, topic, connection)
        if topic_config is None:
            raise RequestRefusedError(refusal[0], refusal[1] or "")
        if queue_id >= max(topic_config.write_queue_nums, topic_config.read_queue_nums):
            raise RequestRefusedError(*_illegal_queue_id(queue_id, topic_config, connection))
        if not self._is_writable and topic_config.order:
            raise RequestRefusedError(*self._broker_not_writable())
        return topic_config

    def _send_batch(
        self, request: RemotingCommand, connection: Connection, header: Mapping[str, str]
    ) -> Answer:
        topic = fields.text(header, "b")
        queue_id = fields.int32(header, "e")
        sys_flag = fields.int32(header, "f")
        born_timestamp = fields.int64(header, "g")
        topic_config, refusal = self._check_topic(header, topic, connection)
        if topic_config is None:
            return self._refuse(request, *refusal)
        queue_nums = max(topic_config.write_queue_nums, topic_config.read_queue_nums)
        if queue_id >= queue_nums or (queue_id < 0 and topic_config.write_queue_nums < 1):
            return self._refuse(request, *_illegal_queue_id(queue_id, topic_config, connection))
        if queue_id < 0:
            queue_id = random.randrange(topic_config.write_queue_nums)
        batch_properties = properties.decode(header.get("i", ""))
        if sys_flag & TRANSACTION_TYPE or names.PROPERTY_DELAY_TIME_LEVEL in batch_properties:
            return self._refuse(request, *self._remarks[PutMessageStatus.MESSAGE_ILLEGAL])
        waits = batch_properties.get(names.PROPERTY_WAIT_STORE_MSG_OK) != "false"
        batch_properties[names.PROPERTY_CLUSTER] = self._cluster_name
        result = self._store.put_batch(
            topic,
            queue_id,
            request.body,
            properties.encode(batch_properties),
            sys_flag=sys_flag,
            born_timestamp=born_timestamp,
            born_host=connection.remote_host,
            reconsume_times=fields.int32(header, "j", 0),
        )
        if result.status is not PutMessageStatus.PUT_OK:
            return self._refuse(request, *self._remarks[result.status])
        offsets = result.commit_log_offsets
        self._stats.put(topic, len(offsets), result.wrote_size)
        ids = [offset_msg_id(self._store_host, offset) for offset in offsets]
        if self._tracer.watching:
            for index, commit_log_offset in enumerate(offsets):
                self._tracer.emit(
                    "stored",
                    topic,
                    queue_id,
                    result.queue_offset + index,
                    commit_log_offset=str(commit_log_offset),
                    offset_msg_id=ids[index],
                    producer_group=header.get("a"),
                    client=connection.remote_address,
                    latency_us=max(0, result.store_timestamp - born_timestamp) * 1000,
                )
        answer = self._success(request, ",".join(ids), queue_id, result.queue_offset)
        durable = self._store.until_durable(result) if waits else None
        return answer if durable is None else self._after(request, durable, answer)

    async def _after(
        self,
        request: RemotingCommand,
        durable: Awaitable[PutMessageStatus],
        answer: RemotingCommand | bytes,
    ) -> RemotingCommand | bytes:
        """Answer when the promise of the flush mode is kept, or say that it is not."""
        status = await durable
        if status is PutMessageStatus.PUT_OK:
            return answer
        return self._refuse(request, *self._remarks[status])

    def _check_topic(
        self, header: Mapping[str, str], topic: str, connection: Connection
    ) -> tuple[TopicConfig | None, tuple[int, str | None]]:
        """Return the topic's configuration, made now if it may be, else why the send is refused."""
        if self._accept_from > self._clock.now_ms():
            return None, (
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {self._accept_from} ms since epoch",
            )
        wrong = names.check_topic(topic)
        if wrong is not None:
            return None, (ResponseCode.SYSTEM_ERROR, wrong)
        if topic in names.NOT_ALLOWED_SEND_TOPICS:
            return None, (
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic[{topic}] is forbidden.",
            )
        topic_config = self._topics.find(topic)
        if topic_config is None:
            logger.info("send to an unknown topic: topic=%s from=%s", topic, connection)
            queue_nums = fields.int32(header, "d", 4)
            topic_config = self._topics.create_from_default(topic, header.get("c", ""), queue_nums)
        if topic_config is None and names.is_retry_topic(topic):
            topic_config = self._topics.create_retry(topic, 1)
        if topic_config is None:
            return None, (
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please!",
            )
        return topic_config, (ResponseCode.SUCCESS, None)

    def _move_to_dead_letters(
        self,
        request: RemotingCommand,
        header: Mapping[str, str],
        topic: str,
        reconsume_times: int,
    ) -> TopicConfig | tuple[int, str] | None:
        """Return the dead-letter topic when a consumer's retry came too often, or a refusal.

        Differs: the original clears the delay, then reads the properties anew, so that the dead
        letter waits like the retry that it is not.
        """
        group = topic[len(names.RETRY_GROUP_TOPIC_PREFIX) :]
        group_config = self._groups.find_or_create(group)
        if group_config is None:
            return (
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group}",
            )
        maximum = group_config.retry_max_times
        if request.version >= V3_4_9 and header.get("l"):
            maximum = fields.int32(header, "l")
        if reconsume_times < maximum:
            return None
        return self._topics.create_retry(names.dlq_topic(group), DLQ_QUEUE_NUMS)

    def _broker_not_writable(self) -> tuple[int, str]:
        return (
            ResponseCode.NO_PERMISSION,
            f"the broker[{self._config.broker_ip1}] sending message is forbidden",
        )

    def _success(
        self, request: RemotingCommand, msg_id: str, queue_id: int, queue_offset: int
    ) -> RemotingCommand:
        return request.answer(
            ResponseCode.SUCCESS,
            ext_fields={
                **self._ext,
                "msgId": msg_id,
                "queueId": str(queue_id),
                "queueOffset": str(queue_offset),
            },
        )

    def _refuse(self, request: RemotingCommand, code: int, remark: str | None) -> RemotingCommand:
        return request.answer(code, remark, dict(self._ext))


def _check_ranges(header: Mapping[str, str]) -> None:
    """Refuse a number that has no room in a record; a negative one has."""
    for letter in ("f", "h"):
        fields.int32(header, letter)
    if header.get("j"):
        fields.int32(header, "j")
    fields.int64(header, "g")


def _what_is_wrong(header: Mapping[str, str]) -> tuple[int, str]:
    """Name the mandatory field that is missing, else the one that is no number."""
    named = {LONG_NAMES[letter]: value for letter, value in header.items() if letter in LONG_NAMES}
    if not named.get("reconsumeTimes"):
        named["reconsumeTimes"] = "0"
    try:
        fields.text(named, "topic")
        for name in ("queueId", "sysFlag", "flag", "reconsumeTimes"):
            fields.int32(named, name)
        fields.int64(named, "bornTimestamp")
    except RequestRefusedError as refusal:
        return refusal.code, refusal.remark
    return ResponseCode.SYSTEM_ERROR, "the request's header cannot be read"


def _illegal_queue_id(
    queue_id: int, topic_config: TopicConfig, connection: Connection
) -> tuple[int, str]:
    return (
        ResponseCode.SYSTEM_ERROR,
        f"request queueId[{queue_id}] is illegal, topic {topic_config.topic_name} has "
        f"{topic_config.write_queue_nums} write queues, Producer: {connection.remote_address}",
    )
