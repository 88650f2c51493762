"""BodyRules: which topics' bodies the lake stores, how it masks them, and which become columns.

Without a rule, no body is stored. If a rule can't be applied to a body, that body is left out: for
example a pattern when the body isn't text, or a field when it isn't JSON. Patterns also match text
that is written with escapes.

Patterns use RE2, which runs in linear time on any text.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from analytics.errors import LakeError
from analytics.lake.body_columns import columns_of
from analytics.lake.hiding import MASK, may_hide_more, without_matches
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from analytics.lake.body_columns import BodyColumns

TABLE_NAME = re.compile(r"[A-Za-z0-9_-]+")
REJECTED_SUFFIX = "_rejected"
EXAMPLE = '[bodies.orders]\npatterns = ["[0-9]{16}"]\nfields = ["password"]'


@dataclass(frozen=True, slots=True)
class BodyRule:
    """The masking rules for the bodies of one topic."""

    patterns: tuple[str, ...] = ()
    fields: frozenset[str] = frozenset()
    columns: BodyColumns | None = None

    def applied(self, bodies: pa.Array) -> pa.Array:
        """Return the bodies as the lake may store them; null if the rule can't be applied."""
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
        """Read the rules from a file.

        Raises:
            LakeError: the file isn't readable or isn't valid.
        """
        if path is None:
            return cls()
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise LakeError(f"The body rules in {path} can't be read: {reason}.") from error
        tables = given.pop("bodies", {})
        if given or not isinstance(tables, dict):
            raise LakeError(f"{path} can only contain tables such as:\n{EXAMPLE}")
        rules = cls({topic: _rule(path, topic, table) for topic, table in tables.items()})
        rules._require_tables(path)
        return rules

    def _require_tables(self, path: Path) -> None:
        """Raise LakeError if two topics would share a table, or a table name isn't valid."""
        seen: dict[str, str] = {}
        for topic, rule in self.by_topic.items():
            if rule.columns is None:
                continue
            if not TABLE_NAME.fullmatch(topic):
                raise LakeError(
                    f"{path}: bodies.{topic} can't have columns, because a table name can "
                    "only have letters, digits, _ and -."
                )
            for name in (topic.lower(), topic.lower() + REJECTED_SUFFIX):
                if name in seen:
                    raise LakeError(
                        f"{path}: {seen[name]} and {topic} would have the same table silver.{name}."
                    )
                seen[name] = topic

    def applied(self, topics: pa.Array, bodies: pa.Array) -> pa.Array:
        """Return the masked bodies of topics that have a rule; null for all others."""
        kept = pa.nulls(len(bodies), pa.binary())
        for topic, rule in self.by_topic.items():
            is_of_topic = pc.fill_null(pc.equal(topics, topic), False)
            masked = rule.applied(bodies.filter(is_of_topic))
            kept = pc.replace_with_mask(kept, is_of_topic, masked)
        return kept


def _unescaped(pattern: str, text: str | None) -> str | None:
    """Return a text without the escaped parts that a pattern matches."""
    if text is None or not may_hide_more(pattern, text):
        return text
    return without_matches(pattern, text)


def _rule(path: Path, topic: str, table: Any) -> BodyRule:
    wrong = names.check_topic(topic)
    if wrong is not None:
        raise LakeError(f"{path}: bodies.{topic} doesn't name a valid topic. {wrong}")
    if not isinstance(table, dict) or not set(table) <= {"patterns", "fields", "columns", "schema"}:
        raise LakeError(
            f"{path}: bodies.{topic} can only have patterns, fields, columns and schema."
        )
    patterns, fields = table.get("patterns", []), table.get("fields", [])
    for name, given in (("patterns", patterns), ("fields", fields)):
        if not isinstance(given, list) or not all(isinstance(one, str) and one for one in given):
            raise LakeError(f"{path}: {name} of bodies.{topic} must be a list of strings.")
    for pattern in patterns:
        try:
            pc.replace_substring_regex(pa.array([""]), pattern=pattern, replacement=MASK)
        except pa.ArrowInvalid as error:
            raise LakeError(
                f"{path}: {pattern!r} of bodies.{topic} isn't a valid regular expression: {error}."
            ) from error
    return BodyRule(tuple(patterns), frozenset(fields), _columns(path, topic, table))


def _columns(path: Path, topic: str, table: dict[str, Any]) -> BodyColumns | None:
    """Return the columns that a rule declares inline, or in a JSON Schema or Avro file."""
    where = f"{path}: bodies.{topic}"
    if "columns" in table and "schema" in table:
        raise LakeError(f"{where} can have columns or schema, not both.")
    if "columns" in table:
        return columns_of(f"{where}.columns", table["columns"], is_short=True)
    if "schema" not in table:
        return None
    file = path.parent / str(table["schema"])
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise LakeError(
            f"{where} names the schema file {file}, which can't be read: {reason}."
        ) from error
    return columns_of(str(file), given)
