"""Flight recorder: keep recent message events in memory within a byte budget.

At the recorder level no object exists per message. A span records which messages of a queue a group
received within a short time, and when the group's offset moved past them. The log contains the
messages. Errors and slow puts are kept as individual events; at level "full" every event is.

With a compiled turn, spans are its own type, and it extends them in a few instructions; this module
does all other work on spans.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from broker_core.trace.event import DISK, MEMORY, TraceEvent, decode_event, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.clock import Clock

    Queue = tuple[str, str, int]
    """Group, topic and queue id."""

SPAN_SECONDS = 1.0
"""Deliveries of one queue to one client within this time of each other form one span."""
SPAN_BYTES = 512
EVENT_BYTES = 150
"""Memory of an entry in addition to its text."""
UNREAD_SPANS_MAX = 64
"""Maximum spans of a queue whose group doesn't commit its offset."""
QUEUES_MAX = 5_000
DELIVERED, ACKNOWLEDGED = "delivered", "acknowledged"


class Span(msgspec.Struct, gc=False):
    """Adjacent messages of a queue that a group received within SPAN_SECONDS."""

    at_s: float
    queue: Queue
    first: int
    end: int
    client: str
    byte_count: int
    source: str
    worst_ms: int
    """Longest wait of a message in the span, and the offset of that message."""
    worst: int
    is_sifted: bool
    """Whether a filter skipped some of the messages."""
    wall_ms: float
    """Wall time minus monotonic time at the start; later additions use it."""
    acknowledged_s: float = 0.0
    acknowledged_by: str = ""


Entry = Span | tuple[float, bytes]
"""A span, or an event with its time."""


class RecordedEvent(msgspec.Struct):
    """An entry as an event, with its time by the monotonic clock."""

    at_s: float
    event: TraceEvent


