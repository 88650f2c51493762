"""Message bodies for display: formatted JSON, a JSON tree, text or bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _, ngettext

if TYPE_CHECKING:
    from collections.abc import Iterator

ROW_BYTES = 16
DUMP_BYTES_MAX = 16_384
UTF8_BYTES_MAX = 4
NODES_MAX = 3_000
DEPTH_MAX = 40
OPEN_DEPTH = 2
"""The depth to which a tree is expanded."""


class Body(NamedTuple):
    """A body in one form: json, tree, text or bytes; `forms` lists all that are possible."""

    kind: str
    text: str
    forms: tuple[str, ...] = ()
    is_part: bool = False


class Number(str):
    """A JSON number as written in the source, with any number of digits."""

    __slots__ = ()


class Pairs(tuple[tuple[str, object], ...]):
    """A JSON object in source order; names may repeat."""

    __slots__ = ()


def body_of(data: bytes, *, is_cut: bool, form: str = "") -> Body:
    """Return the start of a body for display, in `form` if possible.

    `is_cut` means that the body continues.
    """
    # A cut body may end within a character.
    text = decoded(data, lacking_max=UTF8_BYTES_MAX - 1 if is_cut else 0)
    if text is None:
        return dumped(data, ("bytes",))
    laid_out = formatted_json(text) if not is_cut and text.lstrip()[:1] in ("{", "[") else None
    forms = ("text", "bytes") if laid_out is None else ("json", "tree", "text", "bytes")
    if form == "bytes":
        return dumped(data, forms)
    if laid_out is None or form == "text":
        return Body("text", text, forms)
    if form == "tree":
        tree = tree_of(text)
        return Body("json", laid_out, forms) if tree is None else Body("tree", tree, forms)
    return Body("json", laid_out, forms)


def formatted_json(text: str) -> str | None:
    """Return JSON with line breaks, or None if the text isn't JSON."""
    try:
        # This keeps the text of numbers and doesn't round any.
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, RecursionError):
        return None


def parsed(text: str) -> object:
    """Return the value of JSON with its numbers as written.

    Raises:
        ValueError: the text isn't JSON, or is nested too deeply.
    """
    try:
        return json.loads(
            text,
            parse_int=Number,
            parse_float=Number,
            parse_constant=Number,
            object_pairs_hook=Pairs,
        )
    except RecursionError as error:
        raise ValueError("too deep") from error


def dumped(data: bytes, forms: tuple[str, ...]) -> Body:
    shown = data[:DUMP_BYTES_MAX]
    return Body("bytes", dump(shown), forms, is_part=len(shown) < len(data))


def decoded(data: bytes, lacking_max: int) -> str | None:
    """Return bytes as text, allowing for missing bytes at the end, or None if they aren't text."""
    for lacking in range(lacking_max + 1):
        try:
            text = data[: len(data) - lacking].decode()
        except UnicodeDecodeError:
            continue
        return text if all(each.isprintable() or each in "\t\r\n" for each in text) else None
    return None


def dump(data: bytes) -> str:
    """Return bytes as rows of offset, hex and ASCII."""
    rows = []
    for at in range(0, len(data), ROW_BYTES):
        row = data[at : at + ROW_BYTES]
        shown = "".join(
            chr(each) if chr(each).isprintable() and each < 127 else "." for each in row
        )
        rows.append(f"{at:06x}  {row.hex(' '):<{ROW_BYTES * 3}} {shown}")
    return "\n".join(rows)


def tree_of(text: str) -> SafeString | None:
    """Return JSON as nested collapsible lists, or None if the text isn't JSON."""
    try:
        value = parsed(text)
    except ValueError:
        return None
    return Tree().render(value)


class Tree:
    """Renders one value, up to NODES_MAX nodes and DEPTH_MAX levels."""

    def __init__(self) -> None:
        self._left = NODES_MAX

    def render(self, value: object) -> SafeString:
        return format_html('<ul class="tree">{}</ul>', self._node("", value, 0))

    def _node(self, name: str, value: object, depth: int) -> SafeString:
        self._left -= 1
        label = format_html('<span class="tree__name">{}</span> ', name) if name else ""
        if not isinstance(value, Pairs | list):
            return format_html("<li>{}{}</li>", label, scalar(value))
        items: list[tuple[str, object]] = (
            list(value)
            if isinstance(value, Pairs)
            else [(str(index), each) for index, each in enumerate(value)]
        )
        count = (
            ngettext("%(count)d field", "%(count)d fields", len(items))
            if isinstance(value, Pairs)
            else ngettext("%(count)d item", "%(count)d items", len(items))
        ) % {"count": len(items)}
        if not items or depth >= DEPTH_MAX:
            return format_html('<li>{}<span class="faint">{}</span></li>', label, count)
        return format_html(
            '<li><details{}><summary>{}<span class="faint">{}</span></summary>'
            "<ul>{}</ul></details></li>",
            SafeString(" open") if depth < OPEN_DEPTH else "",
            label,
            count,
            format_html_join("", "{}", ((each,) for each in self._children(items, depth))),
        )

    def _children(self, items: list[tuple[str, object]], depth: int) -> Iterator[SafeString]:
        for at, (name, value) in enumerate(items):
            if self._left <= 0:
                yield format_html(
                    '<li class="faint">{}</li>',
                    _("… and %(count)d more") % {"count": len(items) - at},
                )
                return
            yield self._node(name, value, depth + 1)


def scalar(value: object) -> SafeString:
    if isinstance(value, Number):
        return format_html('<span class="tree__number">{}</span>', value)
    if isinstance(value, str):
        return format_html('<span class="tree__text">"{}"</span>', value)
    word = {None: "null", True: "true", False: "false"}[value]  # type: ignore[index]
    return format_html('<span class="tree__word">{}</span>', word)
