"""Masks one message, by patterns, JSON paths and property names.

A body that a rule can't inspect is hidden entirely: a body that isn't text for a pattern, or isn't
(complete) JSON for a path. A pattern matches text however its characters are escaped
(broker_core/message/escaped_text.py), and `^` and `$` also match the ends of JSON values. A message
belongs to its current topic and to its original topic, so retries and dead letters are masked like
the original. Patterns use RE2, which runs in linear time.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import re2

from broker_core.message.escaped_text import anchored_to_lines, mask_matches
from broker_core.message.names import ORIGIN_PROPERTIES, PROPERTY_NAMES, is_system_topic
from console.accounts.actions import group_of
from console.accounts.rights import fits
from console.lib.bodies import Number, Pairs, parsed
from console.lib.content import ANY, path_of
from console.people.masking.models import MaskingRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker_core.message.escaped_text import Find
    from console.lib.stored import StoredMessage

MASK = "***"
CUT_BYTES = 1_024
"""Bytes to hide at the end of a truncated body, since a match may cross the cut."""
UTF8_LACKING_MAX = 3


class PatternError(ValueError):
    """The pattern is invalid; the text is RE2's error."""


def pattern_of(text: str) -> Any:
    """Return a compiled pattern.

    Raises:
        PatternError: it is invalid.
    """
    try:
        return compiled(text)
    except re2.error as error:
        raise PatternError(str(error)) from error


@lru_cache(maxsize=256)
def compiled(text: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(text, options)


def topics_of(message: StoredMessage) -> list[str]:
    """Return the topics whose rules apply to a message."""
    origins = (message.properties.get(each, "") for each in ORIGIN_PROPERTIES)
    return [message.topic, *(each for each in origins if each)]


def rules_for(message: StoredMessage, rules: Iterable[MaskingRule]) -> list[MaskingRule]:
    topics = topics_of(message)
    return [rule for rule in rules if any(fits(frozenset(rule.topics), each) for each in topics)]


def mask(message: StoredMessage, rules: Sequence[MaskingRule]) -> StoredMessage:
    """Return a message masked by these rules, and the names of the rules that hid something."""
    found = message
    hiding = []
    for rule in rules_for(message, rules):
        after = replace(
            found,
            body=body_after(rule, found),
            properties=properties_after(rule, found.properties),
            other_properties=tuple(
                each
                for pair in found.other_properties
                for each in properties_after(rule, dict([pair])).items()
            ),
        )
        if after != found:
            hiding.append(rule.name)
        found = after
    return replace(found, masked_by=tuple(hiding))


def properties_after(rule: MaskingRule, properties: Any) -> dict[str, str]:
    def shown(name: str, value: str) -> str:
        # Pages rely on RocketMQ's own properties, which are in indexes and traces anyway.
        if name in PROPERTY_NAMES:
            return value
        if rule.kind == MaskingRule.Kind.PROPERTY:
            return MASK if name == rule.what else value
        if rule.kind == MaskingRule.Kind.PATTERN:
            return without_matches(rule.what, value)
        return value

    return {name: shown(name, value) for name, value in properties.items()}


def rule_hiding_property(
    rules: Iterable[MaskingRule], topic: str | None, name: str, value: str
) -> MaskingRule | None:
    """Return a rule that hides a property's value in a topic, or None.

    A topic pattern, a system topic and a group's retry or dead-letter topic can contain messages
    from
    any topic, so every rule applies to them.
    """
    is_one = topic is not None and not set(topic) & {"*", "?"} and not holds_copies(topic)
    asked = {name: value}
    for rule in rules:
        if is_one and not fits(frozenset(rule.topics), str(topic)):
            continue
        if properties_after(rule, asked) != asked:
            return rule
    return None


def holds_copies(topic: str) -> bool:
    """Whether a topic's messages can come from any other topic."""
    return group_of(topic) is not None or is_system_topic(topic)


def body_after(rule: MaskingRule, message: StoredMessage) -> bytes | None:
    body = message.body
    if not body or rule.kind == MaskingRule.Kind.PROPERTY:
        return body
    if rule.kind == MaskingRule.Kind.PATTERN:
        return by_pattern(rule.what, body, is_cut=message.is_cut)
    return MASK.encode() if message.is_cut else by_path(path_of(rule.what), body)


def by_pattern(pattern: str, body: bytes, *, is_cut: bool) -> bytes:
    kept = body[:-CUT_BYTES] if is_cut else body
    for lacking in range(UTF8_LACKING_MAX + 1 if is_cut else 1):
        try:
            text = kept[: len(kept) - lacking].decode()
        except UnicodeDecodeError:
            continue
        after = without_matches(pattern, text)
        return body if after == text and not is_cut else after.encode()
    return MASK.encode()


def without_matches(pattern: str, text: str) -> str:
    """Return a text with all matches of a pattern masked, escaped or not."""
    in_values = anchored_to_lines(pattern)
    return mask_matches(
        text, finder(pattern), MASK, None if in_values is None else finder(in_values)
    )


@lru_cache(maxsize=256)
def finder(pattern: str) -> Find:
    found = pattern_of(pattern)
    return lambda text: [each.span() for each in found.finditer(text)]


def by_path(steps: tuple[str, ...], body: bytes) -> bytes:
    try:
        after, is_hit = mask_path(parsed(body.decode()), steps)
        return dump_json(after).encode() if is_hit else body
    except (ValueError, RecursionError):
        # Not JSON, or nested too deeply.
        return MASK.encode()


def mask_path(value: object, steps: tuple[str, ...]) -> tuple[object, bool]:
    """Return a value with the value at a path masked, and whether the path exists."""
    if not steps:
        return MASK, True
    first, rest = steps[0], steps[1:]
    hit = False
    if isinstance(value, Pairs):
        pairs = []
        for name, each in value:
            if first in (ANY, name):
                each, is_hit = mask_path(each, rest)
                hit |= is_hit
            pairs.append((name, each))
        return Pairs(pairs), hit
    if isinstance(value, list):
        items = []
        for at, each in enumerate(value):
            if first in (ANY, str(at)):
                each, is_hit = mask_path(each, rest)
                hit |= is_hit
            items.append(each)
        return items, hit
    return value, False


def dump_json(value: object) -> str:
    """Return JSON with numbers and key order preserved."""
    if isinstance(value, Pairs):
        inner = ",".join(f"{quoted(name)}:{dump_json(each)}" for name, each in value)
        return "{" + inner + "}"
    if isinstance(value, list):
        return "[" + ",".join(dump_json(each) for each in value) + "]"
    return str(value) if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
