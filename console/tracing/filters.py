"""What a viewer of the river wants to see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from console.gateway.answers import TracedMessage, WatchFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STAGES = ("stored", "delivered", "acknowledged", "given_back", "dead", "refused")
WORD_CHARS_MAX = 255
OFFSET_MAX = 2**63 - 1
FIELDS = {"type", "round", "topic", "group", "tag", "key", "stages", "message"}


class FilterError(ValueError):
    """A filter that cannot be used; the text is a sentence for the viewer."""


@dataclass(frozen=True, slots=True)
class TraceFilter:
    """Which events a viewer sees; None is any.

    `key` matches one of a message's keys, or its id; `message` all that happens to one message,
    the acknowledgements that cover it and its copies in other topics included.
    """

    topic: str | None = None
    group: str | None = None
    tag: str | None = None
    key: str | None = None
    stages: frozenset[str] | None = None
    message: TracedMessage | None = None

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
        if self.message is not None and not is_of(event, self.message):
            return False
        return self.key is None or (
            self.key in str(event.get("keys") or "").split()
            or self.key in (event.get("uniqKey"), event.get("offsetMsgId"))
        )

    def asked_for(self) -> WatchFilter:
        """Return the filter of a watch that brings what this one shows."""
        return WatchFilter(
            topic=self.topic,
            group=self.group,
            tag=self.tag,
            key=self.key,
            stages=self.stages,
            message=self.message,
        )


def is_of(event: Mapping[str, Any], message: TracedMessage) -> bool:
    """Return whether an event tells of a message: at its place, or of a copy with its id."""
    if message.uniq_key is not None and event.get("uniqKey") == message.uniq_key:
        return True
    if (event.get("topic"), event.get("queueId")) != (message.topic, message.queue_id):
        return False
    if (text := event.get("queueOffset")) is None:
        return False
    queue_offset = int(text)
    if (first := event.get("acknowledgedFrom")) is not None:
        return int(first) <= message.queue_offset < queue_offset
    return queue_offset == message.queue_offset


def union(filters: Iterable[TraceFilter]) -> TraceFilter:
    """Return a filter that shows whatever one of these shows; what they share narrows it."""
    every = list(filters)
    if not every:
        return TraceFilter()
    stages: frozenset[str] | None = frozenset()
    for each in every:
        stages = None if stages is None or each.stages is None else stages | each.stages
    first = every[0]
    return TraceFilter(
        topic=first.topic if all(each.topic == first.topic for each in every) else None,
        group=first.group if all(each.group == first.group for each in every) else None,
        tag=first.tag if all(each.tag == first.tag for each in every) else None,
        key=first.key if all(each.key == first.key for each in every) else None,
        stages=stages,
        message=first.message if all(each.message == first.message for each in every) else None,
    )


def parse_filter(content: Mapping[str, Any]) -> TraceFilter:
    """Return the filter a browser asks for.

    Raises:
        FilterError: a field is unknown, no text, or too long.
    """
    if unknown := set(content) - FIELDS:
        raise FilterError(_("The filter has no field %(field)r.") % {"field": min(unknown)})
    stages = content.get("stages")
    if stages is not None and not (
        isinstance(stages, list) and all(stage in STAGES for stage in stages)
    ):
        raise FilterError(_("Stages are a list of %(stages)s.") % {"stages": ", ".join(STAGES)})
    return TraceFilter(
        topic=word(content, "topic"),
        group=word(content, "group"),
        tag=word(content, "tag"),
        key=word(content, "key"),
        stages=frozenset(stages) if stages else None,
        message=traced_message(content.get("message")),
    )


def traced_message(content: object) -> TracedMessage | None:
    """Return the message that a browser asks for: {topic, queueId, queueOffset, uniqKey}.

    Offsets are decimal text, for JavaScript.

    Raises:
        FilterError: it is no place of a message.
    """
    if content is None:
        return None
    refusal = FilterError(_("The filter's message is not a topic, queue and offset."))
    if not isinstance(content, dict):
        raise refusal
    topic, uniq_key = word(content, "topic"), word(content, "uniqKey")
    try:
        queue_id, queue_offset = int(content["queueId"]), int(content["queueOffset"])
    except (KeyError, TypeError, ValueError):
        raise refusal from None
    if topic is None or not (0 <= queue_id < 2**31 and 0 <= queue_offset <= OFFSET_MAX):
        raise refusal
    return TracedMessage(topic, queue_id, queue_offset, uniq_key)


def word(content: Mapping[str, Any], name: str) -> str | None:
    value = content.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise FilterError(_("The filter's %(field)s is not text.") % {"field": name})
    value = value.strip()
    if len(value) > WORD_CHARS_MAX:
        raise FilterError(
            _("The filter's %(field)s is longer than %(max)d characters.")
            % {"field": name, "max": WORD_CHARS_MAX}
        )
    return value or None
