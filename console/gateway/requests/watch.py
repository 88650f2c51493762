"""Watch requests: TRACE_WATCH to the broker, TRACE_EVENTS from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.protocol.codes import RequestCode
from console.gateway.answers import TraceBatch, TraceEvent
from console.gateway.requests.call import call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.answers import WatchFilter, WatchPlace
    from console.gateway.requests.call import Ask


class TraceEventsBody(msgspec.Struct):
    """The body of TRACE_EVENTS; counts are 64-bit numbers and therefore text."""

    events: list[TraceEvent]
    watch_id: str = msgspec.field(default="", name="watchId")
    dropped: str = "0"
    offered: dict[str, str] = {}


decode_events = msgspec.json.Decoder(TraceEventsBody).decode


async def trace_watch(
    ask: Ask, address: str, filters: Mapping[str, WatchFilter], after: WatchPlace | None = None
) -> bool:
    """Start or change a watch; return whether it resumes after the given position."""
    body: dict[str, Any] = {
        "filters": {name: content_of(wanted) for name, wanted in filters.items()}
    }
    if len(filters) == 1:
        # With several filters, one filter's rate limit would starve the others; the receiver
        # applies it.
        body["eventsPerSecondMax"] = next(iter(filters.values())).rate_max or None
    if after is not None:
        body["resume"] = {
            "watchId": after.watch_id,
            "lastSeq": str(after.last_seq),
            "received": str(after.received),
        }
    answer = await call(ask, address, RequestCode.TRACE_WATCH, body=msgspec.json.encode(body))
    return answer.ext_fields.get("resumed") == "true"


async def trace_unwatch(ask: Ask, address: str) -> None:
    """End the watch at once; a watch with a lost connection would continue for a while."""
    await call(ask, address, RequestCode.TRACE_UNWATCH)


def content_of(wanted: WatchFilter) -> dict[str, Any]:
    message = wanted.message
    return {
        "topic": wanted.topic,
        "group": wanted.group,
        "tag": wanted.tag,
        "key": wanted.key,
        "client": wanted.client,
        "properties": None if wanted.named is None else dict([wanted.named]),
        "stages": None if wanted.stages is None else sorted(wanted.stages),
        "errorsOnly": wanted.errors_only,
        "minLatencyMs": wanted.min_latency_ms,
        "minLatencyUs": dict(wanted.min_latency_us) or None,
        "minTotalMs": wanted.min_total_ms,
        "sample": wanted.sample,
        "message": message
        and {
            "topic": message.topic,
            "queueId": message.queue_id,
            "queueOffset": str(message.queue_offset),
            "uniqKey": message.uniq_key,
        },
    }


async def keep_alive(ask: Ask, address: str, client_id: str) -> None:
    """Send a heartbeat without groups, so that the broker doesn't drop an idle watch."""
    body = {"clientID": client_id, "producerDataSet": [], "consumerDataSet": []}
    await call(ask, address, RequestCode.HEART_BEAT, body=msgspec.json.encode(body))


def trace_batch(body: bytes) -> TraceBatch:
    """Return the events that a broker pushed.

    Raises:
        ValueError: the body isn't a batch of events.
    """
    decoded = decode_events(body)
    offered = {stage: int(count) for stage, count in decoded.offered.items()}
    return TraceBatch(decoded.events, decoded.watch_id, int(decoded.dropped), offered)
