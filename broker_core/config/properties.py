"""Java properties text: reading it, and changing values in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAIR = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Read Java properties text: comments, `=`, `:` or blank between, escapes, continued lines."""
    table: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.lstrip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        match = _PAIR.fullmatch(line)
        if match:
            table[_unescape(match[1])] = _unescape(match[2]).strip()
    return table


def edited(text: str, table: Mapping[str, str]) -> str:
    """Return the text with other values; comments and order stay, new keys come last."""
    left = dict(table)
    lines = []
    for line in text.splitlines():
        match = _PAIR.fullmatch(line.strip()) if line.strip()[:1] not in ("#", "!", "") else None
        key = _unescape(match[1]) if match else ""
        if key in table:
            if key in left:
                lines.append(f"{key}={left.pop(key)}")
        else:
            lines.append(line)
    lines += [f"{key}={value}" for key, value in left.items()]
    return "\n".join(lines) + "\n"


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _CONTROL.get(match[2], match[2])

    return _ESCAPE.sub(character, text)
