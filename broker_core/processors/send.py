"""Sends: single messages and batches, with the long or the short header form.

Source: broker/processor/SendMessageProcessor.java, AbstractSendMessageProcessor.java (4.9.7).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from broker_core.errors import PropertiesError, RequestRefusedError
from broker_core.formats import batch
from broker_core.message import names
from broker_core.message.names import (
    PROPERTY_CLUSTER,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    RMQ_SYS_TIMER_TOPIC,
)
from broker_core.message.properties import (
    PROPERTY_SEPARATOR,
    decode_client_properties,
    encode as encode_properties,
    require_no_nul,
    without,
)
from broker_core.message.sys_flag import TRANSACTION_MASK
from broker_core.processors.pending_sends import PendingSends, PendingSendsOfTurn
from broker_core.processors.send_outcomes import REFUSALS, WARNING_CODES
from broker_core.processors.send_trace import SLOW_PUT_S
from broker_core.protocol import binary_header
from broker_core.protocol.codes import SERIALIZE_JSON, V3_4_9, ResponseCode
from broker_core.protocol.command import (
    RemotingCommand,
    SendCommand,
    answer_template,
    framed,
    parts_of,
)
from broker_core.protocol.frame import FrameDecoder
from broker_core.protocol.headers.send_message import SHORT_NAMES, SendHeader
from broker_core.remoting.dispatch import refused
from broker_core.sending.dead_letters import DLQ_QUEUE_ID
from broker_core.sending.detours import DETOUR_PROPERTIES
from broker_core.sending.placement import Destination
from broker_core.store.results import PutBatchResult, PutMessageStatus, RefusedPutError
from broker_core.timers.delivery_time import TIMER_PROPERTIES
from broker_core.timers.recall_handle import recall_handle_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Mapping, Sequence

    from broker_core.clock import Clock
    from broker_core.config.broker import BrokerConfig
    from broker_core.processors.send_trace import SendTrace
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.deferred_answer import DeferredAnswer
    from broker_core.sending.dead_letters import DeadLetters
    from broker_core.sending.detours import Detours, Place
    from broker_core.sending.placement import Placement
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.batch_parts import BatchParts
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import PutMessageResult

    Answer = RemotingCommand | bytes | Awaitable[RemotingCommand | bytes]

PUT_OK = PutMessageStatus.PUT_OK
MSG_ID_OFFSET = re.compile(
    rb'msgId(?:":"|[\x00-\xff]{4})[0-9A-F]+([0-9A-F]{16})(?:[",]|\x00\x07queueId)'
)
"""Log position of an answer's message, or of the first in its batch, for both header types."""
MESSAGES_AT_ONCE = 2_000
"""Reading a larger batch takes several turns of its connection."""
NO_TRANSACTION = ~TRANSACTION_MASK
SPECIAL_PROPERTIES = DETOUR_PROPERTIES | {PROPERTY_CLUSTER}
"""A message without these goes to its own queue with its properties text unchanged."""


class PlainSends(NamedTuple):
    """The parts of this module that the native turn uses to serve plain sends."""

    queues: Mapping[str, int]
    """See Placement.plain_queues."""
    unwritten_topics: Mapping[str, int]
    takes_halves: bool
    half_topic: str
    special_properties: Collection[str]
    cluster_pair: bytes
    """Appended to the message's own properties."""
    kept_sys_flags: int
    answer_parts: tuple[bytes, ...]
    """A JSON header, split at commit_log_offset (16 hexadecimal digits), queue_id, queue_offset and
    opaque.
    """
    binary_parts: tuple[bytes, ...]
    """A binary header, split at the opaque, the length of its entries, msgId, queueId and
    queueOffset.
    """


