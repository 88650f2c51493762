"""Requests for leased messages: acknowledge one or several, change the invisible time.

Source: broker/processor/AckMessageProcessor.java, ChangeInvisibleTimeProcessor.java (5.3.3).
Differs: a receipt without a lease changes nothing. As in RocketMQ, acknowledging it answers
SUCCESS, but changing its time answers NO_MESSAGE; RocketMQ leases any offset it contains.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.message.names import is_retry_topic, pop_retry_topic
from broker_core.pop.checkpoint import Handle, QueueKey
from broker_core.pop.results import Outcome
from broker_core.protocol import java_json
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields
from broker_core.protocol.receipt import ORDERED_QUEUE, RETRY_KIND, Receipt, parse_receipt
from broker_core.steps import run_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Container, Generator

    from broker_core.clock import Clock
    from broker_core.metadata.topics import Topics
    from broker_core.pop.engine import PopEngine
    from broker_core.processors.consumer_trace import ConsumerTrace
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore

BATCH_MAX = 1_024
"""Entries in a batch. Each acknowledges up to 32 messages."""
AT_ONCE_S = 0.002
"""How long a batch is served before other connections have their turns."""


class _BatchAck(msgspec.Struct):
    """Acknowledgements in one checkpoint. `bits` is Java's BitSet in little-endian base64."""

    group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")
    queue_id: int = msgspec.field(name="q")
    start_offset: int = msgspec.field(name="so")
    pop_time_ms: int = msgspec.field(name="pt")
    bits: str | None = msgspec.field(name="b", default=None)
    kind: str = msgspec.field(name="r", default="0")
    revive_queue: int = msgspec.field(name="rq", default=0)


class _BatchBody(msgspec.Struct, rename="camel"):
    broker_name: str | None = None
    acks: list[_BatchAck] | None = None


