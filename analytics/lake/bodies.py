"""BodyRules: whose bodies the lake keeps, and what is masked in them.

Without a rule no body is kept. A rule that cannot be applied to a body leaves that body out: one
that is not text where a pattern is to be masked, or no JSON where a field is. Patterns also find
what a text writes in escapes.

Patterns are RE2's, in whose time no text is a trap.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from analytics.errors import LakeError
from analytics.lake.hiding import MASK, may_hide_more, without_matches
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EXAMPLE = '[bodies.orders]\npatterns = ["[0-9]{16}"]\nfields = ["password"]'


@dataclass(frozen=True, slots=True)
class BodyRule:
    """What is masked in the bodies of one topic."""

    patterns: tuple[str, ...] = ()
    fields: frozenset[str] = frozenset()

    def applied(self, bodies: pa.Array) -> pa.Array:
        """Return the bodies as the lake may keep them, null where the rule cannot be applied."""
        if not self.patterns and not self.fields:
            return bodies
        texts = pa.array([self._text(body) for body in bodies.to_pylist()], type=pa.string())
        for pattern in self.patterns:
            texts = pc.replace_substring_regex(texts, pattern=pattern, replacement=MASK)
            texts = pa.array([_unescaped(pattern, text) for text in texts.to_pylist()], pa.string())
        return texts.cast(pa.binary())

    def _text(self, body: bytes | None) -> str | None:
        try:
            text = None if body is None else body.decode()
            if text is None or not self.fields:
                return text
            return json.dumps(self._masked(json.loads(text)), ensure_ascii=False)
        except (ValueError, RecursionError):
            return None

    def _masked(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: MASK if name in self.fields else self._masked(each)
                for name, each in value.items()
            }
        return [self._masked(each) for each in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class BodyRules:
    """The rules by topic."""

    by_topic: Mapping[str, BodyRule] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_topic)

    @classmethod
    def read(cls, path: Path | None) -> BodyRules:
        """Return the rules of a file.

        Raises:
            LakeError: it cannot be read, or says something else than rules.
        """
        if path is None:
            return cls()
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise LakeError(f"The rules of bodies in {path} cannot be read: {reason}.") from error
        tables = given.pop("bodies", {})
        if given or not isinstance(tables, dict):
            raise LakeError(f"{path} must hold tables of bodies only, such as:\n{EXAMPLE}")
        return cls({topic: _rule(path, topic, table) for topic, table in tables.items()})

    def applied(self, topics: pa.Array, bodies: pa.Array) -> pa.Array:
        """Return the bodies of those topics that have a rule, masked; null for all others."""
        kept = pa.nulls(len(bodies), pa.binary())
        for topic, rule in self.by_topic.items():
            is_of_topic = pc.fill_null(pc.equal(topics, topic), False)
            masked = rule.applied(bodies.filter(is_of_topic))
            kept = pc.replace_with_mask(kept, is_of_topic, masked)
        return kept


def _unescaped(pattern: str, text: str | None) -> str | None:
    """Return a text without what a pattern matches in its escapes."""
    if text is None or not may_hide_more(pattern, text):
        return text
    return without_matches(pattern, text)


def _rule(path: Path, topic: str, table: Any) -> BodyRule:
    wrong = names.check_topic(topic)
    if wrong is not None:
        raise LakeError(f"{path}: {topic!r} is not a topic: {wrong}")
    if not isinstance(table, dict) or not set(table) <= {"patterns", "fields"}:
        raise LakeError(f"{path}: bodies.{topic} may have patterns and fields only.")
    patterns, fields = table.get("patterns", []), table.get("fields", [])
    for name, given in (("patterns", patterns), ("fields", fields)):
        if not isinstance(given, list) or not all(isinstance(one, str) and one for one in given):
            raise LakeError(f"{path}: {name} of bodies.{topic} must be a list of texts.")
    for pattern in patterns:
        try:
            pc.replace_substring_regex(pa.array([""]), pattern=pattern, replacement=MASK)
        except pa.ArrowInvalid as error:
            raise LakeError(
                f"{path}: {pattern!r} of bodies.{topic} is no regular expression: {error}."
            ) from error
    return BodyRule(tuple(patterns), frozenset(fields))
