"""Masks: rules of what SQL shows of messages, as expressions over rows of `bronze.messages`.

They are the console's rules. A pattern is looked for in bodies that are text, escaped or not, by a
function that the connection has to know (`add_hiding`); whatever is no text is hidden whole, and so
is each body of a topic with a rule about a JSON path: SQL is not the place to take JSON apart in. A
checksum would tell what is hidden in a short body.
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
"""The columns that rules are about; a table has all of them, or none."""


@dataclass(frozen=True, slots=True)
class Mask:
    """A rule: in which topics, `*` and `?` standing for characters, and what it hides."""

    topics: tuple[str, ...]
    kind: str
    what: str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Mask:
        """Return the rule that the console has given.

        Raises:
            ValueError: it is of a kind that is not known here, and would hide nothing.
        """
        if given["kind"] not in {PATTERN, PATH, PROPERTY}:
            raise ValueError(f"there is no rule of masking of the kind {given['kind']}")
        topics = tuple(str(each) for each in given["topics"])
        return cls(topics, str(given["kind"]), str(given["what"]))

    @property
    def condition(self) -> str:
        """Whether a row falls under the rule: by its topic, or by the one it came from."""
        names = ["found.topic"]
        names += [f"map_extract_value(found.properties, {quoted(e)})" for e in ORIGIN_PROPERTIES]
        either = " OR ".join(
            f"{name} GLOB {quoted(topic.replace('[', '[[]'))}"
            for topic in self.topics
            for name in names
        )
        return f"coalesce({either or 'false'}, false)"


def masked_columns(masks: Sequence[Mask]) -> dict[str, str]:
    """Return what stands in the place of columns, by their names; nothing without rules."""
    if not masks:
        return {}
    of_bodies = [mask for mask in masks if mask.kind != PROPERTY]
    of_values = [mask for mask in masks if mask.kind != PATH]
    hides = " OR ".join(mask.condition for mask in of_bodies)
    return {
        "body": each_in_turn("found.body", of_bodies, body_after),
        "body_crc": f"CASE WHEN {hides} THEN NULL ELSE found.body_crc END"
        if hides
        else "found.body_crc",
        "properties": each_in_turn("found.properties", of_values, properties_after),
    }


def each_in_turn(
    column: str, masks: Iterable[Mask], after: Callable[[Sequence[Mask], str], str]
) -> str:
    """Return a column with one rule after the other applied; those of the same topics at once.

    A value has a name in each step, for which SQL has lambdas: written out, it would stand in each
    step twice, and 100 rules are more than doubling takes.
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
    """Let a connection know the function that masks use for patterns."""
    connection.create_function(
        HIDING, each_without_matches, ["varchar", "varchar"], "varchar", type=PythonUDFType.ARROW
    )


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