class PopAcksProcessor:
    """ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151), CHANGE_MESSAGE_INVISIBLETIME (200053).

    Event loop only.
    """

    def __init__(
        self,
        broker_name: str,
        topics: Topics,
        store: MessageStore,
        engine: PopEngine,
        trace: ConsumerTrace,
        clock: Clock,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._store = store
        self._engine = engine
        self._trace = trace
        self._monotonic = clock.monotonic

    def ack_message(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """ACK_MESSAGE.

        Answers SUCCESS, even if the lease has ended; TOPIC_NOT_EXIST, MESSAGE_ILLEGAL for a queue,
        NO_MESSAGE for an offset outside the queue, SYSTEM_BUSY, SYSTEM_ERROR.
        """
        key, offset = self._place(request, connection)
        receipt = self._receipt(request)
        outcome = self._acknowledge(self._leased_in(key, receipt), receipt, [offset], connection)
        if outcome is Outcome.UNWRITABLE:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                "couldn't store the acknowledgement; check the broker's disk, then try again",
            )
        return request.answer(ResponseCode.SUCCESS)

    def batch_ack_message(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """BATCH_ACK_MESSAGE. Answers SUCCESS, NO_MESSAGE for an empty batch, or SYSTEM_ERROR.

        Each entry writes a record to the log, so a long batch takes several turns of the event
        loop, even after its client has disconnected.
        """
        try:
            body = java_json.decode_as(request.body, _BatchBody) if request.body else _BatchBody()
        except ValueError as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"couldn't decode the batch: {error}"
            ) from error
        if not body.acks:
            raise RequestRefusedError(ResponseCode.NO_MESSAGE, "the batch has no entries")
        if len(body.acks) > BATCH_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the batch has {len(body.acks)} entries, more than {BATCH_MAX}",
            )
        steps = self._batch_steps(request, body, connection)
        end = run_for(AT_ONCE_S, self._monotonic, steps)
        if end is None:
            return connection.run(steps)
        answer: RemotingCommand = end.value
        return answer

    def _batch_steps(
        self, request: RemotingCommand, body: _BatchBody, connection: Connection
    ) -> Generator[None, None, RemotingCommand]:
        is_refused = False
        for ack in body.acks or ():
            receipt = Receipt(
                ack.start_offset,
                ack.pop_time_ms,
                0,
                ack.revive_queue,
                ack.kind,
                body.broker_name or "",
                ack.queue_id,
                ack.start_offset,
            )
            key = self._leased_in(QueueKey(ack.group, ack.topic, ack.queue_id), receipt)
            for offsets in self._parts(key, receipt, _BitOffsets(ack.start_offset, ack.bits)):
                outcome = self._acknowledge(key, receipt, offsets, connection)
                is_refused = is_refused or outcome is Outcome.UNWRITABLE
                yield
        if is_refused:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                "couldn't store some acknowledgements; check the broker's disk, then try again",
            )
        return request.answer(ResponseCode.SUCCESS)

    def change_invisible_time(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """CHANGE_MESSAGE_INVISIBLETIME.

        Answers SUCCESS with the fields of the new receipt; TOPIC_NOT_EXIST, MESSAGE_ILLEGAL,
        NO_MESSAGE for an offset that the receipt doesn't lease, SYSTEM_BUSY, SYSTEM_ERROR.
        """
        key, offset = self._place(request, connection)
        receipt = self._receipt(request)
        key = self._leased_in(key, receipt)
        invisible_ms = fields.int64(request.ext_fields, "invisibleTime")
        is_suspended = fields.boolean(request.ext_fields, "suspend")
        if receipt.is_ordered:
            changed = self._engine.change_invisible_ordered(
                key, receipt.pop_time_ms, offset, invisible_ms, is_suspended=is_suspended
            )
        else:
            handle = Handle(receipt.start_offset, receipt.pop_time_ms)
            changed = self._engine.change_invisible(
                key, handle, offset, invisible_ms, is_suspended=is_suspended
            )
        if changed.outcome is Outcome.UNWRITABLE:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                "couldn't store the new invisible time; check the broker's disk, then try again",
            )
        if changed.outcome is Outcome.GONE:
            raise RequestRefusedError(
                ResponseCode.NO_MESSAGE,
                f"couldn't change the invisible time: the lease of offset {offset} in queue "
                f"{key.queue_id} of {key.topic} has ended or never existed",
            )
        return request.answer(
            ResponseCode.SUCCESS,
            None,
            {
                "popTime": str(changed.pop_time_ms),
                "invisibleTime": str(changed.invisible_ms),
                "reviveQid": str(ORDERED_QUEUE if receipt.is_ordered else 0),
            },
        )

    def _parts(
        self, key: QueueKey, receipt: Receipt, offsets: Container[int]
    ) -> list[Container[int]]:
        """Split an entry into parts of which each writes at most one record."""
        if not receipt.is_ordered:
            return [offsets]
        handle = Handle(receipt.start_offset, receipt.pop_time_ms)
        leased = self._engine.leased_by(key, handle, is_ordered=True)
        return [(offset,) for offset in leased if offset in offsets] or [()]

    def _acknowledge(
        self, key: QueueKey, receipt: Receipt, offsets: Container[int], connection: Connection
    ) -> Outcome:
        if receipt.broker_name != self._broker_name:
            return Outcome.GONE
        engine = self._engine
        handle = Handle(receipt.start_offset, receipt.pop_time_ms)
        leased: list[int] = []
        if self._trace.tracer.watching:
            leased = engine.leased_by(key, handle, is_ordered=receipt.is_ordered)
        if receipt.is_ordered:
            outcome = engine.acknowledge_ordered(key, receipt.pop_time_ms, offsets)
        else:
            outcome = engine.acknowledge(key, handle, offsets)
        if outcome is Outcome.DONE:
            for offset in leased:
                if offset in offsets:
                    self._trace.acknowledged(*key, offset, offset + 1, connection)
        return outcome

    def _place(self, request: RemotingCommand, connection: Connection) -> tuple[QueueKey, int]:
        """Return the queue and the offset of a request.

        Raises:
            RequestRefusedError: they don't exist.
        """
        header = request.ext_fields
        group, topic = fields.text(header, "consumerGroup"), fields.text(header, "topic")
        queue_id, offset = fields.int32(header, "queueId"), fields.int64(header, "offset")
        topic_config = self._topics.find(topic)
        if topic_config is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
            )
        if not 0 <= queue_id < topic_config.read_queue_nums:
            raise RequestRefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{topic_config.read_queue_nums}] consumer:[{connection.remote_address}]",
            )
        low = self._store.min_offset_in_queue(topic, queue_id)
        high = self._store.max_offset_in_queue(topic, queue_id)
        if not low <= offset <= high:
            raise RequestRefusedError(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}",
            )
        return QueueKey(group, topic, queue_id), offset

    def _receipt(self, request: RemotingCommand) -> Receipt:
        try:
            return parse_receipt(fields.text(request.ext_fields, "extraInfo"))
        except ValueError as error:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error

    def _leased_in(self, key: QueueKey, receipt: Receipt) -> QueueKey:
        """Return the queue of the message; clients send the retry topic or the original one."""
        if receipt.kind == RETRY_KIND and not is_retry_topic(key.topic):
            return key._replace(topic=pop_retry_topic(key.group, key.topic))
        return key


class _BitOffsets:
    """The offsets of a batch entry: bit i of Java's BitSet is offset `start` + i."""

    __slots__ = ("_bits", "_start")

    def __init__(self, start: int, text: str | None) -> None:
        try:
            self._bits = base64.b64decode(text or "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, "the bits of a batch entry aren't valid base64"
            ) from error
        self._start = start

    def __contains__(self, offset: object) -> bool:
        bit = offset - self._start if isinstance(offset, int) else -1
        return 0 <= bit < 8 * len(self._bits) and bool(self._bits[bit >> 3] >> (bit & 7) & 1)
