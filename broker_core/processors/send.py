"""Sends: one message, or a batch of them, in the long and the short header form.

Source: broker/processor/SendMessageProcessor.java, AbstractSendMessageProcessor.java (4.9.7).
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.message import names
from broker_core.message.names import (
    NOT_ALLOWED_SEND_TOPICS,
    PROPERTY_CLUSTER,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from broker_core.message.properties import (
    PROPERTY_SEPARATOR,
    decode as decode_properties,
    encode as encode_properties,
    without,
)
from broker_core.message.sys_flag import TRANSACTION_MASK
from broker_core.message.topic_config import PERM_WRITE
from broker_core.protocol.codes import SERIALIZE_JSON, V3_4_9, ResponseCode
from broker_core.protocol.command import RemotingCommand, SendCommand, answer_template, framed
from broker_core.protocol.headers.send_message import SHORT_NAMES, SendHeader
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
    from broker_core.remoting.connection import Connection
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import PutBatchResult, PutMessageResult
    from broker_core.trace.tracer import Tracer
    from broker_core.transaction.resolve import Transactions

    Answer = RemotingCommand | bytes | Awaitable[RemotingCommand | bytes]

logger = logging.getLogger(__name__)

PUT_OK = PutMessageStatus.PUT_OK
DEFAULT_QUEUE_NUMS = 4
DLQ_QUEUE_NUMS = 1
UNSERVED_PROPERTIES = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
SPECIAL_PROPERTIES = frozenset(
    {
        PROPERTY_TRANSACTION_PREPARED,
        PROPERTY_DELAY_TIME_LEVEL,
        PROPERTY_CLUSTER,
        *UNSERVED_PROPERTIES,
    }
)
"""A message without any of these goes straight to its queue, with the text that came."""

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
        self._topic_table = topics.table
        self._latency = stats.put_latency
        self._waits_for_flush = store.is_sync_flush
        self._cluster_pair = encode_properties({PROPERTY_CLUSTER: self._cluster_name})
        self.reconfigure(max_message_size)

    def reconfigure(self, max_message_size: int) -> None:
        """Read again what of the configuration is kept here in a quicker form."""
        config = self._config
        self._is_writable = bool(config.broker_permission & PERM_WRITE)
        self._accept_from = config.start_accept_send_request_time_stamp
        # Whether more than a topic's name and its queues decides what may be sent.
        self._is_checked = bool(self._accept_from) or not self._is_writable
        # A producer dereferences these two in every answer.
        self.ext_fields = self._ext = {
            "MSG_REGION": config.region_id,
            "TRACE_ON": "true" if config.trace_on else "false",
        }
        constant = msgspec.json.encode(self._ext)[:-1]
        self._msg_id = self._store_host.hex().upper() + "%016X"
        self._template = answer_template(
            constant.replace(b"%", b"%%")
            + b',"msgId":"'
            + self._msg_id.encode()
            + b'","queueId":"%d","queueOffset":"%d"}'
        )
        self._remarks = {
            status: (code, remark.format(max_message_size=max_message_size) or None)
            for status, (code, remark) in _REFUSALS.items()
        }

    def send_message(self, request: RemotingCommand, connection: Connection) -> Answer:
        """SEND_MESSAGE. Answers as send_message_v2."""
        return self._serve(
            request,
            connection,
            {
                SHORT_NAMES[name]: value
                for name, value in request.ext_fields.items()
                if name in SHORT_NAMES
            },
        )

    def send_message_v2(self, request: RemotingCommand, connection: Connection) -> Answer:
        """SEND_MESSAGE_V2.

        Answers SUCCESS with msgId, queueId and queueOffset; FLUSH_DISK_TIMEOUT (stored all the
        same); SYSTEM_ERROR, NO_PERMISSION, TOPIC_NOT_EXIST, MESSAGE_ILLEGAL, SYSTEM_BUSY,
        SUBSCRIPTION_GROUP_NOT_EXIST or SERVICE_NOT_AVAILABLE.
        """
        if type(request) is SendCommand and (header := request.ext_fields) is not None:
            if header.batch == "true":
                return self._send_batch(request, connection, header)
            return self._send(request, connection, header)
        return self._serve(request, connection, request.ext_fields)

    def send_batch_message(self, request: RemotingCommand, connection: Connection) -> Answer:
        """SEND_BATCH_MESSAGE. Answers as send_message_v2; msgId lists the ids of all messages."""
        if type(request) is SendCommand and (header := request.ext_fields) is not None:
            return self._send_batch(request, connection, header)
        return self._serve(request, connection, request.ext_fields, is_batch=True)

    def _serve(
        self,
        request: RemotingCommand,
        connection: Connection,
        ext_fields: Mapping[str, str],
        *,
        is_batch: bool = False,
    ) -> Answer:
        """Serve a send whose header came as texts."""
        try:
            header = SendHeader.of(ext_fields)
        except RequestRefusedError as refusal:
            return self._refuse(request, refusal.code, refusal.remark)
        if is_batch or header.batch == "true":
            return self._send_batch(request, connection, header)
        return self._send(request, connection, header)

    def _send(self, request: RemotingCommand, connection: Connection, header: SendHeader) -> Answer:
        topic = header.topic
        queue_id = header.queue_id
        topic_config = self._topic_table.get(topic)
        if (
            topic_config is None
            or not 0 <= queue_id < topic_config.write_queue_nums
            or self._is_checked
            or topic[0] == "%"
            or topic in NOT_ALLOWED_SEND_TOPICS
        ):
            place = self._place(request, connection, header)
            if not isinstance(place, tuple):
                return place
            topic, queue_id = place
        put_topic, put_queue_id, held = topic, queue_id, None
        text = header.properties or ""
        table = decode_properties(text)
        wait = table.get(PROPERTY_WAIT_STORE_MSG_OK)
        if SPECIAL_PROPERTIES.isdisjoint(table):
            if wait is not None:
                text = without(text, PROPERTY_WAIT_STORE_MSG_OK, wait)
            elif text and text[-1] != PROPERTY_SEPARATOR:
                text += PROPERTY_SEPARATOR
            text += self._cluster_pair
        else:
            table.pop(PROPERTY_WAIT_STORE_MSG_OK, None)
            table[PROPERTY_CLUSTER] = self._cluster_name
            if topic is not header.topic:
                # A dead letter waits for nothing.
                table.pop(PROPERTY_DELAY_TIME_LEVEL, None)
            held = self._hold(table, topic, queue_id)
            if isinstance(held, RequestRefusedError):
                return self._refuse(request, held.code, held.remark)
            if held is not None:
                put_topic, put_queue_id = held
                if wait is not None:
                    # Stored with what is held, as in the original.
                    table[PROPERTY_WAIT_STORE_MSG_OK] = wait
            text = encode_properties(table)
        get = table.get
        tags = get(PROPERTY_TAGS)
        keys = get(PROPERTY_KEYS)
        uniq_key = get(PROPERTY_UNIQ_KEY)
        body = request.body
        result = self._store.put_message(
            put_topic,
            put_queue_id,
            body,
            text,
            tags=tags,
            keys=keys,
            uniq_key=uniq_key,
            flag=header.flag,
            sys_flag=header.sys_flag & ~TRANSACTION_MASK,
            born_timestamp=header.born_timestamp,
            born_host=connection.remote_host,
            reconsume_times=header.reconsume_times or 0,
        )
        if result.status is not PUT_OK:
            return self._refuse(request, *self._remarks[result.status])
        self._stats.put(put_topic, 1, result.wrote_size)
        commit_log_offset = result.commit_log_offset
        if held is not None:
            if put_topic == names.RMQ_SYS_SCHEDULE_TOPIC:
                self._schedule.note_put(put_queue_id, result)
            else:
                self._transactions.add(
                    result, table, body, header.born_timestamp, connection.remote_host
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
                offset_msg_id=self._msg_id % commit_log_offset,
                producer_group=header.producer_group,
                client=connection.remote_address,
                latency_us=max(0, result.store_timestamp - header.born_timestamp) * 1000,
            )
        if request.serialize_type == SERIALIZE_JSON:
            # % formatting of one template is the fastest way CPython has to make these bytes.
            head = self._template % (
                commit_log_offset,
                queue_id,
                result.queue_offset,
                request.opaque,
            )
            answer: RemotingCommand | bytes = framed(head)
        else:
            msg_id = self._msg_id % commit_log_offset
            answer = self._success(request, msg_id, queue_id, result.queue_offset)
        if self._waits_for_flush and wait != "false":
            return self._when_durable(request, result, answer)
        self._latency.served += 1
        return answer

    def _place(
        self, request: RemotingCommand, connection: Connection, header: SendHeader
    ) -> tuple[str, int] | RemotingCommand:
        """Return the topic and the queue that a message goes to, or the answer that refuses it."""
        topic = header.topic
        queue_id = self._queue_id(request, connection, header)
        if isinstance(queue_id, RemotingCommand):
            return queue_id
        if topic.startswith(names.RETRY_GROUP_TOPIC_PREFIX):
            moved = self._move_to_dead_letters(request, header, topic)
            if isinstance(moved, tuple):
                return self._refuse(request, *moved)
            if moved is not None:
                return moved.topic_name, 0
        return topic, queue_id

    def _queue_id(
        self, request: RemotingCommand, connection: Connection, header: SendHeader
    ) -> int | RemotingCommand:
        """Return the queue that a send goes to, or the answer that refuses it."""
        topic_config, refusal = self._check_topic(header, connection)
        if topic_config is None:
            return self._refuse(request, *refusal)
        queue_id = header.queue_id
        queue_nums = max(topic_config.write_queue_nums, topic_config.read_queue_nums)
        if queue_id >= queue_nums or (queue_id < 0 and topic_config.write_queue_nums < 1):
            return self._refuse(request, *_illegal_queue_id(queue_id, topic_config, connection))
        if not self._is_writable and topic_config.order:
            return self._refuse(request, *self._broker_not_writable())
        return random.randrange(topic_config.write_queue_nums) if queue_id < 0 else queue_id

    def _hold(
        self, message_properties: dict[str, str], topic: str, queue_id: int
    ) -> tuple[str, int] | RequestRefusedError | None:
        """Return where a message waits for its time or its commit, None when it does not.

        The properties get where it goes after that; or it is refused.
        """
        is_retry = names.is_retry_topic(topic) or names.is_dlq_topic(topic)
        prepared = message_properties.get(PROPERTY_TRANSACTION_PREPARED, "")
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

    def require_topic(self, header: SendHeader, connection: Connection) -> TopicConfig:
        """Return the configuration of the topic of a send.

        Raises:
            RequestRefusedError: it may not be sent to, or has no such queue.
        """
        queue_id = header.queue_id
        topic_config, refusal = self._check_topic(header, connection)
        if topic_config is None:
            raise RequestRefusedError(refusal[0], refusal[1] or "")
        if queue_id >= max(topic_config.write_queue_nums, topic_config.read_queue_nums):
            raise RequestRefusedError(*_illegal_queue_id(queue_id, topic_config, connection))
        if not self._is_writable and topic_config.order:
            raise RequestRefusedError(*self._broker_not_writable())
        return topic_config

    def _send_batch(
        self, request: RemotingCommand, connection: Connection, header: SendHeader
    ) -> Answer:
        topic = header.topic
        sys_flag = header.sys_flag
        born_timestamp = header.born_timestamp
        queue_id = self._queue_id(request, connection, header)
        if isinstance(queue_id, RemotingCommand):
            return queue_id
        batch_properties = decode_properties(header.properties or "")
        if sys_flag & TRANSACTION_MASK or PROPERTY_DELAY_TIME_LEVEL in batch_properties:
            return self._refuse(request, *self._remarks[PutMessageStatus.MESSAGE_ILLEGAL])
        waits = batch_properties.get(PROPERTY_WAIT_STORE_MSG_OK) != "false"
        batch_properties[PROPERTY_CLUSTER] = self._cluster_name
        result = self._store.put_batch(
            topic,
            queue_id,
            request.body,
            encode_properties(batch_properties),
            sys_flag=sys_flag,
            born_timestamp=born_timestamp,
            born_host=connection.remote_host,
            reconsume_times=header.reconsume_times or 0,
        )
        if result.status is not PutMessageStatus.PUT_OK:
            return self._refuse(request, *self._remarks[result.status])
        offsets = result.commit_log_offsets
        self._stats.put(topic, len(offsets), result.wrote_size)
        msg_id = self._msg_id
        ids = [msg_id % offset for offset in offsets]
        if self._tracer.watching:
            for index, commit_log_offset in enumerate(offsets):
                self._tracer.emit(
                    "stored",
                    topic,
                    queue_id,
                    result.queue_offset + index,
                    commit_log_offset=str(commit_log_offset),
                    offset_msg_id=ids[index],
                    producer_group=header.producer_group,
                    client=connection.remote_address,
                    latency_us=max(0, result.store_timestamp - born_timestamp) * 1000,
                )
        answer = self._success(request, ",".join(ids), queue_id, result.queue_offset)
        if self._waits_for_flush and waits:
            return self._when_durable(request, result, answer)
        self._latency.served += 1
        return answer

    def _when_durable(
        self,
        request: RemotingCommand,
        result: PutMessageResult | PutBatchResult,
        answer: RemotingCommand | bytes,
    ) -> Answer:
        """Answer when the promise of the flush mode is kept, or say that it is not."""

        def answer_of(status: PutMessageStatus) -> RemotingCommand | bytes:
            self._latency.record(self._clock.monotonic() - put_at)
            return answer if status is PUT_OK else self._refuse(request, *self._remarks[status])

        put_at = self._clock.monotonic()
        durable = self._store.until_durable(result, answer_of)
        if durable is None:
            self._latency.served += 1
            return answer
        return durable

    def _check_topic(
        self, header: SendHeader, connection: Connection
    ) -> tuple[TopicConfig | None, tuple[int, str | None]]:
        """Return the topic's configuration, made now if it may be, else why the send is refused."""
        topic = header.topic
        if self._accept_from > self._clock.now_ms():
            return None, (
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {self._accept_from} ms since epoch",
            )
        wrong = names.check_topic(topic)
        if wrong is not None:
            return None, (ResponseCode.SYSTEM_ERROR, wrong)
        if topic in NOT_ALLOWED_SEND_TOPICS:
            return None, (
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic[{topic}] is forbidden.",
            )
        topic_config = self._topics.find(topic)
        if topic_config is None:
            logger.info("send to an unknown topic: topic=%s from=%s", topic, connection)
            topic_config = self._topics.create_from_default(
                topic,
                header.default_topic or "",
                DEFAULT_QUEUE_NUMS
                if header.default_topic_queue_nums is None
                else header.default_topic_queue_nums,
            )
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
        header: SendHeader,
        topic: str,
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
        if request.version >= V3_4_9 and header.max_reconsume_times is not None:
            maximum = header.max_reconsume_times
        if (header.reconsume_times or 0) < maximum:
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


def _illegal_queue_id(
    queue_id: int, topic_config: TopicConfig, connection: Connection
) -> tuple[int, str]:
    return (
        ResponseCode.SYSTEM_ERROR,
        f"request queueId[{queue_id}] is illegal, topic {topic_config.topic_name} has "
        f"{topic_config.write_queue_nums} write queues, Producer: {connection.remote_address}",
    )
