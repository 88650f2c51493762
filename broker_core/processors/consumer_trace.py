"""ConsumerTrace: report deliveries, filtered messages and acknowledgements."""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.errors import CorruptRecordError
from broker_core.formats.cq_ext_unit import ADDRESS_MAX
from broker_core.formats.record import summarize, summarize_all
from broker_core.message.ids import offset_msg_id
from broker_core.message.names import PROPERTY_UNIQ_KEY
from broker_core.trace.deliveries import Delivered
from broker_core.trace.event import DISK, MEMORY
from broker_core.trace.records import queue_offsets
from broker_core.trace.selection import ALL, NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from broker_core.clients.consumers import Consumers
    from broker_core.clock import Clock
    from broker_core.formats.cq_ext_unit import CqExtUnit
    from broker_core.formats.record import RecordSummary
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import MessageFilter
    from broker_core.trace.tracer import Tracer

    Pick = Callable[[memoryview, int], Iterable[memoryview]]
    """Returns the records of a 1-in-N sample from adjacent records."""

logger = logging.getLogger(__name__)


class AnsweredPull(NamedTuple):
    """A pull with its answer."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    next_begin_offset: int
    connection: Connection
    buffers: Sequence[memoryview]
    message_count: int
    message_filter: MessageFilter | None
    is_cold: bool = False
    parked_at: float = 0.0
    """Monotonic time; 0 when the pull didn't wait."""

    @property
    def queue(self) -> tuple[str, str, int]:
        return self.group, self.topic, self.queue_id


