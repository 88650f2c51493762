"""Live trace requests: watch, unwatch, set the level, read the recorder. The request codes are
Trebuchet's own.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from broker_core.access.account import Permission
from broker_core.access.rules import Need
from broker_core.errors import RequestRefusedError
from broker_core.processors.json_body import read_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.signature import ACCESS_KEY
from broker_core.trace.filter import ERROR_STAGES, TraceFilter, TraceWatch, compile_filter
from broker_core.trace.watch import Watcher, topic_to_read

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.clock import Clock
    from broker_core.processors.heads import Heads
    from broker_core.processors.wrappers.guard import Gate
    from broker_core.remoting.connection import Connection
    from broker_core.trace.event import TraceEvent
    from broker_core.trace.recorder import RecordedEvent
    from broker_core.trace.tracer import Tracer
    from broker_core.trace.watch import TopicCheck

FULL_MINUTES_MAX = 60
RECORDED_MAX = 1_000
TURN_S = 0.005
"""How long an answer may hold the event loop at a time."""
Minutes = Annotated[int, msgspec.Meta(ge=1, le=FULL_MINUTES_MAX)]


class LevelRequest(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The body of TRACE_LEVEL; an empty body only queries the level."""

    level: Literal["off", "watched", "recorder", "full"] | None = None
    minutes: Minutes | None = None


class LevelAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """The body of the answer to TRACE_LEVEL. 64-bit numbers are decimal strings."""

    level: str
    full_until_ms: str | None
    watchers: int
    entries: int
    bytes: int
    bytes_max: int
    minutes_max: int
    since_ms: str


