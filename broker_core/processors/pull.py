"""Pulls: messages of a queue from an offset on, immediately or when they arrive.

Source: broker/processor/PullMessageProcessor.java (4.9.7). Differs: an offset outside the queue is
answered and logged, but no event is written to OFFSET_MOVED_EVENT, as in 5.x. A commit in a pull is
discarded if CommitCheck rejects it, and a client that still reads a deleted topic is directed to
the first message of the new one. If a pull is past the end of a slave's queue and may wait, the
slave holds it for a second. RocketMQ answers immediately, and without a master the client repeats
the pull in a tight loop.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broker_core.delivery.tag_filter import TagFilter
from broker_core.errors import RequestRefusedError
from broker_core.formats.record import queue_offset_of, store_timestamp_of
from broker_core.processors.consumer_trace import AnsweredPull
from broker_core.processors.pull_redirect import MASTER
from broker_core.processors.subscription_check import KEPT_CHARS_MAX, kept_filter
from broker_core.processors.wrappers.consume_hooks import QueuePlace
from broker_core.protocol import binary_header
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.command import RemotingCommand, answer_template, parts_of
from broker_core.protocol.headers import fields
from broker_core.protocol.headers.pull_message import (
    FLAG_COMMIT_OFFSET,
    FLAG_SUBSCRIPTION,
    FLAG_SUSPEND,
    MAX_MSG_NUMS_MAX,
)
from broker_core.remoting.dispatch import internal_error, refused
from broker_core.store.results import FILTERED_UNITS_MAX, GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from broker_core.clock import Clock
    from broker_core.config.broker import BrokerConfig
    from broker_core.counted_log import CountedLog
    from broker_core.delivery.parked_pulls import ParkedPulls
    from broker_core.delivery.slow_consumers import SlowConsumers
    from broker_core.processors.consumer_trace import ConsumerTrace
    from broker_core.processors.offset_commits import OffsetCommits
    from broker_core.processors.pull_redirect import PullRedirect
    from broker_core.processors.subscription_check import SubscriptionCheck
    from broker_core.processors.wrappers.consume_hooks import ConsumeHooks
    from broker_core.remoting.connection import Connection
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import MessageFilter
    from broker_core.trace.tracer import Tracer

logger = logging.getLogger(__name__)

SUSPEND_TIMEOUT_MS_MAX = 60_000
PARKED_CHARS_MAX = 8 * 1024
"""A pull with longer ext fields doesn't wait, because a parked pull keeps its request."""
AHEAD_TIMEOUT_MS = 1_000
"""How long a slave holds a pull past its queue's end before redirecting it to the master."""

CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
EMPTY = frozenset({GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE})
"""In a queue without messages only offset 0 may wait; any other offset has moved."""


PLAIN_STATUSES = (
    GetMessageStatus.FOUND,
    GetMessageStatus.NO_MATCHED_MESSAGE,
    GetMessageStatus.OFFSET_OVERFLOW_ONE,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE,
)
"""The outcomes of plain pulls; the last only at offset 0."""


@dataclass(frozen=True, slots=True)
class PullWatchers:
    """The receivers of the messages that pulls deliver."""

    trace: ConsumerTrace
    slow_consumers: SlowConsumers
    hooks: ConsumeHooks | None = None


class PlainPulls(NamedTuple):
    """The parts of this module that the native turn uses to serve plain pulls."""

    check: SubscriptionCheck
    kept_filter: Callable[[str, str, str | None], MessageFilter | None]
    """For expressions with at most kept_chars_max characters."""
    kept_chars_max: int
    filter_type: type[TagFilter]
    """Other filters aren't plain."""
    filtered_units_max: int
    commits: OffsetCommits
    pull_redirect: PullRedirect
    tracer: Tracer
    slow_consumers: SlowConsumers
    config: BrokerConfig
    parked_pulls: ParkedPulls
    again: Callable[..., Pull]
    """See PullProcessor.again."""
    trace_pull: Callable[[AnsweredPull, Sequence[memoryview] | None], None]
    """See ConsumerTrace.trace_plain_pull."""
    answered: type[AnsweredPull]
    store_host: bytes
    parked_chars_max: int
    suspend_timeout_ms_max: int
    statuses: tuple[str, ...]
    answer_parts: tuple[tuple[bytes, ...], ...]
    """JSON headers of these statuses, split at suggestWhichBrokerId, the next, minimum and maximum
    offsets and the opaque.
    """
    binary_parts: tuple[tuple[bytes, ...], ...]
    """Binary headers, split at the opaque, the length of the entries, and the same fields in this
    order.
    """