class Recorder:
    """Event loop only, except for `events_of`, which reads a snapshot.

    Attributes:
        is_on: whether anything is recorded.
        is_full: whether every event is recorded.
        spans: for each queue, the unacknowledged spans and the last span. A list is emptied when
            it is dropped, so holders of it notice.
        span_type: Span or its compiled version.

    The native turn reads `is_on` on each pull.
    """

    __slots__ = (
        "_began_s",
        "_entries",
        "_monotonic",
        "_now_ms",
        "_wall_ms",
        "byte_count",
        "bytes_max",
        "is_full",
        "is_on",
        "minutes_max",
        "span_type",
        "spans",
    )

    def __init__(
        self,
        clock: Clock,
        bytes_max: int,
        minutes_max: int,
        span_type: Callable[..., Span] | None = None,
    ) -> None:
        self.span_type = span_type or Span
        self.is_on = bytes_max > 0
        self.is_full = False
        self.bytes_max = bytes_max
        self.minutes_max = minutes_max
        self.byte_count = 0
        self._now_ms = clock.now_ms
        self._monotonic = clock.monotonic
        self._entries: deque[Entry] = deque()
        self.spans: dict[Queue, list[Span]] = {}
        self._began_s = clock.monotonic()
        # Wall time minus monotonic time, for the reported times.
        self._wall_ms = clock.now_ms() - clock.monotonic() * 1000

    def __len__(self) -> int:
        return len(self._entries)

    def delivered(
        self,
        queue: Queue,
        first: int,
        end: int,
        stored_ms: int,
        byte_count: int,
        client: str,
        *,
        is_cold: bool,
        handed_out: int | None = None,
    ) -> None:
        """Record that a pull returned the messages from `first` up to `end`.

        `stored_ms` is when the first delivered message was stored; `handed_out` is its offset, if a
        filter skipped some messages.
        """
        is_sifted = handed_out is not None
        oldest = first if handed_out is None else handed_out
        at_s = self._monotonic()
        spans = self.spans.get(queue)
        if spans is not None:
            last = spans[-1]
            if (
                # Adjacent, or partly repeated.
                last.first <= first <= last.end
                and last.client == client
                and at_s - last.at_s < SPAN_SECONDS
            ):
                if end > last.end:
                    last.end = end
                last.byte_count += byte_count
                last.acknowledged_s = 0.0
                last.is_sifted |= is_sifted
                waited_ms = int(at_s * 1000 + last.wall_ms + 0.5) - max(0, stored_ms)
                if waited_ms > last.worst_ms:
                    last.worst_ms, last.worst = waited_ms, oldest
                return
            queue = last.queue  # One copy of the names for all spans.
            if len(spans) >= UNREAD_SPANS_MAX or last.acknowledged_s:
                del spans[0]
        else:
            if len(self.spans) >= QUEUES_MAX:
                self._forget_queues()
            spans = self.spans[queue] = []
        now_ms = self._now_ms()
        span = self.span_type(
            at_s,
            queue,
            first,
            end,
            client,
            byte_count,
            DISK if is_cold else MEMORY,
            now_ms - max(0, stored_ms),
            oldest,
            is_sifted,
            now_ms - at_s * 1000,
        )
        spans.append(span)
        self._entries.append(span)
        self.byte_count += SPAN_BYTES
        self.forget()

    def acknowledged(self, queue: Queue, offset: int, client: str) -> None:
        """Record a group's new offset of a queue."""
        spans = self.spans.get(queue)
        if spans is None or spans[0].end > offset or spans[0].acknowledged_s:
            return
        at_s = self._monotonic()
        count = 0
        for span in spans:
            if span.end > offset:
                break
            span.acknowledged_s = at_s
            span.acknowledged_by = client
            count += 1
        # Keep the last span, so that the next adjacent messages extend it.
        del spans[: min(count, len(spans) - 1)]

    def keep(self, event: TraceEvent) -> None:
        """Keep an event unchanged."""
        text = encode(event)
        self._entries.append((self._monotonic(), text))
        self.byte_count += EVENT_BYTES + len(text)
        self.forget()

    def forget(self) -> None:
        """Drop entries that are too old, then the oldest ones above the budget."""
        entries = self._entries
        least_s = self._monotonic() - self.minutes_max * 60
        while entries and (self.byte_count > self.bytes_max or _time_of(entries[0]) < least_s):
            entry = entries.popleft()
            self._began_s = _time_of(entry)
            if isinstance(entry, tuple):
                self.byte_count -= EVENT_BYTES + len(entry[1])
            else:
                self.byte_count -= SPAN_BYTES
                self._forget_span(entry)

    def clear(self) -> None:
        """Drop all entries and start over."""
        self._entries.clear()
        self._forget_queues()
        self.byte_count = 0
        self._began_s = self._monotonic()

    @property
    def since_ms(self) -> int:
        """Return the wall time since which the record is complete for its level."""
        least_s = self._monotonic() - self.minutes_max * 60
        return round(self._wall_ms + max(self._began_s, least_s) * 1000)

    def snapshot(self, least_s: float) -> list[Entry]:
        """Return the entries since a time of the monotonic clock."""
        self.forget()
        return [
            entry
            for entry in self._entries
            if _time_of(entry) >= least_s
            or (not isinstance(entry, tuple) and entry.acknowledged_s >= least_s)
        ]

    def events_of(self, entries: Sequence[Entry]) -> list[RecordedEvent]:
        """Return entries as events. Any thread."""
        found: list[RecordedEvent] = []
        for entry in entries:
            if isinstance(entry, tuple):
                found.append(RecordedEvent(entry[0], decode_event(entry[1])))
            else:
                found.append(self._event_of(entry, DELIVERED))
                if entry.acknowledged_s:
                    found.append(self._event_of(entry, ACKNOWLEDGED))
        return found

    def _forget_span(self, span: Span) -> None:
        """Drop a queue with its last span, because topics and groups come and go."""
        spans = self.spans.get(span.queue)
        # The oldest span of a queue goes first, unless its acknowledgement already removed it.
        if spans and spans[0] is span:
            del spans[0]
            if not spans:
                del self.spans[span.queue]

    def _forget_queues(self) -> None:
        for spans in self.spans.values():
            spans.clear()
        self.spans.clear()

    def _event_of(self, span: Span, stage: str) -> RecordedEvent:
        group, topic, queue_id = span.queue
        at_s, client, latency_s = span.at_s, span.client, span.worst_ms / 1000
        if stage == ACKNOWLEDGED:
            at_s, client = span.acknowledged_s, span.acknowledged_by
            latency_s = at_s - span.at_s
        event = TraceEvent(
            time_ms=str(round(self._wall_ms + at_s * 1000)),
            at_us=str(round(at_s * 1_000_000)),
            stage=stage,
            topic=topic,
            queue_id=queue_id,
            from_offset=str(span.first),
            queue_offset=str(span.end),
            worst_offset=str(span.worst) if stage == DELIVERED else str(span.first),
            sifted=span.is_sifted or None,
            group=group,
            client=client,
            store_size=span.byte_count if stage == DELIVERED else None,
            source=span.source if stage == DELIVERED else None,
            latency_us=max(0, round(latency_s * 1_000_000)),
        )
        return RecordedEvent(at_s, event)


def _time_of(entry: Entry) -> float:
    return entry[0] if isinstance(entry, tuple) else entry.at_s
