"""What watchers are told, as it goes over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator


class TraceEvent(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True, gc=False):
    """One stage of one message. 64-bit numbers are decimal strings, for JavaScript.

    A watch adds `seq`, its number, and `matched`, the names of the filters that it matches.
    """

    time_ms: str
    at_us: str = ""
    """By the broker's monotonic clock."""
    stage: str
    topic: str
    queue_id: int | None = None
    queue_offset: str | None = None
    message_id: str | None = None
    """The same for all stages of a message and of its copies: its unique key, else the offset id
    of the first one."""
    commit_log_offset: str | None = None
    store_size: int | None = None
    body_size: int | None = None
    tags: str | None = None
    keys: str | None = None
    uniq_key: str | None = None
    offset_msg_id: str | None = None
    traceparent: str | None = None
    """W3C's trace context, where its sender put one into the properties."""
    producer_group: str | None = None
    group: str | None = None
    client: str | None = None
    client_id: str | None = None
    latency_us: int | None = None
    """Of this stage; docs/tracing.md says since when."""
    total_us: int | None = None
    """Since this broker stored the message."""
    steps: dict[str, int] | None = None
    """Of a put: microseconds from the first of STEPS to each."""
    acknowledged_from: str | None = None
    """Of an acknowledgement of messages that nobody saw delivered: it covers the queue offsets from
    here up to `queue_offset`, without it."""
    from_offset: str | None = None
    """Of one event for several messages: it covers the queue offsets from here up to
    `queue_offset`, without it."""
    worst_offset: str | None = None
    """Whose latency that is."""
    sifted: bool | None = None
    """Whether a filter passed over some of these messages."""
    reconsume_times: int | None = None
    reconsume_max: int | None = None
    """After so many attempts the message becomes a dead letter."""
    delay_level: int | None = None
    due_ms: str | None = None
    check_times: int | None = None
    together: int | None = None
    """Of a flush: how many messages it covered."""
    filtered_by: str | None = None
    source: str | None = None
    """Of a delivery: "memory" or "disk"."""
    replay: str | None = None
    request: str | None = None
    """Of a refusal: the request's name, then the answer's code, its name and its remark."""
    code: int | None = None
    code_name: str | None = None
    remark: str | None = None


class Emitted:
    """An event on its way to watchers, encoded once for all of them. Event loop only."""

    __slots__ = ("_ending", "_event", "group", "stage", "topic")

    def __init__(self, event: TraceEvent) -> None:
        self._event: TraceEvent | None = event
        self._ending = b""
        self.stage = event.stage
        self.topic = event.topic
        self.group = event.group

    @property
    def ending(self) -> bytes:
        """Its JSON behind the brace that begins it, where a watch has its number."""
        if self._event is not None:
            self._ending = encode(self._event)[1:]
            self._event = None
        return self._ending


class _Pushed(msgspec.Struct):
    events: list[msgspec.Raw]


def pushed(body: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield of each event in the body of a push its number, its head, and its JSON."""
    for raw in _read_pushed(body).events:
        text = bytes(raw)
        number = text[len(_BEFORE_NUMBER) : text.index(b'"', len(_BEFORE_NUMBER))]
        begin = len(_BEFORE_NUMBER) + len(number)
        # A quote in a text in between would be escaped.
        head = text[begin : text.index(b'"timeMs":', begin)]
        yield int(number), head, text


_BEFORE_NUMBER = b'{"seq":"'
_read_pushed = msgspec.json.Decoder(_Pushed).decode
encode = msgspec.json.Encoder().encode
decode_event = msgspec.json.Decoder(TraceEvent).decode
