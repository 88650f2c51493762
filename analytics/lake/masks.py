"""Masks: the rules that hide parts of messages in SQL, as expressions over `bronze.messages`.

These are the console's rules. A pattern is applied to text bodies, escaped or not, by a function
that must be registered with the connection (`add_hiding`). Bodies that aren't text are hidden
entirely, and so is each body of a topic with a JSON path rule, because SQL can't parse the JSON
safely. The checksum is hidden because it would reveal a short body.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from duckdb.func import PythonUDFType

from analytics.lake.hiding import each_without_matches
from broker_core.message.names import ORIGIN_PROPERTIES, PROPERTY_NAMES
from broker_core.message.sys_flag import COMPRESSED_FLAG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from duckdb import DuckDBPyConnection

PATTERN, PATH, PROPERTY = "pattern", "path", "property"
MASK = "'***'"
HIDING = "without_matches"
MASKED = frozenset({"body", "body_crc", "properties"})
"""The columns that rules apply to; a table has all of them or lacks all."""


@dataclass(frozen=True, slots=True)
class Mask:
    """A rule: its topics, with the wildcards `*` and `?`, and the parts that it hides."""

    topics: tuple[str, ...]
    kind: str
    what: str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Mask:
        """Return the mask for a rule of the console.

        Raises:
            ValueError: the rule is of an unknown kind, and would hide nothing.
        """
        if given["kind"] not in {PATTERN, PATH, PROPERTY}:
            raise ValueError(f"unknown kind of masking rule: {given['kind']}")
        topics = tuple(str(each) for each in given["topics"])
        return cls(topics, str(given["kind"]), str(given["what"]))

    @property
    def condition(self) -> str:
        """The SQL condition that the rule applies to a row, by topic or original topic."""
        names = ["found.topic"]
        names += [f"map_extract_value(found.properties, {quoted(e)})" for e in ORIGIN_PROPERTIES]
        either = " OR ".join(
            f"{name} GLOB {quoted(topic.replace('[', '[[]'))}"
            for topic in self.topics
            for name in names
        )
        return f"coalesce({either or 'false'}, false)"


def masked_columns(masks: Sequence[Mask]) -> dict[str, str]:
    """Return replacements for the masked columns, by name; empty without rules."""
    if not masks:
        return {}
    of_bodies = [mask for mask in masks if mask.kind != PROPERTY]
    of_values = [mask for mask in masks if mask.kind != PATH]
    hides = " OR ".join(mask.condition for mask in of_bodies)
    return {
        "body": apply_masks("found.body", of_bodies, body_after),
        "body_crc": f"CASE WHEN {hides} THEN NULL ELSE found.body_crc END"
        if hides
        else "found.body_crc",
        "properties": apply_masks("found.properties", of_values, properties_after),
    }


def hidden_columns(masks: Sequence[Mask], names: Iterable[str]) -> dict[str, str]:
    """Return replacements for the columns made from bodies, by name.

    These columns are hidden entirely if a rule covers bodies of their topic, or if they may come
    from another topic: a pattern may match text around the value.
    """
    of_bodies = [mask for mask in masks if mask.kind != PROPERTY]
    if not of_bodies:
        return {}
    topics = [topic.replace("[", "[[]") for mask in of_bodies for topic in mask.topics]
    either = ["found.origin_topic IS NOT NULL", *(f"found.topic GLOB {quoted(e)}" for e in topics)]
    hides = " OR ".join(either)
    return {name: f"CASE WHEN {hides} THEN NULL ELSE found.{name} END" for name in names}


def apply_masks(
    column: str, masks: Iterable[Mask], after: Callable[[Sequence[Mask], str], str]
) -> str:
    """Return a column with the rules applied in order; rules for the same topics share a step.

    Each step binds the value to a name with an SQL lambda. Written out, each step would contain the
    previous one twice, and 100 rules would double it 100 times.
    """
    found = column
    for number, (condition, same) in enumerate(groupby(masks, lambda each: each.condition)):
        name = f"masked_{number}"
        step = f"CASE WHEN {condition} THEN {after(tuple(same), name)} ELSE {name} END"
        found = f"list_transform([{found}], lambda {name}: {step})[1]"
    return found


def body_after(masks: Sequence[Mask], body: str) -> str:
    hidden = f"{MASK}::BLOB"
    if all(mask.kind == PATTERN for mask in masks):
        is_packed = f"(coalesce(found.sys_flag, 0) & {COMPRESSED_FLAG}) <> 0"
        text = f"CASE WHEN {is_packed} THEN NULL ELSE try(decode({body})) END"
        for mask in masks:
            text = replaced(mask, text)
        hidden = f"coalesce(encode({text}), {hidden})"
    return f"CASE WHEN octet_length({body}) > 0 THEN {hidden} ELSE {body} END"


def properties_after(masks: Sequence[Mask], properties: str) -> str:
    own = ", ".join(quoted(each) for each in sorted(PROPERTY_NAMES))
    value = "e.value"
    for mask in masks:
        if mask.kind == PROPERTY:
            value = f"CASE WHEN e.key = {quoted(mask.what)} THEN {MASK} ELSE {value} END"
        else:
            value = replaced(mask, value)
    value = f"CASE WHEN e.key IN ({own}) THEN e.value ELSE {value} END"
    return (
        f"map_from_entries(list_transform(map_entries({properties}), "
        f"lambda e: {{'key': e.key, 'value': {value}}}))"
    )


def replaced(mask: Mask, text: str) -> str:
    return f"{HIDING}({text}, {quoted(mask.what)})"


def add_hiding(connection: DuckDBPyConnection) -> None:
    """Register the function that masks use for patterns with a connection."""
    connection.create_function(
        HIDING, each_without_matches, ["varchar", "varchar"], "varchar", type=PythonUDFType.ARROW
    )


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
