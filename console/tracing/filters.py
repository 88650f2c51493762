"""What a viewer of the river wants to see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STAGES = ("stored", "delivered", "acknowledged")
WORD_CHARS_MAX = 255

Event = dict[str, Any]


class FilterError(ValueError):
    """A filter that cannot be used; the text is a sentence for the viewer."""


@dataclass(frozen=True, slots=True)
class TraceFilter:
    """Which events a viewer sees; None is any. `key` matches one of a message's keys, or its id."""

    topic: str | None = None
    group: str | None = None
    tag: str | None = None
    key: str | None = None
    stages: frozenset[str] | None = None

    def matches(self, event: Mapping[str, Any]) -> bool:
        if self.topic is not None and event.get("topic") != self.topic:
            return False
        if self.stages is not None and event.get("stage") not in self.stages:
            return False
        if self.group is not None and self.group not in (
            event.get("group"),
            event.get("producerGroup"),
        ):
            return False
        if self.tag is not None and event.get("tags") != self.tag:
            return False
        return self.key is None or (
            self.key in str(event.get("keys") or "").split()
            or self.key in (event.get("uniqKey"), event.get("offsetMsgId"))
        )

    def request_body(self) -> bytes:
        """Return the body of a TRACE_WATCH that brings at least what this filter shows."""
        stages = None if self.stages is None else sorted(self.stages)
        return msgspec.json.encode(
            {
                "topic": self.topic,
                # A broker compares `group` and `key` with one field each, this page with several.
                "group": None,
                "tag": self.tag,
                "key": None,
                "clientId": None,
                "stages": stages,
                "minLatencyMs": 0,
                "sample": 1,
            }
        )


def union(filters: Iterable[TraceFilter]) -> TraceFilter:
    """Return a filter that shows whatever one of these shows; what they share narrows it."""
    every = list(filters)
    if not every:
        return TraceFilter()
    stages: frozenset[str] | None = frozenset()
    for each in every:
        stages = None if stages is None or each.stages is None else stages | each.stages
    topics = {each.topic for each in every}
    tags = {each.tag for each in every}
    return TraceFilter(
        topic=topics.pop() if len(topics) == 1 else None,
        tag=tags.pop() if len(tags) == 1 else None,
        stages=stages,
    )


def parse_filter(content: Mapping[str, Any]) -> TraceFilter:
    """Return the filter a browser asks for.

    Raises:
        FilterError: a field is unknown, no text, or too long.
    """
    if unknown := set(content) - {"type", "round", "topic", "group", "tag", "key", "stages"}:
        raise FilterError(f"The filter has no field {min(unknown)!r}.")
    stages = content.get("stages")
    if stages is not None and not (
        isinstance(stages, list) and all(stage in STAGES for stage in stages)
    ):
        raise FilterError(f"Stages are a list of {', '.join(STAGES)}.")
    return TraceFilter(
        topic=word(content, "topic"),
        group=word(content, "group"),
        tag=word(content, "tag"),
        key=word(content, "key"),
        stages=frozenset(stages) if stages else None,
    )


def word(content: Mapping[str, Any], name: str) -> str | None:
    value = content.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise FilterError(f"The filter's {name} is not text.")
    value = value.strip()
    if len(value) > WORD_CHARS_MAX:
        raise FilterError(f"The filter's {name} is longer than {WORD_CHARS_MAX} characters.")
    return value or None
