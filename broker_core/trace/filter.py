"""Filters for the messages that a watcher wants to see.

Filters are compiled here and run in the broker, so unwanted events use neither network nor browser
time. A compiled filter only checks the fields that the filter sets.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, get_args
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from broker_core.trace.event import TraceEvent

Stage = Literal[
    "stored",
    "retried",
    "replayed",
    "refused",
    "withheld",
    "checked",
    "committed",
    "rolled_back",
    "deferred",
    "flushed",
    "replicated",
    "woken",
    "filtered",
    "delivered",
    "acknowledged",
    "given_back",
    "dead",
    "expired",
]
Step = Literal["received", "validated", "appended", "dispatched"]
STAGES: frozenset[str] = frozenset(get_args(Stage))
STEPS: tuple[str, ...] = get_args(Step)
"""Stages of a put that follow each other directly; one event contains all of them."""
ERROR_STAGES: frozenset[str] = frozenset(
    {"refused", "given_back", "dead", "rolled_back", "expired"}
)
Text = Annotated[str, msgspec.Meta(max_length=255)]
FilterName = Annotated[str, msgspec.Meta(max_length=64)]
FILTERS_MAX = 256
"""Maximum filters per watch; each event is matched against all of them."""

Properties = Mapping[str, str]
Matcher = Callable[["TraceEvent", Properties], bool]


class TracedMessage(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """One message: its location, and its unique key, which finds its copies in other topics."""

    topic: Text
    queue_id: Annotated[int, msgspec.Meta(ge=0)]
    queue_offset: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,19}$")]
    uniq_key: Text | None = None


class TraceFilter(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Conditions that must all match; None and empty match everything."""

    topic: Text | None = None
    """A topic name, or a pattern with * (any text) and ? (one character), which names can't
    contain.
    """
    group: Text | None = None
    """A consumer group or a producer group."""
    tag: Text | None = None
    key: Text | None = None
    """One of the keys, the unique key or the offset message ID."""
    client: Text | None = None
    """A client ID, an address or the host of an address."""
    properties: Annotated[dict[Text, Text], msgspec.Meta(max_length=16)] | None = None
    """Required values of the message's properties."""
    stages: Annotated[list[Stage | Step], msgspec.Meta(max_length=32)] | None = None
    errors_only: bool = False
    min_latency_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    min_latency_us: (
        Annotated[
            dict[Stage | Step, Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=32)
        ]
        | None
    ) = None
    """Thresholds by stage; stages that aren't listed don't match."""
    min_total_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    sample: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    """Follow one of this many messages, with all of its stages."""
    message: TracedMessage | None = None


class ResumedWatch(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A watch whose connection was lost, and how much of it arrived."""

    watch_id: Text
    last_seq: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,19}$")]
    received: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,19}$")]
    """Number of events received."""


class TraceWatch(TraceFilter):
    """The body of TRACE_WATCH: one filter, or several with names that events repeat."""

    filters: (
        Annotated[dict[FilterName, TraceFilter], msgspec.Meta(max_length=FILTERS_MAX)] | None
    ) = None
    events_per_second_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
    resume: ResumedWatch | None = None

    def named(self) -> Mapping[str, TraceFilter]:
        """Return the filters by name; a single filter has an empty name."""
        return {"": self} if self.filters is None else self.filters


class CompiledFilter(NamedTuple):
    """A filter as functions of an event and its message's properties; both must match."""

    message: Matcher
    """Conditions on the message, which give the same result at all of its stages."""
    here: Matcher
    """Conditions on the stage."""


def compile_filter(wanted: TraceFilter) -> CompiledFilter:
    """Compile a filter."""
    here = _tests_of_stage(wanted) + _tests_of_parties(wanted)
    return CompiledFilter(_all_of(_tests_of_message(wanted)), _all_of(here))


def _all_of(tests: list[Matcher]) -> Matcher:
    if not tests:
        return lambda event, properties: True
    if len(tests) == 1:
        return tests[0]
    return lambda event, properties: all(test(event, properties) for test in tests)


def stages_of(wanted: TraceFilter) -> frozenset[str]:
    """Return the stages, including steps, whose events a filter may match."""
    stages: frozenset[str] = frozenset(wanted.stages) if wanted.stages else STAGES | set(STEPS)
    if wanted.errors_only:
        stages &= ERROR_STAGES
    if wanted.min_latency_us:
        stages &= wanted.min_latency_us.keys()
    return stages


def _tests_of_stage(wanted: TraceFilter) -> list[Matcher]:
    tests: list[Matcher] = []
    if wanted.stages or wanted.errors_only:
        stages = frozenset(wanted.stages or STAGES)
        if wanted.errors_only:
            stages &= ERROR_STAGES
        steps = stages.intersection(STEPS)
        if steps:
            tests.append(
                lambda event, _: (
                    event.stage in stages
                    or (event.steps is not None and not steps.isdisjoint(event.steps))
                )
            )
        else:
            tests.append(lambda event, _: event.stage in stages)
    if wanted.min_latency_ms:
        least_us = wanted.min_latency_ms * 1000
        tests.append(lambda event, _: (event.latency_us or 0) >= least_us)
    if least := wanted.min_latency_us:
        tests.append(lambda event, _: _is_slow(event, least))
    if wanted.min_total_ms:
        total_us = wanted.min_total_ms * 1000
        tests.append(lambda event, _: (event.total_us or 0) >= total_us)
    return tests


def _is_slow(event: TraceEvent, least_us: Mapping[Stage | Step, int]) -> bool:
    """Return whether a stage, or one of its steps, took at least the required time."""
    least = least_us.get(event.stage)  # type: ignore[call-overload]
    if least is not None and (event.latency_us or 0) >= least:
        return True
    before = 0
    for step, at_us in (event.steps or {}).items():
        least = least_us.get(step)  # type: ignore[call-overload]
        if least is not None and at_us - before >= least:
            return True
        before = at_us
    return False


def topic_test(topic: str) -> Callable[[str], bool]:
    """Return a test for names that equal a filter's topic or match its pattern."""
    if "*" in topic or "?" in topic:
        # `fnmatch` turns these patterns into expressions that don't backtrack.
        fits = re.compile(fnmatch.translate(topic.replace("[", "[[]"))).match
        return lambda name: fits(name) is not None
    return topic.__eq__


def _tests_of_parties(wanted: TraceFilter) -> list[Matcher]:
    tests: list[Matcher] = []
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
    if topic := wanted.topic:
        is_it = topic_test(topic)
        tests.append(lambda event, _: is_it(event.topic))
    if wanted.sample > 1:
        tests.append(lambda event, _: _is_sampled(event, wanted.sample))
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


def _is_sampled(event: TraceEvent, sample: int) -> bool:
    """Decide by the message alone, to keep its stages together; unknown ones match only errors."""
    if event.message_id is None:
        return event.stage in ERROR_STAGES
    return crc32(event.message_id.encode()) % sample == 0


def _is_of(event: TraceEvent, message: TracedMessage) -> bool:
    """Return whether an event belongs to a message, by location or as a copy with its ID."""
    if message.uniq_key is not None and event.uniq_key == message.uniq_key:
        return True
    if event.topic != message.topic or event.queue_id != message.queue_id:
        return False
    begin = event.acknowledged_from or event.from_offset
    if begin is None:
        return event.queue_offset == message.queue_offset
    return int(begin) <= int(message.queue_offset) < int(event.queue_offset or 0)
