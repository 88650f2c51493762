"""Trace events as sent to watchers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator


class TraceEvent(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True, gc=False):
    """One stage of one message. 64-bit numbers are decimal strings, for JavaScript.

    A watch adds `seq`, its number, and `matched`, the names of the filters that match.
    """

    time_ms: str
    at_us: str = ""
    """By the broker's monotonic clock."""
    stage: str
    topic: str
    queue_id: int | None = None
    queue_offset: str | None = None
    message_id: str | None = None
    """The same for all stages of a message and its copies: the unique key, else the offset message
    ID
    of the first copy.
    """
    commit_log_offset: str | None = None
    store_size: int | None = None
    body_size: int | None = None
    tags: str | None = None
    keys: str | None = None
    uniq_key: str | None = None
    offset_msg_id: str | None = None
    traceparent: str | None = None
    """W3C trace context, if the sender put one in the properties."""
    producer_group: str | None = None
    group: str | None = None
    client: str | None = None
    client_id: str | None = None
    latency_us: int | None = None
    """Latency of this stage; docs/tracing.md says where it starts."""
    total_us: int | None = None
    """Time since this broker stored the message."""
    steps: dict[str, int] | None = None
    """For a put: microseconds from the first of STEPS to each step."""
    acknowledged_from: str | None = None
    """For an acknowledgement of messages whose delivery wasn't observed: the first queue offset of
    the
    range, which ends before `queue_offset`.
    """
    from_offset: str | None = None
    """For one event about several messages: the first queue offset of the range, which ends before
    `queue_offset`.
    """
    worst_offset: str | None = None
    """Queue offset of the message with that latency."""
    sifted: bool | None = None
    """Whether a filter skipped some of these messages."""
    reconsume_times: int | None = None
    reconsume_max: int | None = None
    """Attempts after which the message becomes a dead letter."""
    delay_level: int | None = None
    due_ms: str | None = None
    check_times: int | None = None
    together: int | None = None
    """For a flush: the number of messages it covered."""
    filtered_by: str | None = None
    source: str | None = None
    """For a delivery: "memory" or "disk"."""
    replay: str | None = None
    request: str | None = None
    """For a refusal: the request's name, then the response's code, name and remark."""
    code: int | None = None
    code_name: str | None = None
    remark: str | None = None


PROPERTY_TRACEPARENT = "traceparent"
PROPERTY_REPLAYED = "TREBUCHET_REPLAY"
"""The console run that replayed a dead letter."""
BEFORE_NUMBER = b'{"seq":"'
"""The beginning of an event as pushed, up to its number."""
MEMORY, DISK = "memory", "disk"
"""The sources of a delivery."""
JSON_NAMES = {field.name: field.encode_name for field in msgspec.structs.fields(TraceEvent)}
"""The name in JSON of each attribute of a TraceEvent."""


class WatchedEvent:
    """An event for watchers, encoded once for all of them. Event loop only."""

    __slots__ = ("_ending", "_event", "group", "stage", "topic")

    def __init__(self, event: TraceEvent) -> None:
        self._event: TraceEvent | None = event
        self._ending = b""
        self.stage = event.stage
        self.topic = event.topic
        self.group = event.group

    @property
    def ending(self) -> bytes:
        """Return the event's JSON after the opening brace, where a watch inserts its number."""
        if self._event is not None:
            self._ending = encode(self._event)[1:]
            self._event = None
        return self._ending


class _EventsBody(msgspec.Struct):
    events: list[msgspec.Raw]


def encode_members(**values: object) -> bytes:
    """Return the JSON of some attributes of a TraceEvent, without braces."""
    return encode({JSON_NAMES[name]: value for name, value in values.items()})[1:-1]


def pushed(body: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the number, head and JSON of each event in the body of a push."""
    for raw in _read_pushed(body).events:
        text = bytes(raw)
        number = text[len(BEFORE_NUMBER) : text.index(b'"', len(BEFORE_NUMBER))]
        begin = len(BEFORE_NUMBER) + len(number)
        # Inside a string value this quote would be escaped.
        head = text[begin : text.index(b'"timeMs":', begin)]
        yield int(number), head, text


_read_pushed = msgspec.json.Decoder(_EventsBody).decode
encode = msgspec.json.Encoder().encode
decode_event = msgspec.json.Decoder(TraceEvent).decode