class PullProcessor:
    """PULL_MESSAGE (11), LITE_PULL_MESSAGE (361). Event loop only."""

    def __init__(
        self,
        config: BrokerConfig,
        check: SubscriptionCheck,
        commits: OffsetCommits,
        store: MessageStore,
        parked_pulls: ParkedPulls,
        watchers: PullWatchers,
        pull_redirect: PullRedirect,
        stats: BrokerStats,
        counted_log: CountedLog,
        clock: Clock,
    ) -> None:
        self._config = config
        self._check = check
        self._commits = commits
        self._former = commits.offsets.former
        self.store = store
        self._parked_pulls = parked_pulls
        self._trace = watchers.trace
        self._tracer = watchers.trace.tracer
        self._slow_consumers = watchers.slow_consumers
        self._hooks = watchers.hooks
        self.pull_redirect = pull_redirect
        self._stats = stats
        self._counted_log = counted_log
        self._clock = clock

    @property
    def plain(self) -> PlainPulls | None:
        """Data for plain pulls; None if a hook must see every pull."""
        if self._hooks is not None:
            return None
        names = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")
        places = b",".join(b'"%b":"%%d"' % name.encode() for name in names)
        fields_text = b"{" + places + b"}"
        return PlainPulls(
            self._check,
            kept_filter,
            KEPT_CHARS_MAX,
            TagFilter,
            FILTERED_UNITS_MAX,
            self._commits,
            self.pull_redirect,
            self._tracer,
            self._slow_consumers,
            self._config,
            self._parked_pulls,
            self.again,
            self._trace.trace_plain_pull,
            AnsweredPull,
            self._trace.store_host,
            PARKED_CHARS_MAX,
            SUSPEND_TIMEOUT_MS_MAX,
            tuple(status.name for status in PLAIN_STATUSES),
            tuple(
                parts_of(answer_template(fields_text, status.name.encode(), code_of(status, 0)))
                for status in PLAIN_STATUSES
            ),
            tuple(
                binary_header.answer_parts(code_of(status, 0), status.name, {}, names)
                for status in PLAIN_STATUSES
            ),
        )

    def pull_message(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """PULL_MESSAGE.

        Answers SUCCESS with the stored records as body; PULL_NOT_FOUND, after a wait if the request
        allows one; PULL_RETRY_IMMEDIATELY; PULL_OFFSET_MOVED; SYSTEM_ERROR, NO_PERMISSION,
        TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST, SUBSCRIPTION_PARSE_FAILED,
        SUBSCRIPTION_NOT_EXIST, SUBSCRIPTION_NOT_LATEST, FILTER_DATA_NOT_EXIST or
        FILTER_DATA_NOT_LATEST. Returns None while the pull waits.
        """
        header = request.ext_fields
        pull = Pull(
            self,
            request,
            connection,
            group=fields.text(header, "consumerGroup"),
            topic=fields.text(header, "topic"),
            queue_id=fields.int32(header, "queueId"),
            queue_offset=fields.int64(header, "queueOffset"),
            max_msg_nums=fields.int32(header, "maxMsgNums"),
        )
        sys_flag = fields.int32(header, "sysFlag")
        sub_version, expression, expression_type = 0, None, None
        if sys_flag & FLAG_SUBSCRIPTION:
            expression = header.get("subscription") or ""
            expression_type = header.get("expressionType") or None
        else:
            sub_version = fields.int64(header, "subVersion", 0)
        pull.message_filter = self._check.filter_of(
            pull.group,
            pull.topic,
            pull.queue_id,
            connection.remote_address,
            sub_version,
            expression,
            expression_type,
        )
        if sys_flag & FLAG_COMMIT_OFFSET and self.pull_redirect.commits_offsets:
            commit_offset = fields.int64(header, "commitOffset", 0)
            if commit_offset >= 0:
                self._commits.commit_with_pull(
                    pull.group, pull.topic, pull.queue_id, commit_offset, connection
                )
        if (
            self._former.count
            and self.pull_redirect.commits_offsets
            and self._commits.is_former(
                pull.group, pull.topic, pull.queue_id, pull.queue_offset, connection
            )
        ):
            return self.answer(pull, self._from_beginning(pull))
        if sys_flag & FLAG_SUSPEND:
            timeout_ms = fields.int64(header, "suspendTimeoutMillis", 0, low=0)
            if not self._config.long_polling_enable:
                timeout_ms = self._config.short_polling_time_mills
            pull.suspend_timeout_ms = min(timeout_ms, SUSPEND_TIMEOUT_MS_MAX)
        result = pull.get()
        if isinstance(result, GetMessageResult):
            return self.answer_or_park(pull, result)
        return self._answer_later(pull, result)

    def _from_beginning(self, pull: Pull) -> GetMessageResult:
        """Return the result that sends a pull of a deleted topic to the new topic's start."""
        low = self.store.min_offset_in_queue(pull.topic, pull.queue_id)
        high = self.store.max_offset_in_queue(pull.topic, pull.queue_id)
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, low, low, high)

    def again(  # noqa: PLR0913  called by compiled code
        self,
        code: int,
        opaque: int,
        serialize_type: int,
        connection: Connection,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
        parked_at: float,
    ) -> Pull:
        """Return a pull parked by the native turn, to be tried again here."""
        request = RemotingCommand.request(code)
        request.opaque = opaque
        request.serialize_type = serialize_type
        pull = Pull(
            self,
            request,
            connection,
            group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            max_msg_nums=max_msg_nums,
        )
        pull.message_filter = message_filter
        pull.parked_at = parked_at
        return pull

    def answer_or_park(self, pull: Pull, result: GetMessageResult) -> RemotingCommand | None:
        """Return the answer, or None after the pull was parked.

        Raises:
            RequestRefusedError: as `answer`.
        """
        code = code_of(result.status, pull.queue_offset)
        timeout_ms = pull.suspend_timeout_ms
        if code is ResponseCode.PULL_OFFSET_MOVED and not self.pull_redirect.corrects_offsets:
            # Without a master the consumer would repeat the pull immediately.
            timeout_ms = min(timeout_ms, AHEAD_TIMEOUT_MS)
        elif code is not ResponseCode.PULL_NOT_FOUND:
            timeout_ms = 0
        if timeout_ms:
            chars = sum(map(len, pull.request.ext_fields.values()))
            if chars <= PARKED_CHARS_MAX and not self._parked_pulls.is_full(pull.connection, chars):
                if self._tracer.watching:
                    pull.parked_at = self._clock.monotonic()
                self._parked_pulls.park(pull.topic, pull.queue_id, pull, timeout_ms, chars)
                return None
        return self.answer(pull, result)

    def answer(self, pull: Pull, result: GetMessageResult) -> RemotingCommand:
        """Return the answer, count it and notify the watchers.

        Raises:
            RequestRefusedError: a consume hook refuses.
        """
        status = result.status
        code = code_of(status, pull.queue_offset)
        found = status is GetMessageStatus.FOUND
        if self._hooks is not None:
            self._hooks.before_answer(
                pull.request.code,
                QueuePlace(pull.group, pull.topic, pull.queue_id, pull.queue_offset),
                pull.connection.remote_address,
                code,
                result,
            )
        self._stats.got(
            pull.topic,
            pull.group,
            pull.queue_id,
            result.message_count if found else 0,
            result.byte_count,
        )
        if found:
            if self._slow_consumers.is_watching:
                self._slow_consumers.on_pulled(
                    pull.group, pull.topic, pull.queue_id, result.next_begin_offset
                )
            self._report(pull, result)
        elif status is GetMessageStatus.NO_MATCHED_MESSAGE:
            self.trace_filtered(pull, result)
        elif code is ResponseCode.PULL_OFFSET_MOVED:
            moves = self.pull_redirect.corrects_offsets
            self._counted_log.report(
                logger,
                logging.WARNING,
                "offset moved" if moves else "offset outside the slave's queue",
                f"group={pull.group} topic={pull.topic}",
                "queue_id=%d queue_offset=%d next=%d status=%s",
                pull.queue_id,
                pull.queue_offset,
                result.next_begin_offset,
                status.name,
            )
            if not moves:
                return self._redirect_answer(pull, result)
        return pull.request.answer(
            code,
            status.name,
            {
                "suggestWhichBrokerId": self.pull_redirect.after(
                    pull.group, is_slow=result.suggest_pulling_from_slave
                )
                if self._config.slave_read_enable
                else MASTER,
                "nextBeginOffset": str(result.next_begin_offset),
                "minOffset": str(result.min_offset),
                "maxOffset": str(result.max_offset),
            },
            result.buffers if found else b"",
        )

    def _report(self, pull: Pull, result: GetMessageResult) -> None:
        """Report a pull answered with messages to the recorder and the watchers."""
        recorder = self._tracer.recorder
        if recorder.is_on and result.buffers:
            passed_over = result.next_begin_offset - pull.queue_offset - result.message_count
            recorder.delivered(
                (pull.group, pull.topic, pull.queue_id),
                pull.queue_offset,
                result.next_begin_offset,
                store_timestamp_of(result.buffers[0], 0),
                result.byte_count,
                pull.connection.remote_address,
                is_cold=pull.is_cold,
                handed_out=queue_offset_of(result.buffers[0]) if passed_over else None,
            )
        if self._tracer.watching:
            self._trace.delivered(answered(pull, result))

    def trace_filtered(self, pull: Pull, result: GetMessageResult) -> None:
        """Report every message skipped by a pull's filter to the watchers."""
        if self._tracer.watching:
            self._trace.filtered(answered(pull, result))

    def _redirect_answer(self, pull: Pull, result: GetMessageResult) -> RemotingCommand:
        """Redirect a consumer whose offset is outside this slave's queue."""
        return pull.request.answer(
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            result.status.name,
            {
                "suggestWhichBrokerId": self.pull_redirect.other_broker(pull.group),
                "nextBeginOffset": str(pull.queue_offset),
                "minOffset": str(result.min_offset),
                "maxOffset": str(result.max_offset),
            },
        )

    async def _answer_later(
        self, pull: Pull, result: Awaitable[GetMessageResult]
    ) -> RemotingCommand | None:
        started = self._clock.monotonic()
        pull.is_cold = True
        read = await result
        answer = self.answer_or_park(pull, read)
        if read.status is GetMessageStatus.FOUND:
            took = self._clock.monotonic() - started
            self._stats.count_late_delivery(
                pull.topic, pull.group, pull.queue_id, read.message_count, took
            )
        return answer


