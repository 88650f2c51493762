"""POP requests: lease messages of a queue or a topic, immediately or as soon as they arrive.

Source: broker/processor/PopMessageProcessor.java, PeekMessageProcessor.java,
NotificationProcessor.java, PollingInfoProcessor.java (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import BrokerError, RequestRefusedError
from broker_core.formats import record
from broker_core.formats.record import store_timestamp_of
from broker_core.isolation import FAILURES
from broker_core.message import names
from broker_core.message.properties import encode as encode_properties
from broker_core.message.topic_config import PERM_READ
from broker_core.pop.checkpoint import OFFSETS_MAX, QueueKey
from broker_core.pop.results import PopRequest, PopResult
from broker_core.processors.consumer_trace import AnsweredPull
from broker_core.protocol import receipt
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.headers import fields
from broker_core.remoting.dispatch import internal_error, refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from broker_core.clock import Clock
    from broker_core.config.broker import BrokerConfig
    from broker_core.metadata.topics import Topics
    from broker_core.pop.engine import PopEngine
    from broker_core.pop.pollers import Pollers
    from broker_core.pop.results import LeasedBatch
    from broker_core.processors.consumer_trace import ConsumerTrace
    from broker_core.processors.subscription_check import SubscriptionCheck
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.stats.counters import BrokerStats

    Spawn = Callable[[Coroutine[object, object, None]], object]

POLL_MS_MAX = 60_000
LATE_MS_MAX = 500
"""A request that waited this much longer than its poll time gets no messages: its client has given
up.
"""
NO_MESSAGE = "NO_MESSAGE_IN_QUEUE"
STORED_ONLY = (names.PROPERTY_POP_CK, names.PROPERTY_CRC32)
"""Properties omitted from answers, as a message's topic and receipt differ there."""
REVIVE_QUEUE = 0


