"""Which messages a watcher wants to see.

Filters are compiled here and run in the broker, so that unwanted events cost neither wire nor
browser. What a filter does not ask for is not looked at.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from broker_core.trace.event import TraceEvent

Stage = Literal["stored", "delivered", "acknowledged", "given_back", "dead", "refused"]
STAGES: frozenset[str] = frozenset(
    {"stored", "delivered", "acknowledged", "given_back", "dead", "refused"}
)
ERROR_STAGES: frozenset[str] = frozenset({"given_back", "dead", "refused"})
Text = Annotated[str, msgspec.Meta(max_length=255)]
FilterName = Annotated[str, msgspec.Meta(max_length=64)]
FILTERS_MAX = 256
"""Filters of one watch: each event is held against all of them."""

Properties = Mapping[str, str]
Matcher = Callable[["TraceEvent", Properties], bool]


class TracedMessage(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """One message: its place, and its unique key, by which its copies in other topics are found."""

    topic: Text
    queue_id: Annotated[int, msgspec.Meta(ge=0)]
    queue_offset: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,19}$")]
    uniq_key: Text | None = None


class TraceFilter(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """None and empty match everything; everything else must match."""

    topic: Text | None = None
    """A name; with * (any text) and ? (one character), which no name has, a pattern."""
    group: Text | None = None
    """A consumer group or a producer group."""
    tag: Text | None = None
    key: Text | None = None
    """One of the keys, the unique key or the offset id."""
    client: Text | None = None
    """A client id, an address, or the host of one."""
    properties: Annotated[dict[Text, Text], msgspec.Meta(max_length=16)] | None = None
    """What properties of the message must be."""
    stages: Annotated[list[Stage], msgspec.Meta(max_length=16)] | None = None
    errors_only: bool = False
    min_latency_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    sample: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    """Follow one of this many messages: all of its stages, or none."""
    message: TracedMessage | None = None


class TraceWatch(TraceFilter):
    """The body of TRACE_WATCH: a filter, or several with names that its events repeat."""

    filters: (
        Annotated[dict[FilterName, TraceFilter], msgspec.Meta(max_length=FILTERS_MAX)] | None
    ) = None


def compiled(wanted: TraceFilter) -> Matcher:
    """Return a function that tells whether an event, and its message's properties, match."""
    tests = [*_tests_of_names(wanted), *_tests_of_message(wanted)]
    if wanted.stages or wanted.errors_only:
        stages = frozenset(wanted.stages or STAGES)
        if wanted.errors_only:
            stages &= ERROR_STAGES
        tests.insert(0, lambda event, _: event.stage in stages)
    if wanted.min_latency_ms:
        least_us = wanted.min_latency_ms * 1000
        tests.append(lambda event, _: (event.latency_us or 0) >= least_us)
    if wanted.sample > 1:
        tests.append(lambda event, _: _is_sampled(event, wanted.sample))
    if len(tests) == 1:
        return tests[0]
    return lambda event, properties: all(test(event, properties) for test in tests)


def _tests_of_names(wanted: TraceFilter) -> list[Matcher]:
    tests: list[Matcher] = []
    if topic := wanted.topic:
        if "*" in topic or "?" in topic:
            # Of these patterns `fnmatch` makes expressions that do not backtrack.
            fits = re.compile(fnmatch.translate(topic.replace("[", "[[]"))).match
            tests.append(lambda event, _: fits(event.topic) is not None)
        else:
            tests.append(lambda event, _: event.topic == topic)
    if group := wanted.group:
        tests.append(lambda event, _: group in (event.group, event.producer_group))
    if client := wanted.client:
        tests.append(
            lambda event, _: (
                client in (event.client_id, event.client)
                or (event.client or "").rpartition(":")[0] == client
            )
        )
    return tests


def _tests_of_message(wanted: TraceFilter) -> list[Matcher]:
    tests: list[Matcher] = []
    if tag := wanted.tag:
        tests.append(lambda event, _: event.tags == tag)
    if key := wanted.key:
        tests.append(
            lambda event, _: (
                key in (event.uniq_key, event.offset_msg_id) or key in (event.keys or "").split(" ")
            )
        )
    if asked := wanted.properties:
        tests.append(
            lambda _, properties: all(
                properties.get(name) == value for name, value in asked.items()
            )
        )
    if message := wanted.message:
        tests.append(lambda event, _: _is_of(event, message))
    return tests


def _is_sampled(event: TraceEvent, one_of: int) -> bool:
    """Tell by the message alone, so that its stages go together; unknown ones only if they fail."""
    if event.message_id is None:
        return event.stage in ERROR_STAGES
    return crc32(event.message_id.encode()) % one_of == 0


def _is_of(event: TraceEvent, message: TracedMessage) -> bool:
    """Return whether an event belongs to a message: at its place, or to a copy with its id."""
    if message.uniq_key is not None and event.uniq_key == message.uniq_key:
        return True
    if event.topic != message.topic or event.queue_id != message.queue_id:
        return False
    if event.acknowledged_from is None:
        return event.queue_offset == message.queue_offset
    return int(event.acknowledged_from) <= int(message.queue_offset) < int(event.queue_offset or 0)
