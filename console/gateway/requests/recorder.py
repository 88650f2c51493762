"""Flight recorder requests: TRACE_LEVEL and TRACE_RECORDED."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.protocol.codes import RequestCode
from console.gateway.flight_recorder import Level, RecordedEvents, TraceLevel
from console.gateway.requests.call import call, reading
from console.gateway.requests.watch import content_of

if TYPE_CHECKING:
    from console.gateway.answers import WatchFilter
    from console.gateway.flight_recorder import Question
    from console.gateway.requests.call import Ask


async def trace_level(
    ask: Ask, address: str, level: Level | None = None, minutes: int | None = None
) -> TraceLevel:
    """Return a broker's trace level, after setting it if one is given; `full` requires minutes."""
    code = RequestCode.TRACE_LEVEL
    wanted: dict[str, Any] = {} if level is None else {"level": str(level)}
    if level is Level.FULL:
        wanted["minutes"] = minutes
    answer = await call(ask, address, code, body=msgspec.json.encode(wanted))
    with reading(address, code):
        found = msgspec.json.decode(answer.body)
        until = found.get("fullUntilMs")
        return TraceLevel(
            level=str(found["level"]),
            full_until_ms=None if until is None else int(until),
            watchers=int(found["watchers"]),
            entries=int(found["entries"]),
            bytes=int(found["bytes"]),
            bytes_max=int(found["bytesMax"]),
            minutes_max=int(found["minutesMax"]),
            since_ms=int(found["sinceMs"]),
        )


async def recorded(
    ask: Ask, address: str, question: Question, minutes: int, limit: int, wanted: WatchFilter
) -> RecordedEvents:
    code = RequestCode.TRACE_RECORDED
    body = {
        "ask": str(question),
        "minutes": minutes,
        "limit": limit,
        "filter": content_of(wanted),
    }
    answer = await call(ask, address, code, body=msgspec.json.encode(body))
    with reading(address, code):
        found = msgspec.json.decode(answer.body)
        return RecordedEvents(
            tuple(dict(each) for each in found["events"]),
            int(found["sinceMs"]),
            bool(found["isFull"]),
        )