class PopProcessor:
    """POP_MESSAGE (200050), PEEK_MESSAGE (200052), NOTIFICATION (200054), POLLING_INFO (200055).

    Event loop only. `spawn` runs a waiting pop's read from the disk.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        check: SubscriptionCheck,
        engine: PopEngine,
        pollers: Pollers,
        trace: ConsumerTrace,
        stats: BrokerStats,
        spawn: Spawn,
        clock: Clock,
    ) -> None:
        self._config = config
        self._topics = topics
        self._check = check
        self.engine = engine
        self._pollers = pollers
        self._trace = trace
        self._tracer = trace.tracer
        self._stats = stats
        self.spawn = spawn
        self._clock = clock

    def pop_message(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """POP_MESSAGE.

        Answers SUCCESS with the records as body and their offsets in the header; POLLING_TIMEOUT
        without a message, after a wait if the request allows one; POLLING_FULL if too many pops
        wait; NO_PERMISSION, INVALID_PARAMETER, TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST,
        SUBSCRIPTION_PARSE_FAILED, SYSTEM_BUSY if too many messages are leased, SYSTEM_ERROR.
        Returns None while the pop waits.
        """
        header = request.ext_fields
        born_ms = fields.int64(header, "bornTime", self._clock.now_ms())
        poll_ms = fields.int64(header, "pollTime", 0, low=0)
        if self._clock.now_ms() - born_ms - poll_ms > LATE_MS_MAX:
            raise RequestRefusedError(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{self._config.broker_ip1}] pop message is timeout too much",
            )
        pop_request = self._pop_request(request, connection)
        key = QueueKey(pop_request.group, pop_request.topic, pop_request.queue_id)
        poll = WaitingPop(self, request, connection, key, pop_request, min(poll_ms, POLL_MS_MAX))
        popped = self.engine.pop(pop_request)
        if isinstance(popped, PopResult):
            return self.answer_or_wait(poll, popped)
        return self._answer_later(poll, popped)

    def peek_message(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """PEEK_MESSAGE. Answers as POP_MESSAGE does, without leasing messages or waiting."""
        pop_request = self._pop_request(request, connection)
        popped = self.engine.peek(pop_request)
        if isinstance(popped, PopResult):
            return self._peek_answer(request, popped)
        return self._peek_later(request, popped)

    def notification(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | None:
        """NOTIFICATION. Answers as soon as a pop may find a message, or after the poll time."""
        pop_request = self._pop_request(request, connection)
        if self.engine.has_message(pop_request):
            return self.notification_answer(request, has_message=True)
        poll_ms = min(fields.int64(request.ext_fields, "pollTime", 0, low=0), POLL_MS_MAX)
        key = QueueKey(pop_request.group, pop_request.topic, pop_request.queue_id)
        if not poll_ms:
            return self.notification_answer(request, has_message=False)
        if self._pollers.is_full(key, connection):
            return self.notification_answer(request, has_message=False, is_full=True)
        self._wait(_Notification(self, request, connection, key, pop_request, poll_ms))
        return None

    def polling_info(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """POLLING_INFO. Answers SUCCESS with the number of waiting pops."""
        header = request.ext_fields
        topic, group = fields.text(header, "topic"), fields.text(header, "consumerGroup")
        queue_id = fields.int32(header, "queueId", -1)
        self._require_topic(topic)
        count = self._pollers.count_of(QueueKey(group, topic, queue_id))
        return request.answer(ResponseCode.SUCCESS, None, {"pollingNum": str(count)})

    def answer_or_wait(self, poll: WaitingPop, popped: PopResult) -> RemotingCommand | None:
        """Return the answer, or let the pop wait and return None.

        Raises:
            RequestRefusedError: the store or a limit allows no lease.
        """
        if popped.count or popped.is_partial or not poll.timeout_ms:
            return self.answer(poll, popped)
        if popped.is_full or popped.is_unwritable:
            return self.answer(poll, popped)
        if self._pollers.is_full(poll.key, poll.connection):
            return poll.request.answer(
                ResponseCode.POLLING_FULL, "too many pops are waiting", _header(popped)
            )
        self._wait(poll)
        return None

    def answer(self, poll: WaitingPop, popped: PopResult) -> RemotingCommand:
        """Return the answer, and report it to the statistics and the tracers.

        Raises:
            RequestRefusedError: the store or a limit allows no lease.
        """
        request = poll.request
        header = _header(popped, is_ordered=poll.pop_request.is_ordered)
        if not popped.count:
            if popped.is_unwritable:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    "no message was leased: the store refused the record of the lease; check the "
                    "broker's disk, then try again",
                )
            if popped.is_full:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_BUSY,
                    "no message was leased: the group or the broker has reached popLeaseNumsMax or "
                    "popLeaseBytesMax; acknowledge messages first",
                )
            return request.answer(ResponseCode.POLLING_TIMEOUT, NO_MESSAGE, header)
        body: list[memoryview | bytes] = []
        for batch in popped.batches:
            body += self._bodies(batch, popped, poll.pop_request)
            self._report(poll, batch)
        return request.answer(ResponseCode.SUCCESS, "FOUND", header, body)

    def notification_answer(
        self, request: RemotingCommand, *, has_message: bool, is_full: bool = False
    ) -> RemotingCommand:
        """Return the answer to a NOTIFICATION."""
        words = {True: "true", False: "false"}
        return request.answer(
            ResponseCode.SUCCESS,
            None,
            {"hasMsg": words[has_message], "pollingFull": words[is_full]},
        )

    async def answer_waiting(self, poll: WaitingPop, reading: Awaitable[PopResult]) -> None:
        """Send the answer to a pop that waited, after its messages are read from the disk."""
        try:
            answer = self.answer_or_wait(poll, await reading)
        except RequestRefusedError as refusal:
            answer = refused(poll.request, refusal)
        except (BrokerError, OSError) as error:
            FAILURES.report("a pop that waited", f"{poll.key.topic} {poll.key.queue_id}", error)
            answer = internal_error(poll.request)
        if answer is not None:
            poll.connection.send(answer, at_once=True)

    async def _answer_later(
        self, poll: WaitingPop, reading: Awaitable[PopResult]
    ) -> RemotingCommand | None:
        return self.answer_or_wait(poll, await reading)

    async def _peek_later(
        self, request: RemotingCommand, reading: Awaitable[PopResult]
    ) -> RemotingCommand:
        return self._peek_answer(request, await reading)

    def _peek_answer(self, request: RemotingCommand, popped: PopResult) -> RemotingCommand:
        header = {
            "popTime": "0",
            "invisibleTime": "0",
            "reviveQid": "0",
            "restNum": str(popped.rest_count),
        }
        if not popped.count:
            return request.answer(ResponseCode.PULL_NOT_FOUND, NO_MESSAGE, header)
        body = [each for batch in popped.batches for each in batch.records]
        return request.answer(ResponseCode.SUCCESS, "FOUND", header, body)

    def _wait(self, poll: WaitingPop | _Notification) -> None:
        pop_request = poll.pop_request
        places = [
            (topic, queue_id)
            for topic in (
                pop_request.topic,
                names.pop_retry_topic(pop_request.group, pop_request.topic),
            )
            for queue_id in self._queues_to_watch(topic, pop_request)
        ]
        self._pollers.wait(poll.key, places, poll, poll.timeout_ms / 1000)

    def _queues_to_watch(self, topic: str, pop_request: PopRequest) -> range:
        found = self._topics.find(topic)
        if found is None:
            # The retry topic doesn't exist yet. It will have one queue.
            return range(1)
        if topic == pop_request.topic and pop_request.queue_id >= 0:
            return range(pop_request.queue_id, pop_request.queue_id + 1)
        return range(found.read_queue_nums)

    def _pop_request(self, request: RemotingCommand, connection: Connection) -> PopRequest:
        """Return a request's parameters.

        Raises:
            RequestRefusedError: a parameter isn't allowed; the checks are in RocketMQ's order.
        """
        header = request.ext_fields
        group, topic = fields.text(header, "consumerGroup"), fields.text(header, "topic")
        queue_id = fields.int32(header, "queueId", -1)
        if not self._config.broker_permission & PERM_READ:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] pop message is forbidden",
            )
        count = fields.int32(header, "maxMsgNums", OFFSETS_MAX)
        if count > OFFSETS_MAX and request.code == RequestCode.POP_MESSAGE:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{self._config.broker_ip1}] pop message's num is greater than "
                f"{OFFSETS_MAX}",
            )
        self._require_topic(topic)
        topic_config = self._topics.find(topic)
        queues = 0 if topic_config is None else topic_config.read_queue_nums
        if queue_id >= queues:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{queues}] consumer:[{connection.remote_address}]",
            )
        message_filter = self._check.filter_of(
            group,
            topic,
            max(0, queue_id),
            connection.remote_address,
            0,
            header.get("exp") or "",
            header.get("expType") or None,
        )
        return PopRequest(
            group=group,
            topic=topic,
            queue_id=max(-1, queue_id),
            count=max(1, min(count, OFFSETS_MAX)),
            invisible_ms=fields.int64(header, "invisibleTime", 0),
            init_mode=fields.int32(header, "initMode", 0),
            message_filter=message_filter,
            is_ordered=fields.boolean(header, "order"),
            attempt_id=header.get("attemptId") or None,
            retries_max=self._retries_max(group),
        )

    def _retries_max(self, group: str) -> int | None:
        found = self._check.groups.find(group)
        return None if found is None else found.retry_max_times

    def _require_topic(self, topic: str) -> None:
        if self._topics.find(topic) is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
            )

    def _bodies(
        self, batch: LeasedBatch, popped: PopResult, pop_request: PopRequest
    ) -> list[memoryview | bytes]:
        """Return the records; those of a retry topic get their original topic and a receipt."""
        if not batch.is_retry:
            return list(batch.records)
        bodies: list[memoryview | bytes] = []
        for offset, view in zip(batch.offsets, batch.records, strict=True):
            text = receipt.Receipt(
                batch.start_offset,
                popped.pop_time_ms,
                popped.invisible_ms,
                REVIVE_QUEUE,
                receipt.RETRY_KIND,
                self._config.broker_name,
                batch.key.queue_id,
                offset,
            ).text()
            added = encode_properties({names.PROPERTY_POP_CK: text})
            bodies.append(record.with_topic(view, pop_request.topic, added, STORED_ONLY))
        return bodies

    def _report(self, poll: WaitingPop, batch: LeasedBatch) -> None:
        """Report delivered messages to the statistics, the flight recorder and live traces."""
        key, records = batch.key, batch.records
        size = sum(map(len, records))
        self._stats.got(key.topic, key.group, key.queue_id, len(records), size)
        recorder = self._tracer.recorder
        end = batch.offsets[-1] + 1
        if recorder.is_on:
            recorder.delivered(
                (key.group, key.topic, key.queue_id),
                batch.start_offset,
                end,
                store_timestamp_of(records[0], 0),
                size,
                poll.connection.remote_address,
                is_cold=False,
                handed_out=batch.offsets[0],
            )
        if self._tracer.watching:
            self._trace.delivered(
                AnsweredPull(
                    key.group,
                    key.topic,
                    key.queue_id,
                    batch.start_offset,
                    end,
                    poll.connection,
                    records,
                    len(records),
                    poll.pop_request.message_filter,
                )
            )


class _Poll:
    """A request that waits for a message."""

    __slots__ = ("_processor", "connection", "key", "pop_request", "request", "timeout_ms")

    def __init__(
        self,
        processor: PopProcessor,
        request: RemotingCommand,
        connection: Connection,
        key: QueueKey,
        pop_request: PopRequest,
        timeout_ms: int,
    ) -> None:
        self._processor = processor
        self.request = request
        self.connection = connection
        self.key = key
        self.pop_request = pop_request
        self.timeout_ms = timeout_ms

    @property
    def is_answerable(self) -> bool:
        """See pollers.Poll."""
        return self.connection.is_writable or not self.connection.is_open


class _Notification(_Poll):
    __slots__ = ()

    def attempt(self, *, is_last: bool) -> bool:
        """See pollers.Poll."""
        has_message = self.connection.is_open and self._processor.engine.has_message(
            self.pop_request
        )
        if not has_message and not is_last:
            return not self.connection.is_open
        self.connection.send(
            self._processor.notification_answer(self.request, has_message=has_message), at_once=True
        )
        return True


class WaitingPop(_Poll):
    """A pop that waits for a message."""

    __slots__ = ()

    def attempt(self, *, is_last: bool) -> bool:
        """See pollers.Poll."""
        if not self.connection.is_open:
            return True
        try:
            return self._attempt(is_last=is_last)
        except MemoryError:
            raise
        except Exception:
            # Answer the client; Pollers logs the error.
            self.connection.send(internal_error(self.request), at_once=True)
            raise

    def _attempt(self, *, is_last: bool) -> bool:
        processor = self._processor
        try:
            popped = processor.engine.pop(self.pop_request)
            if not isinstance(popped, PopResult):
                self.timeout_ms = 0
                processor.spawn(processor.answer_waiting(self, popped))
                return True
            if not (popped.count or popped.is_partial or is_last):
                return False
            answer = processor.answer(self, popped)
        except RequestRefusedError as refusal:
            answer = refused(self.request, refusal)
        self.connection.send(answer, at_once=True)
        return True


def _header(popped: PopResult, *, is_ordered: bool = False) -> dict[str, str]:
    """Return an answer's fields, from which clients build each message's receipt."""
    header = {
        "popTime": str(popped.pop_time_ms),
        "invisibleTime": str(popped.invisible_ms),
        "reviveQid": str(receipt.ORDERED_QUEUE if is_ordered else REVIVE_QUEUE),
        "restNum": str(popped.rest_count),
    }
    if popped.batches:
        kinds = [
            receipt.RETRY_KIND if batch.is_retry else receipt.TOPIC_KIND for batch in popped.batches
        ]
        pairs = list(zip(kinds, popped.batches, strict=True))
        header["startOffsetInfo"] = receipt.start_offsets(
            [(kind, each.key.queue_id, each.start_offset) for kind, each in pairs]
        )
        header["msgOffsetInfo"] = receipt.message_offsets(
            [(kind, each.key.queue_id, each.offsets) for kind, each in pairs]
        )
        if is_ordered:
            header["orderCountInfo"] = receipt.order_counts(
                [(kind, each.key.queue_id, each.offsets, each.times) for kind, each in pairs]
            )
    return header