class SendProcessor:
    """SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320). Event loop only.

    Plain functions: with asynchronous flush the answer is ready once the message is in the mapping.

    Attributes:
        plain: replaced by each `reconfigure`.
        trace: reports sends.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_host: bytes,
        max_message_size: int,
        placement: Placement,
        dead_letters: DeadLetters,
        detours: Detours,
        store: MessageStore,
        stats: BrokerStats,
        trace: SendTrace,
        clock: Clock,
    ) -> None:
        self._config = config
        self._placement = placement
        self._plain_queues = placement.plain_queues
        self._unwritten_topics = placement.unwritten_topics
        self._dead_letters = dead_letters
        self._detours = detours
        self._store = store
        self._acknowledge = store.acknowledge
        self._stats = stats
        self._latency = stats.put_latency
        self.trace = trace
        self._tracer = trace.tracer
        self._clock = clock
        self._cluster_name = config.broker_cluster_name
        self._cluster_pair = encode_properties({PROPERTY_CLUSTER: self._cluster_name})
        self._msg_id = store_host.hex().upper() + "%016X"
        self.reconfigure(max_message_size)

    def reconfigure(self, max_message_size: int) -> None:
        """Update the values cached from the configuration."""
        self._placement.reconfigure()
        self._ext_fields = producer_fields(self._config)
        constant = msgspec.json.encode(self._ext_fields)[:-1]
        ext_fields = (
            constant.replace(b"%", b"%%")
            + b',"msgId":"'
            + self._msg_id.encode()
            + b'","queueId":"%d","queueOffset":"%d"}'
        )
        self._template = answer_template(ext_fields)
        self.plain = PlainSends(
            self._plain_queues,
            self._unwritten_topics,
            not self._config.reject_transaction_message,
            names.RMQ_SYS_TRANS_HALF_TOPIC,
            SPECIAL_PROPERTIES,
            self._cluster_pair.encode(),
            NO_TRANSACTION,
            parts_of(self._template),
            binary_header.answer_parts(
                ResponseCode.SUCCESS,
                None,
                self._ext_fields,
                ("msgId", "queueId", "queueOffset"),
            ),
        )
        self._remarks = {
            status: (code, remark.format(max_message_size=max_message_size))
            for status, (code, remark) in REFUSALS.items()
        }

    def send_message(self, request: RemotingCommand, connection: Connection) -> Answer:
        """SEND_MESSAGE. Answers as send_message_v2."""
        ext_fields = {
            SHORT_NAMES[name]: value
            for name, value in request.ext_fields.items()
            if name in SHORT_NAMES
        }
        try:
            return self._serve(request, connection, ext_fields)
        except (RequestRefusedError, PropertiesError) as error:
            raise refusal_of(error).with_fields(self._ext_fields) from None

    def send_message_v2(self, request: RemotingCommand, connection: Connection) -> Answer:
        """SEND_MESSAGE_V2.

        Answers SUCCESS with msgId, queueId and queueOffset. FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT
        and SLAVE_NOT_AVAILABLE carry the same fields, as the message is stored. SYSTEM_ERROR,
        NO_PERMISSION, TOPIC_NOT_EXIST, MESSAGE_ILLEGAL, SYSTEM_BUSY, SUBSCRIPTION_GROUP_NOT_EXIST
        or SERVICE_NOT_AVAILABLE mean that it isn't stored.
        """
        try:
            if type(request) is SendCommand and (header := request.ext_fields) is not None:
                if header.batch == "true":
                    return self._send_batch(request, connection, header)
                return self._send(request, connection, header)
            return self._serve(request, connection, request.ext_fields)
        except (RequestRefusedError, PropertiesError) as error:
            raise refusal_of(error).with_fields(self._ext_fields) from None

    def send_batch_message(self, request: RemotingCommand, connection: Connection) -> Answer:
        """SEND_BATCH_MESSAGE. Answers as send_message_v2; msgId lists the IDs of all messages."""
        try:
            if type(request) is SendCommand and (header := request.ext_fields) is not None:
                return self._send_batch(request, connection, header)
            return self._serve(request, connection, request.ext_fields, is_batch=True)
        except (RequestRefusedError, PropertiesError) as error:
            raise refusal_of(error).with_fields(self._ext_fields) from None

    def note_halves(self, halves: Sequence[tuple[Any, ...]], born_host: bytes) -> None:
        """Register half messages put by the native turn; see PlainHalf."""
        self._detours.note_halves(halves, born_host)

    def _serve(
        self,
        request: RemotingCommand,
        connection: Connection,
        ext_fields: Mapping[str, str],
        *,
        is_batch: bool = False,
    ) -> Answer:
        """Serve a send whose header is a dict of strings."""
        header = SendHeader.of(ext_fields)
        if is_batch or header.batch == "true":
            return self._send_batch(request, connection, header)
        return self._send(request, connection, header)

    def _send(self, request: RemotingCommand, connection: Connection, header: SendHeader) -> Answer:
        topic = header.topic
        queue_id = header.queue_id
        if not 0 <= queue_id < self._plain_queues[topic]:
            topic, queue_id = self._place(request, connection, header)
        put_topic, put_queue_id, detour = topic, queue_id, None
        text = header.properties or ""
        table = decode_client_properties(text)
        get = table.get
        wait = get(PROPERTY_WAIT_STORE_MSG_OK)
        if SPECIAL_PROPERTIES.isdisjoint(table):
            if wait is not None:
                text = without(text, PROPERTY_WAIT_STORE_MSG_OK, wait)
            elif text and text[-1] != PROPERTY_SEPARATOR:
                text += PROPERTY_SEPARATOR
            text += self._cluster_pair
        else:
            detour = self._detour(table, topic, queue_id, is_dead=topic is not header.topic)
            if detour is not None:
                put_topic, put_queue_id = detour
            require_no_nul(text)  # a repeated name would hide it in the table
            text = encode_properties(table)
        is_watched = self._tracer.watching
        validated_s = self._clock.monotonic() if is_watched else 0.0
        result = self._store.put_message(
            put_topic,
            put_queue_id,
            request.body,
            text,
            tags=get(PROPERTY_TAGS),
            keys=get(PROPERTY_KEYS),
            uniq_key=get(PROPERTY_UNIQ_KEY),
            flag=header.flag,
            sys_flag=header.sys_flag & NO_TRANSACTION,
            born_timestamp=header.born_timestamp,
            born_host=connection.remote_host,
            reconsume_times=header.reconsume_times or 0,
        )
        if result.status is not PUT_OK:
            require_no_nul(text)
            raise RequestRefusedError(*self._remarks[result.status])
        self._stats.put(put_topic, 1, result.wrote_size)
        if detour is not None:
            self._detours.note_put(
                detour, result, table, request.body, header.born_timestamp, connection.remote_host
            )
            if is_watched:
                place, body_size = (topic, queue_id), len(request.body)
                self.trace.waits(header, connection, place, result, table, body_size, validated_s)
        elif topic is not header.topic:
            self._note_dead_letter(header, table)
            if self._tracer.notes_errors:
                place, body_size = (topic, queue_id), len(request.body)
                self.trace.dead(header, connection, place, result, table, body_size, validated_s)
        elif is_watched:
            place, body_size = (topic, queue_id), len(request.body)
            self.trace.stored(header, connection, place, result, table, body_size, validated_s)
        commit_log_offset = result.commit_log_offset
        answer: RemotingCommand | bytes
        if request.serialize_type == SERIALIZE_JSON:
            # Formatting one template with % is the fastest way to build these bytes in CPython.
            answer = framed(
                self._template % (commit_log_offset, queue_id, result.queue_offset, request.opaque)
            )
        else:
            answer = self._stored(request, ResponseCode.SUCCESS, queue_id, result)
        if detour is not None and put_topic == RMQ_SYS_TIMER_TOPIC:
            answer = self._with_recall_handle(request, queue_id, result, table)
        outcome: Answer = answer
        if self._acknowledge.waits and wait != "false":
            outcome = self._when_acknowledged(request, queue_id, result, answer)
        else:
            self._latency.served += 1
        if self._unwritten_topics and topic in self._unwritten_topics:
            return self._when_topic_is_written(topic, outcome)
        return outcome

    def _send_batch(
        self, request: RemotingCommand, connection: Connection, header: SendHeader
    ) -> Answer:
        topic = header.topic
        queue_id = header.queue_id
        if not 0 <= queue_id < self._plain_queues[topic]:
            queue_id = self._placement.place(destination_of(header, connection))
        text = header.properties or ""
        table = decode_client_properties(text)
        require_no_nul(text)  # a repeated name would hide it in the table
        if header.sys_flag & TRANSACTION_MASK or PROPERTY_DELAY_TIME_LEVEL in table:
            raise RequestRefusedError(*self._remarks[PutMessageStatus.MESSAGE_ILLEGAL])
        table[PROPERTY_CLUSTER] = self._cluster_name
        puts = self._store.own_puts
        body = request.body
        if (
            puts is None
            or len(body) <= MESSAGES_AT_ONCE * batch.MESSAGE_BYTES_MIN
            or not batch.has_more_messages(body, MESSAGES_AT_ONCE)
        ):
            return self._put_batch(request, connection, header, queue_id, table, {})
        steps = puts.batch_steps(
            topic,
            queue_id,
            request.body,
            encode_properties(table),
            born_host=connection.remote_host,
        )
        parts = connection.run_alone(steps)
        return self._put_when_read(request, connection, header, queue_id, table, parts)

    async def _put_when_read(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: SendHeader,
        queue_id: int,
        table: dict[str, str],
        parts: Awaitable[BatchParts],
    ) -> RemotingCommand | bytes:
        """Read a batch, then put it."""
        try:
            read = {"parts": await parts}
            answer = self._put_batch(request, connection, header, queue_id, table, read)
        except RefusedPutError as refusal:
            refused_because = RequestRefusedError(*self._remarks[refusal.status])
            raise refused_because.with_fields(self._ext_fields) from None
        except (RequestRefusedError, PropertiesError) as error:
            raise refusal_of(error).with_fields(self._ext_fields) from None
        return answer if isinstance(answer, RemotingCommand | bytes) else await answer

    def _put_batch(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: SendHeader,
        queue_id: int,
        table: dict[str, str],
        read: dict[str, BatchParts],
    ) -> Answer:
        """Put a batch; `read` contains its parts if they have already been read."""
        topic = header.topic
        wait = table.get(PROPERTY_WAIT_STORE_MSG_OK)
        is_watched = self._tracer.watching
        validated_s = self._clock.monotonic() if is_watched else 0.0
        result = self._store.put_batch(
            topic,
            queue_id,
            request.body,
            encode_properties(table),
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.remote_host,
            reconsume_times=header.reconsume_times or 0,
            **read,
        )
        if result.status is not PUT_OK:
            raise RequestRefusedError(*self._remarks[result.status])
        self._stats.put(topic, len(result.commit_log_offsets), result.wrote_size)
        if is_watched:
            self.trace.batch(header, connection, queue_id, result, validated_s)
        answer = self._stored(request, ResponseCode.SUCCESS, queue_id, result)
        outcome: Answer = answer
        if self._acknowledge.waits and wait != "false":
            outcome = self._when_acknowledged(request, queue_id, result, answer)
        else:
            self._latency.served += 1
        if self._unwritten_topics and topic in self._unwritten_topics:
            return self._when_topic_is_written(topic, outcome)
        return outcome

    def _place(
        self, request: RemotingCommand, connection: Connection, header: SendHeader
    ) -> tuple[str, int]:
        """Return the topic and queue_id for a message, which may be the dead-letter queue.

        Differs: in RocketMQ a dead letter also waits for the delay of a retry.
        """
        topic = header.topic
        queue_id = self._placement.place(destination_of(header, connection))
        header.sys_flag |= self._placement.sys_flag_of(topic)
        if topic.startswith(names.RETRY_GROUP_TOPIC_PREFIX):
            group_config = self._dead_letters.require_group(_group_of(topic))
            times_max = header.max_reconsume_times if request.version >= V3_4_9 else None
            if self._dead_letters.is_dead(group_config, header.reconsume_times or 0, times_max):
                return self._dead_letters.topic_of(group_config.group_name).topic_name, DLQ_QUEUE_ID
        return topic, queue_id

    def _detour(
        self, table: dict[str, str], topic: str, queue_id: int, *, is_dead: bool
    ) -> Place | None:
        """Return where a message waits before it goes to its queue, and complete its properties."""
        wait = table.pop(PROPERTY_WAIT_STORE_MSG_OK, None)
        table[PROPERTY_CLUSTER] = self._cluster_name
        if is_dead:
            for name in (PROPERTY_DELAY_TIME_LEVEL, *TIMER_PROPERTIES):
                table.pop(name, None)
        detour = self._detours.place_of(table, topic, queue_id)
        if detour is not None and wait is not None:
            # Stored with a waiting message, as in RocketMQ.
            table[PROPERTY_WAIT_STORE_MSG_OK] = wait
        return detour

    def _note_dead_letter(self, header: SendHeader, table: Mapping[str, str]) -> None:
        self._dead_letters.note_put(
            _group_of(header.topic),
            table.get(names.PROPERTY_RETRY_TOPIC),
            table.get(PROPERTY_UNIQ_KEY),
            header.reconsume_times or 0,
        )

    async def _when_topic_is_written(self, topic: str, outcome: Answer) -> RemotingCommand | bytes:
        """Answer once the topic, created by this or a recent message, will survive a restart."""
        await self._placement.until_topic_is_written(topic)
        return outcome if isinstance(outcome, RemotingCommand | bytes) else await outcome

    def _when_acknowledged(
        self,
        request: RemotingCommand,
        queue_id: int,
        result: PutMessageResult | PutBatchResult,
        answer: RemotingCommand | bytes,
    ) -> Answer:
        """Answer once the put counts or has failed."""

        put_at = self._clock.monotonic()
        later = PendingSends(self, request, queue_id, result, answer, put_at)
        if not self._acknowledge.notify(result, later, put_at):
            self._latency.served += 1
            return answer
        return later.outcome if later.is_done else later

    def answer_of(self, put: PendingSends, status: PutMessageStatus) -> RemotingCommand | bytes:
        """Return the answer to a put with a final outcome."""
        took_s = self._clock.monotonic() - put.put_at
        self._latency.record(took_s)
        if took_s > SLOW_PUT_S:
            self.trace.slow_offset(put.result.commit_log_offset, took_s)
        if status is PUT_OK:
            return put.answer
        if status in WARNING_CODES:
            if isinstance(put.answer, RemotingCommand):
                return put.request.answer(WARNING_CODES[status], ext_fields=put.answer.ext_fields)
            return self._stored(put.request, WARNING_CODES[status], put.queue_id, put.result)
        refusal = RequestRefusedError(*self._remarks[status])
        return refused(put.request, refusal.with_fields(self._ext_fields))

    def when_together(
        self, end: int, answers: bytes, requests: int, frame_bytes: int
    ) -> DeferredAnswer:
        """Answer the sends of a turn once all of them count; the last one ends at `end`."""
        put_at = self._clock.monotonic()
        later = PendingSendsOfTurn(self, answers, put_at)
        later.requests = requests
        later.frame_bytes = frame_bytes
        self._acknowledge.report_together(end, later, put_at)
        return later

    def answers_of(self, puts: PendingSendsOfTurn, status: PutMessageStatus) -> bytes:
        """Return the answers to puts with final outcomes."""
        took_s = self._clock.monotonic() - puts.put_at
        self._latency.record(took_s, puts.requests)
        if took_s > SLOW_PUT_S:
            for offset in MSG_ID_OFFSET.findall(puts.answers):
                self.trace.slow_offset(int(offset, 16), took_s)
        if status is PUT_OK:
            return puts.answers
        decoder = FrameDecoder()
        decoder.feed(puts.answers)
        return b"".join(
            [self._replace_success(stored, status).encode() for stored in decoder.commands()]
        )

    def _replace_success(
        self, stored: RemotingCommand, status: PutMessageStatus
    ) -> RemotingCommand:
        """Return the answer to a stored message whose put status isn't PUT_OK."""
        if status in WARNING_CODES:
            fields = {**self._ext_fields, **stored.ext_fields, **self._ext_fields}
            return stored.answer(WARNING_CODES[status], ext_fields=fields)
        refusal = RequestRefusedError(*self._remarks[status])
        return refused(stored, refusal.with_fields(self._ext_fields))

    def _with_recall_handle(
        self,
        request: RemotingCommand,
        queue_id: int,
        result: PutMessageResult,
        table: Mapping[str, str],
    ) -> RemotingCommand:
        """Return the answer to the send of a timer message, with its recall handle."""
        answer = self._stored(request, ResponseCode.SUCCESS, queue_id, result)
        handle = recall_handle_of(table, self._config.broker_name)
        if handle is not None:
            answer.ext_fields["recallHandle"] = handle
        return answer

    def _stored(
        self,
        request: RemotingCommand,
        code: ResponseCode,
        queue_id: int,
        result: PutMessageResult | PutBatchResult,
    ) -> RemotingCommand:
        """Return the answer with the location of stored messages."""
        if isinstance(result, PutBatchResult):
            msg_id = ",".join([self._msg_id % offset for offset in result.commit_log_offsets])
        else:
            msg_id = self._msg_id % result.commit_log_offset
        return request.answer(
            code,
            ext_fields={
                **self._ext_fields,
                "msgId": msg_id,
                "queueId": str(queue_id),
                "queueOffset": str(result.queue_offset),
            },
        )


def refusal_of(error: RequestRefusedError | PropertiesError) -> RequestRefusedError:
    """Return the refusal for the sender of a message."""
    if isinstance(error, RequestRefusedError):
        return error
    return RequestRefusedError(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}")


def producer_fields(config: BrokerConfig) -> dict[str, str]:
    """Return the ext fields that producers expect in every answer, including refusals."""
    return {"MSG_REGION": config.region_id, "TRACE_ON": "true" if config.trace_on else "false"}


def destination_of(header: SendHeader, connection: Connection) -> Destination:
    """Return a send's destination in the form that placement expects."""
    return Destination(
        header.topic,
        header.queue_id,
        header.default_topic,
        header.default_topic_queue_nums,
        connection.remote_address,
        is_unit=header.unit_mode == "true",
    )


def _group_of(retry_topic: str) -> str:
    return retry_topic[len(names.RETRY_GROUP_TOPIC_PREFIX) :]
