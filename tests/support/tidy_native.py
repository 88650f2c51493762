"""The tidy rules for the compiled code, whose syntax `ast` can't read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.support.tidy import BANNER, FUNCTION_LINES_MAX, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.sources import Source

COLUMNS_MAX = 100
PARAMETERS_MAX = 10
"""Without self; the same limit as ruff's max-args for Python."""
FUNCTION = re.compile(
    r"^( *)(?:cdef|cpdef|def) (?!class )[^=\n(]*?(\w+)\(([^)]*)\)[^\n]*:\n", re.MULTILINE
)
CLASS = re.compile(r"^cdef class (\w+)", re.MULTILINE)
COMMENT = re.compile(r"^ *(#.*)$", re.MULTILINE)
BEGINNING = re.compile(r'(?:# cython:.*\n)*"""\S|/\* \S')


def long_native_lines(source: Source) -> Iterator[Finding]:
    for number, line in enumerate(source.lines, start=1):
        if len(line) > COLUMNS_MAX:
            what = f"the line has {len(line)} columns, more than {COLUMNS_MAX}: break it"
            yield Finding(source.path, number, "line", what)


def native_banners(source: Source) -> Iterator[Finding]:
    """Yield comments that separate sections with a line of characters."""
    for match in COMMENT.finditer(source.text):
        if BANNER.match(match[1]):
            what = f"banner comment {match[1][:40]!r}: delete it or split the module there"
            yield Finding(source.path, _line(source, match.start(1)), "banner", what)


def undocumented_native_modules(source: Source) -> Iterator[Finding]:
    if not BEGINNING.match(source.text):
        what = "the file doesn't begin with a docstring or comment: describe its content"
        yield Finding(source.path, 1, "module", what)


def long_native_functions(source: Source) -> Iterator[Finding]:
    """Yield functions above the length limit, from the definition to the last line."""
    for name, match in _functions(source):
        number = _line(source, match.start())
        indent = len(match[1])
        last = number
        for i in range(_line(source, match.end()), len(source.lines) + 1):
            line = source.lines[i - 1]
            if line.strip() and len(line) - len(line.lstrip()) <= indent:
                break
            if line.strip():
                last = i
        lines = last - number + 1
        if lines > FUNCTION_LINES_MAX:
            what = f"{name} has {lines} lines, more than {FUNCTION_LINES_MAX}: extract functions"
            yield Finding(source.path, number, name, what)


def wide_native_constructors(source: Source) -> Iterator[Finding]:
    """Yield constructors with too many parameters."""
    for name, match in _functions(source):
        number = len([each for each in match[3].split(",") if each.strip() not in ("", "*")]) - 1
        if match[2] == "__init__" and number > PARAMETERS_MAX:
            what = (
                f"{name} has {number} parameters, more than {PARAMETERS_MAX}: group them in a class"
            )
            yield Finding(source.path, _line(source, match.start()), name, what)


def _functions(source: Source) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield each function with its dotted name."""
    for match in FUNCTION.finditer(source.text):
        above = ""
        if match[1]:
            classes = CLASS.findall(source.text[: match.start()])
            above = f"{classes[-1]}." if classes else ""
        yield above + match[2], match


def _line(source: Source, position: int) -> int:
    return source.text.count("\n", 0, position) + 1