class RecordsRequest(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The body of TRACE_RECORDED."""

    ask: Literal["slowest", "errors", "message", "all"] = "all"
    minutes: Annotated[int, msgspec.Meta(ge=1)] = 60
    limit: Annotated[int, msgspec.Meta(ge=1, le=RECORDED_MAX)] = 100
    filter: TraceFilter | None = None


class TraceProcessor:
    """TRACE_WATCH, TRACE_UNWATCH, TRACE_LEVEL, TRACE_RECORDED. Event loop only."""

    def __init__(self, tracer: Tracer, gate: Gate | None, heads: Heads, clock: Clock) -> None:
        self._tracer = tracer
        self._gate = gate
        self._heads = heads
        self._answering = asyncio.Lock()
        self._clock = clock

    def watch(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """TRACE_WATCH with a TraceWatch as body; events follow as one-way TRACE_EVENTS.

        Answers SUCCESS with watchId and resumed, SYSTEM_ERROR for an invalid filter, or SYSTEM_BUSY
        when too many watches are active, from the peer's address or in total.
        """
        wanted = read_json(request.body, TraceWatch, "the filter of the trace")

        def push(body: bytes) -> bool:
            if not connection.is_writable:
                return False
            command = RemotingCommand.request(RequestCode.TRACE_EVENTS, body=body)
            connection.oneway(command, at_once=True)
            return True

        host = connection.remote_address.rpartition(":")[0]
        owner = None if self._gate is None else request.ext_fields.get(ACCESS_KEY)
        watcher = Watcher(push, host, owner, self._may_see(request, connection))
        watched = self._tracer.watch(connection, wanted, watcher)
        if watched is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY,
                "too many clients watch the live trace; close one, or raise hostWatcherNumsMax "
                "or watcherNumsMax",
            )
        is_resumed = "true" if watched.is_resumed else "false"
        return request.answer(
            ResponseCode.SUCCESS, ext_fields={"watchId": watched.watch_id, "resumed": is_resumed}
        )

    def unwatch(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """TRACE_UNWATCH. Answers SUCCESS."""
        self._tracer.unwatch(connection)
        return request.answer(ResponseCode.SUCCESS)

    def level(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """TRACE_LEVEL with a LevelRequest as body.

        Answers SUCCESS with a LevelAnswer, or SYSTEM_ERROR for an invalid level.
        """
        wanted = read_json(request.body, LevelRequest, "the level of the trace")
        if (wanted.level == "full") != (wanted.minutes is not None):
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the level full requires minutes, from 1 to {FULL_MINUTES_MAX}; other levels "
                "have none",
            )
        tracer, recorder = self._tracer, self._tracer.recorder
        if wanted.level is not None:
            tracer.set_level(wanted.level, wanted.minutes or 0)
        until_ms = tracer.full_until_ms
        found = LevelAnswer(
            level=tracer.level,
            full_until_ms=None if until_ms is None else str(until_ms),
            watchers=tracer.watchers,
            entries=len(recorder),
            bytes=recorder.byte_count,
            bytes_max=recorder.bytes_max,
            minutes_max=recorder.minutes_max,
            since_ms=str(recorder.since_ms),
        )
        return request.answer(ResponseCode.SUCCESS, body=msgspec.json.encode(found))

    def recorded(
        self, request: RemotingCommand, connection: Connection
    ) -> Awaitable[RemotingCommand]:
        """TRACE_RECORDED with a RecordsRequest as body.

        Answers SUCCESS with events, sinceMs and isFull, or SYSTEM_ERROR for an invalid query.
        """
        wanted = read_json(request.body, RecordsRequest, "the question to the recorder")
        asked = wanted.filter or TraceFilter()
        if asked.properties:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                "the recorder doesn't store message properties; filter by tags, keys or ids",
            )
        if wanted.ask == "message" and asked.message is None and asked.key is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                "the request must identify a message by its place or its key",
            )
        return self._answer_recorded(request, wanted, asked, self._may_see(request, connection))

    async def _answer_recorded(
        self,
        request: RemotingCommand,
        wanted: RecordsRequest,
        asked: TraceFilter,
        may_see: TopicCheck | None,
    ) -> RemotingCommand:
        recorder = self._tracer.recorder
        is_full, since_ms = recorder.is_full, recorder.since_ms
        entries = recorder.snapshot(self._clock.monotonic() - wanted.minutes * 60)
        chosen = await asyncio.to_thread(
            lambda: _select_events(recorder.events_of(entries), wanted, asked)
        )
        events = await self._shown(chosen, wanted.limit, may_see)
        body = {"events": events, "sinceMs": str(since_ms), "isFull": is_full}
        return request.answer(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    async def _shown(
        self, chosen: list[RecordedEvent], limit: int, may_see: TopicCheck | None
    ) -> list[TraceEvent]:
        """Return the events that the client may see, with the heads of their messages.

        A message with long properties takes milliseconds to read, so answers take turns.
        """
        seen: dict[str, bool] = {}
        events: list[TraceEvent] = []
        turn_ends_at = 0.0
        async with self._answering:
            for each in chosen:
                if self._clock.monotonic() >= turn_ends_at:
                    await self._clock.sleep(0)
                    turn_ends_at = self._clock.monotonic() + TURN_S
                topic = topic_to_read(each.event.topic, each.event.group)
                if topic not in seen:
                    seen[topic] = may_see is None or may_see(topic)
                if seen[topic]:
                    events.append(self._heads.added(each.event))
                    if len(events) == limit:
                        break
        return events

    def _may_see(self, request: RemotingCommand, connection: Connection) -> TopicCheck | None:
        """Return a predicate: whether the client may read a topic now."""
        gate = self._gate
        if gate is None:
            return None
        access_key, address = request.ext_fields.get(ACCESS_KEY), connection.remote_address
        return lambda topic: gate.permits(access_key, address, Need(topic, Permission.SUB))


def _select_events(
    found: list[RecordedEvent], wanted: RecordsRequest, asked: TraceFilter
) -> list[RecordedEvent]:
    """Return the matching events in the requested order."""
    message, here = compile_filter(asked)
    matching = [
        each
        for each in found
        if message(each.event, {}) and here(each.event, {})
        if wanted.ask != "errors" or each.event.stage in ERROR_STAGES
    ]
    key: Callable[[RecordedEvent], float] = _latency if wanted.ask == "slowest" else _time
    if wanted.ask == "slowest":
        return heapq.nlargest(RECORDED_MAX, matching, key=key)
    return sorted(matching, key=key, reverse=wanted.ask != "message")


def _latency(recorded: RecordedEvent) -> float:
    return recorded.event.latency_us or 0


def _time(recorded: RecordedEvent) -> float:
    return recorded.at_s