class ConsumerTrace:
    """Emits events; check `tracer.watching` first. Event loop only.

    Attributes:
        tracer: receives the events.
        store_host: the first part of message IDs.
    """

    def __init__(
        self,
        tracer: Tracer,
        consumers: Consumers,
        store: MessageStore,
        store_host: bytes,
        clock: Clock,
        pick: Pick,
    ) -> None:
        self.tracer = tracer
        self._consumers = consumers
        self._store = store
        self.store_host = store_host
        self._clock = clock
        self._pick = pick

    def delivered(self, pull: AnsweredPull) -> None:
        """Emit an event for each message in a pull's answer, if a watcher wants it."""
        sample = self.tracer.selection.pulls[pull.topic, pull.group]
        if sample == NONE:
            return
        wanted = (self._sampled(buffer, sample) for buffer in pull.buffers)
        self._emit_delivered(pull, chain.from_iterable(wanted))
        if pull.message_filter is not None:
            self.filtered(pull)

    def trace_plain_pull(self, pull: AnsweredPull, records: Sequence[memoryview] | None) -> None:
        """Report a pull that the native turn answered. Never raises, as the answer is already sent.

        `records` holds the sampled records, None for all.
        """
        try:
            if records is None:
                self.delivered(pull)
                return
            self._emit_delivered(pull, map(summarize, records))
            if pull.message_filter is not None:
                self.filtered(pull)
        except Exception:
            logger.exception("plain pull not traced topic=%s", pull.topic)

    def filtered(self, pull: AnsweredPull) -> None:
        """Emit an event for each message skipped by a pull's filter."""
        passed_over = pull.next_begin_offset - pull.queue_offset - pull.message_count
        if passed_over <= 0 or pull.message_filter is None:
            return
        sample = self.tracer.selection.pulls[pull.topic, pull.group]
        if sample == NONE:
            return
        taken = {offset for view in pull.buffers for offset in queue_offsets(view)}
        consumer: dict[str, Any] | None = None
        units = self._store.extended_units(
            pull.topic,
            pull.queue_id,
            pull.queue_offset,
            pull.next_begin_offset - pull.queue_offset,
        )
        for queue_offset, (offset, _, code, ext) in enumerate(units, pull.queue_offset):
            if queue_offset in taken:
                continue
            message = self._in_memory(offset, sample)
            if message is None:
                continue
            uniq_key = message.properties.get(PROPERTY_UNIQ_KEY)
            if self.tracer.selection.wants_of_pulls(pull.topic, pull.group, uniq_key):
                consumer = consumer or self._consumer_fields(pull.group, pull.connection)
                self.tracer.emit(
                    "filtered",
                    pull.topic,
                    pull.queue_id,
                    queue_offset,
                    message.properties,
                    commit_log_offset=str(offset),
                    store_size=message.store_size,
                    body_size=message.body_size,
                    offset_msg_id=offset_msg_id(self.store_host, offset),
                    filtered_by=_by(pull.message_filter, code, ext),
                    **consumer,
                )

    def acknowledged(
        self,
        group: str,
        topic: str,
        queue_id: int,
        before: int,
        offset: int,
        connection: Connection,
    ) -> None:
        """Emit the events of a changed consumer offset; `before` is -1 for a first offset.

        Emits an event for each message whose delivery was observed, with the time since then. The
        ranges before, between and after these messages get one event each: their messages were
        filtered or not observed.
        """
        sample = self.tracer.selection.pulls[topic, group]
        if sample == NONE:
            return
        first = max(0, min(before, offset))
        seen = self.tracer.deliveries.take((group, topic, queue_id), first, offset)
        if sample != ALL and not seen:
            return
        consumer = self._consumer_fields(group, connection)
        now_s = self._clock.monotonic()

        def emit_range(first: int, end: int) -> None:
            # Watchers of a sample don't want events about unknown messages.
            if sample == ALL:
                self.tracer.emit(
                    "acknowledged", topic, queue_id, end, acknowledged_from=str(first), **consumer
                )

        next_offset = first
        for queue_offset, delivered in seen:
            if next_offset < queue_offset:
                emit_range(next_offset, queue_offset)
            next_offset = queue_offset + 1
            self.tracer.emit(
                "acknowledged",
                topic,
                queue_id,
                queue_offset,
                delivered.properties,
                commit_log_offset=str(delivered.commit_log_offset),
                body_size=delivered.body_size,
                offset_msg_id=delivered.offset_msg_id,
                latency_us=max(0, round((now_s - delivered.at_s) * 1_000_000)),
                total_us=_total_us(delivered.stored_s, now_s),
                **consumer,
            )
        if next_offset < offset or not seen:
            emit_range(next_offset, offset)

    def _sampled(self, buffer: memoryview, sample: int) -> Iterable[RecordSummary]:
        if sample == ALL:
            return summarize_all(buffer)
        return (summarize(record) for record in self._pick(buffer, sample))

    def _emit_delivered(self, pull: AnsweredPull, messages: Iterable[RecordSummary]) -> None:
        """Emit "delivered" for messages, and "woken" for the first if the pull waited."""
        consumer: dict[str, Any] | None = None
        at_s = self._clock.monotonic()
        for message in messages:
            if consumer is None:
                consumer = self._consumer_fields(pull.group, pull.connection)
                if pull.parked_at > 0:
                    self._emit_woken(pull, message, at_s, consumer)
            self._delivered(pull, message, at_s, consumer)

    def _delivered(
        self, pull: AnsweredPull, message: RecordSummary, at_s: float, consumer: dict[str, Any]
    ) -> None:
        msg_id = offset_msg_id(self.store_host, message.commit_log_offset)
        body_size = message.body_size
        stored_s = self.tracer.watched_messages.stored_s(message.commit_log_offset)
        self.tracer.deliveries.note(
            pull.queue,
            message.queue_offset,
            Delivered(
                message.properties, message.commit_log_offset, msg_id, body_size, at_s, stored_s
            ),
        )
        total_us = _total_us(stored_s, at_s)
        waited_ms = max(0, self._clock.now_ms() - message.store_timestamp)
        self.tracer.emit(
            "delivered",
            pull.topic,
            pull.queue_id,
            message.queue_offset,
            message.properties,
            commit_log_offset=str(message.commit_log_offset),
            store_size=message.store_size,
            body_size=body_size,
            offset_msg_id=msg_id,
            source=DISK if pull.is_cold else MEMORY,
            latency_us=waited_ms * 1000 if total_us is None else total_us,
            total_us=total_us,
            reconsume_times=message.reconsume_times or None,
            **consumer,
        )

    def _emit_woken(
        self, pull: AnsweredPull, message: RecordSummary, at_s: float, consumer: dict[str, Any]
    ) -> None:
        self.tracer.emit(
            "woken",
            pull.topic,
            pull.queue_id,
            message.queue_offset,
            message.properties,
            commit_log_offset=str(message.commit_log_offset),
            offset_msg_id=offset_msg_id(self.store_host, message.commit_log_offset),
            latency_us=max(0, round((at_s - pull.parked_at) * 1_000_000)),
            **consumer,
        )

    def _consumer_fields(self, group: str, connection: Connection) -> dict[str, Any]:
        return {
            "group": group,
            "client": connection.remote_address,
            "client_id": self._consumers.client_id_of(group, connection),
        }

    def _in_memory(self, commit_log_offset: int, sample: int) -> RecordSummary | None:
        """Return a message that may be in a 1-in-`sample` sample if it is in memory."""
        found = self._store.glance(commit_log_offset)
        if found is None or (sample > ALL and not any(self._pick(found[0], sample))):
            return None
        try:
            return summarize(found[0])
        except CorruptRecordError:
            return None


def _by(message_filter: MessageFilter, code: int, ext: CqExtUnit | None) -> str:
    """Return which part of a filter decided."""
    if code > ADDRESS_MAX and not message_filter.by_tags_code(code):
        return "tag"
    if ext is not None and not message_filter.by_ext_unit(ext):
        # A tag filter decides by the tag repeated in the extension.
        return "bitmap" if message_filter.by_tags_code(ext.tags_code) else "tag"
    return "sql"


def _total_us(stored_s: float | None, now_s: float) -> int | None:
    return None if stored_s is None else max(0, round((now_s - stored_s) * 1_000_000))
