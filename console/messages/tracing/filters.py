"""Filters of the Live page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from console.gateway.answers import TracedMessage, WatchFilter
from console.people.masking.access import every_rule
from console.people.masking.engine import rule_hiding_property

if TYPE_CHECKING:
    from collections.abc import Mapping

STAGES = (
    *(
        "received",
        "validated",
        "appended",
        "dispatched",
        "stored",
        "retried",
        "replayed",
        "refused",
    ),
    *("withheld", "checked", "committed", "rolled_back", "deferred", "flushed", "replicated"),
    *("woken", "filtered", "delivered", "acknowledged", "given_back", "dead", "expired"),
)
WORD_CHARS_MAX = 255
OFFSET_MAX = 2**63 - 1
LATENCY_MS_MAX = 7 * 86_400_000
LEAST_STAGES_MAX = 32
SAMPLE_MAX = 1_000_000
RATE_MAX = 1_000_000
"""Events per second; above any realistic rate."""
FIELDS = {
    *("type", "round", "topic", "group", "tag", "key", "client", "property"),
    *("stages", "errorsOnly", "minLatencyMs", "minLatencyUs"),
    *("minTotalMs", "sample", "rate", "message"),
}


class FilterError(ValueError):
    """An invalid filter; the text is a sentence for the viewer."""


def parse_filter(content: Mapping[str, Any]) -> WatchFilter:
    """Return the filter that a browser requests.

    Raises:
        FilterError: a field is unknown, too long or not text.
    """
    if unknown := set(content) - FIELDS:
        raise FilterError(_("The filter has no field %(field)r.") % {"field": min(unknown)})
    stages = content.get("stages")
    if stages is not None and not (
        isinstance(stages, list) and all(stage in STAGES for stage in stages)
    ):
        raise FilterError(_("Stages must be a list of %(stages)s.") % {"stages": ", ".join(STAGES)})
    return WatchFilter(
        topic=word(content, "topic"),
        group=word(content, "group"),
        tag=word(content, "tag"),
        key=word(content, "key"),
        client=word(content, "client"),
        named=_property_of(content),
        stages=frozenset(stages) if stages else None,
        errors_only=content.get("errorsOnly") is True,
        min_latency_ms=_number(content, "minLatencyMs", 0, LATENCY_MS_MAX),
        min_latency_us=_least_by_stage(content.get("minLatencyUs")),
        min_total_ms=_number(content, "minTotalMs", 0, LATENCY_MS_MAX),
        sample=_number(content, "sample", 1, SAMPLE_MAX),
        rate_max=_number(content, "rate", 0, RATE_MAX),
        message=traced_message(content.get("message")),
    )


def _property_of(content: Mapping[str, Any]) -> tuple[str, str] | None:
    text = word(content, "property")
    if text is None:
        return None
    name, _sign, value = (part.strip() for part in text.partition("="))
    if not name or not value:
        raise FilterError(_("Enter a property as name=value."))
    return name, value


def _least_by_stage(content: object) -> tuple[tuple[str, int], ...]:
    """Return the minimum duration in microseconds, by stage."""
    if content is None:
        return ()
    if (
        not isinstance(content, dict)
        or not 0 < len(content) <= LEAST_STAGES_MAX
        or not all(stage in STAGES for stage in content)
    ):
        raise FilterError(_("Stages must be a list of %(stages)s.") % {"stages": ", ".join(STAGES)})
    most = LATENCY_MS_MAX * 1_000
    return tuple((stage, _number(content, stage, 0, most)) for stage in sorted(content))


def require_visible(wanted: WatchFilter) -> None:
    """Refuse a filter on a property that a masking rule hides, since matches would reveal its
    value.

    Raises:
        FilterError: a rule hides the property.
    """
    if wanted.named is None:
        return
    rule = rule_hiding_property(every_rule(), wanted.topic, *wanted.named)
    if rule is not None:
        raise FilterError(
            _(
                "The masking rule %(rule)s hides property %(name)s, so live messages can't be "
                "filtered by it. Choose a topic without that rule, or leave the property out."
            )
            % {"rule": rule.name, "name": wanted.named[0]}
        )


def _number(content: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = content.get(name)
    if value is None:
        return least
    if type(value) is not int or not least <= value <= most:
        raise FilterError(
            _("The filter's %(field)s must be a whole number from %(least)d to %(most)d.")
            % {"field": name, "least": least, "most": most}
        )
    return value


def traced_message(content: object) -> TracedMessage | None:
    """Return the message that a browser requests: {topic, queueId, queueOffset, uniqKey}.

    Offsets are decimal text, for JavaScript.

    Raises:
        FilterError: the fields don't identify a message.
    """
    if content is None:
        return None
    refusal = FilterError(_("The filter's message must be a topic, queue and offset."))
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
        raise FilterError(_("The filter's %(field)s must be text.") % {"field": name})
    value = value.strip()
    if len(value) > WORD_CHARS_MAX:
        raise FilterError(
            _("The filter's %(field)s can have at most %(max)d characters.")
            % {"field": name, "max": WORD_CHARS_MAX}
        )
    return value or None