class Pull:
    """One pull request; when parked, it is tried again as its queue grows."""

    __slots__ = (
        "_processor",
        "connection",
        "group",
        "is_cold",
        "max_msg_nums",
        "message_filter",
        "parked_at",
        "queue_id",
        "queue_offset",
        "request",
        "suspend_timeout_ms",
        "topic",
    )

    def __init__(
        self,
        processor: PullProcessor,
        request: RemotingCommand,
        connection: Connection,
        *,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
    ) -> None:
        self._processor = processor
        self.request = request
        self.connection = connection
        self.group = group
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.max_msg_nums = max(1, min(max_msg_nums, MAX_MSG_NUMS_MAX))
        self.suspend_timeout_ms = 0
        self.message_filter: MessageFilter | None = None
        self.is_cold = False
        self.parked_at = 0.0

    def get(self) -> GetMessageResult | Awaitable[GetMessageResult]:
        return self._processor.store.get_message(
            self.topic, self.queue_id, self.queue_offset, self.max_msg_nums, self.message_filter
        )

    @property
    def is_answerable(self) -> bool:
        """See Parkable."""
        return self.connection.is_writable or not self.connection.is_open

    def attempt(self, *, is_last: bool) -> bool:
        """See Parkable."""
        if not self.connection.is_writable:
            return not self.connection.is_open
        try:
            return self._attempt(is_last=is_last)
        except MemoryError:
            raise
        except Exception:
            # Answer the client; ParkedPulls logs the error.
            self.connection.send(internal_error(self.request), at_once=True)
            raise

    def _attempt(self, *, is_last: bool) -> bool:
        result = self.get()
        if not isinstance(result, GetMessageResult):
            # Already cold although it just arrived: let the client ask again, its next pull reads
            # it.
            if isinstance(result, Coroutine):
                result.close()
            self.connection.send(self._retry_immediately(), at_once=True)
            return True
        if not is_last:
            if result.status is GetMessageStatus.NO_MATCHED_MESSAGE:
                self._processor.trace_filtered(self, result)
                self.queue_offset = result.next_begin_offset
                return False
            if code_of(result.status, self.queue_offset) is ResponseCode.PULL_NOT_FOUND:
                return False
        self.connection.send(self._answer(result), at_once=True)
        return True

    def _answer(self, result: GetMessageResult) -> RemotingCommand:
        try:
            return self._processor.answer(self, result)
        except RequestRefusedError as refusal:
            return refused(self.request, refusal)

    def _retry_immediately(self) -> RemotingCommand:
        store = self._processor.store
        return self.request.answer(
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            GetMessageStatus.NO_MATCHED_MESSAGE.name,
            {
                "suggestWhichBrokerId": self._processor.pull_redirect.after(
                    self.group, is_slow=False
                ),
                "nextBeginOffset": str(self.queue_offset),
                "minOffset": str(store.min_offset_in_queue(self.topic, self.queue_id)),
                "maxOffset": str(store.max_offset_in_queue(self.topic, self.queue_id)),
            },
        )


def answered(pull: Pull, result: GetMessageResult) -> AnsweredPull:
    """Return the description of an answered pull for watchers."""
    return AnsweredPull(
        pull.group,
        pull.topic,
        pull.queue_id,
        pull.queue_offset,
        result.next_begin_offset,
        pull.connection,
        result.buffers,
        result.message_count,
        pull.message_filter,
        pull.is_cold,
        pull.parked_at,
    )


def code_of(status: GetMessageStatus, queue_offset: int) -> ResponseCode:
    """Return the response code of a status."""
    if status is GetMessageStatus.FOUND:
        return ResponseCode.SUCCESS  # the usual case, without hashing an enum
    if status in EMPTY:
        moved = queue_offset != 0
        return ResponseCode.PULL_OFFSET_MOVED if moved else ResponseCode.PULL_NOT_FOUND
    return CODES[status]
