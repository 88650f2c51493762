"""Conditions on messages: text, a JSON field, properties, tag, key, client."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from console.lib.bodies import Number, Pairs, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from console.lib.stored import StoredMessage

TEXT_CHARACTERS_MAX = 512
STEP = re.compile(r"\.?(?:([^.\[\]]+)|\[(\d+|\*)\]|\['([^']*)'\]|\[\"([^\"]*)\"\])")
ANY = "*"
WORDS = {"True": "true", "False": "false", "None": "null"}


class PathError(ValueError):
    """The text isn't a valid JSON path."""


def path_of(text: str) -> tuple[str, ...]:
    """Return the steps of a path like `$.items[0].sku`, `order.lines[*].id`.

    Raises:
        PathError: the text isn't a valid path.
    """
    rest = text.strip().removeprefix("$")
    steps = []
    while rest:
        step = STEP.match(rest)
        if step is None:
            raise PathError(text)
        steps.append(next(each for each in step.groups() if each is not None))
        rest = rest[step.end() :]
    return tuple(steps)


def values_at(value: object, steps: tuple[str, ...]) -> Iterator[object]:
    """Yield the values at a path: none, one, or several for a path with a star."""
    if not steps:
        yield value
        return
    first, rest = steps[0], steps[1:]
    if isinstance(value, Pairs):
        children = [each for name, each in value if first in (ANY, name)]
    elif isinstance(value, list) and first == ANY:
        children = value
    elif isinstance(value, list) and first.isdecimal() and int(first) < len(value):
        children = [value[int(first)]]
    else:
        return
    for child in children:
        yield from values_at(child, rest)


def text_of(value: object) -> str:
    """Return a scalar as written in JSON, a string without quotes, or the kind of a container."""
    if isinstance(value, Pairs):
        return "{…}" if value else "{}"
    if isinstance(value, list):
        return "[…]" if value else "[]"
    if isinstance(value, str | Number):
        return str(value)
    return WORDS[str(value)]


def json_of(message: StoredMessage) -> object | None:
    """Return the JSON value of a body, or None if it isn't JSON or was read only in part."""
    if message.body is None or message.is_cut:
        return None
    try:
        return parsed(message.body.decode())
    except ValueError:
        return None


class Filter(NamedTuple):
    """The conditions that a message must all meet; empty conditions match anything.

    Text matches anywhere, ignoring case. A value must be equal; an empty value matches any that
    exists.
    """

    text: str = ""
    path: str = ""
    value: str = ""
    name: str = ""
    equals: str = ""
    tag: str = ""
    key: str = ""
    client: str = ""

    def __bool__(self) -> bool:
        return any((self.text, self.path, self.name, self.tag, self.key, self.client))

    @property
    def reads_bodies(self) -> bool:
        return bool(self.text or self.path)

    @property
    def query(self) -> dict[str, str]:
        return {name: text for name, text in self._asdict().items() if text}

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of the path.

        Raises:
            PathError: the path is invalid.
        """
        return path_of(self.path)

    def matches(self, message: StoredMessage) -> bool:
        return (
            (not self.tag or message.tags == self.tag)
            and (not self.client or self.client in message.born_host)
            and (not self.key or self.key.casefold() in message.keys.casefold())
            and self._has_property(message)
            and self._has_text(message)
            and self._has_value(message)
        )

    def _has_property(self, message: StoredMessage) -> bool:
        if not self.name:
            return True
        pairs = (*message.properties.items(), *message.other_properties)
        values = {value for name, value in pairs if name == self.name}
        return self.equals in values if self.equals else bool(values)

    def _has_text(self, message: StoredMessage) -> bool:
        if not self.text:
            return True
        body = (message.body or b"").decode(errors="replace")
        return self.text.casefold() in body.casefold()

    def _has_value(self, message: StoredMessage) -> bool:
        if not self.path:
            return True
        body = json_of(message)
        found = values_at(body, self.steps) if body is not None else iter(())
        return any(not self.value or text_of(each) == self.value for each in found)


def filter_of(asked: Mapping[str, str]) -> Filter:
    """Return the filter in a query string."""
    texts = (asked.get(name, "").strip()[:TEXT_CHARACTERS_MAX] for name in Filter._fields)
    return Filter(*texts)


def filter_query(wanted: Filter) -> str:
    return urlencode(wanted.query)
