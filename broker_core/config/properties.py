"""Java properties text: reading it, and changing values in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The part after the key always matches, so the pattern never backtracks.
_PAIR = re.compile(r"((?:[^\\=:\s]+|\\.)+)\s*[=:\s]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_PLAIN = re.compile("[\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_PLAIN_IN_KEY = re.compile("[\\\\=:#!\\s\x00-\x1f\x7f-\x9f]")


def parse_properties(text: str) -> dict[str, str]:
    """Read Java properties text: comments, separators (`=`, `:`, blank), escapes, continuations."""
    table: dict[str, str] = {}
    for _, line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        if match:
            table[_unescape(match[1])] = _unescape(match[2]).strip()
    return table


def replace_values(text: str, table: Mapping[str, str]) -> str:
    """Return the text with changed values; comments and order are kept, new keys are appended."""
    left = dict(table)
    lines: list[str] = []
    for natural, line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        key = _unescape(match[1]) if match else ""
        if key not in table or not match:
            lines += natural
        elif key in left:
            lines.append(f"{_escape_key(key)}={_escape(left.pop(key))}")
    if lines and _is_continued(lines[-1]):
        # Otherwise the next line would continue it.
        lines.append("")
    lines += [f"{_escape_key(key)}={_escape(value)}" for key, value in left.items()]
    return "\n".join(lines) + "\n"


def _logical_lines(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield the physical lines of each logical line, and that line; "" for a comment."""
    natural: list[str] = []
    pieces: list[str] = []
    is_begun = False
    for raw in text.splitlines():
        natural.append(raw)
        piece = raw.lstrip()
        if not is_begun and piece[:1] in ("#", "!", ""):
            yield natural, ""
            natural = []
            continue
        if _is_continued(piece):
            pieces.append(piece[:-1])
            is_begun = is_begun or len(piece) > 1
            continue
        yield natural, "".join([*pieces, piece])
        natural, pieces, is_begun = [], [], False
    if natural:
        yield natural, "".join(pieces)


def _is_continued(line: str) -> bool:
    """Return whether a line ends in an unescaped backslash; comments never do."""
    if line.lstrip()[:1] in ("#", "!"):
        return False
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _CONTROL.get(match[2], match[2])

    found = _ESCAPE.sub(character, text)
    if _SURROGATE.search(found):
        # Java writes a character beyond 16 bits as two surrogates; a single one isn't a character.
        found = found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return found


def _escape(value: str) -> str:
    """Return a value escaped for the file; characters that would end the line are escaped, too."""
    return _NOT_PLAIN.sub(_escaped, value)


def _escape_key(key: str) -> str:
    return _NOT_PLAIN_IN_KEY.sub(_escaped, key)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    return f"\\u{ord(character):04x}" if character < " " or character > "~" else f"\\{character}"
