"""Hides the matches of a pattern in a text, including text that is written with escapes.

Arrow's RE2 has no call that returns match positions, so RE2 inserts marks and this module counts
them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.message.escaped_text import anchored_to_lines, mask_matches, readings_of

if TYPE_CHECKING:
    from broker_core.message.escaped_text import Find, Span

MASK = "***"
MAY_BE_ESCAPED = r"\\|%[0-9A-Fa-fUu]|&[#A-Za-z]|=[0-9A-F\r\n]"
"""Matches any text with an escape, and few others."""
# Noncharacters of Unicode, which no text for interchange contains.
MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]


def without_matches(pattern: str, text: str) -> str:
    """Return a text with all matches of a pattern replaced by a mask, escaped or not.

    Raises:
        pa.ArrowInvalid: RE2 doesn't accept the pattern.
    """
    in_lines = anchored_to_lines(pattern)
    return mask_matches(text, finder(pattern), MASK, None if in_lines is None else finder(in_lines))


def each_without_matches(texts: pa.Array, patterns: pa.Array) -> pa.Array:
    """Return texts with all matches of the patterns replaced; every text has the same patterns."""
    if not len(texts):
        return texts
    pattern = patterns[0].as_py()
    shown = pc.replace_substring_regex(texts, pattern=pattern, replacement=MASK)
    looked_into = pc.match_substring_regex(texts, pattern=MAY_BE_ESCAPED)
    if anchored_to_lines(pattern) is None and not pc.any(looked_into).as_py():
        return shown
    # A mask can break an escape, so read the unmasked text.
    found = [
        masked
        if text is None or not may_hide_more(pattern, text)
        else without_matches(pattern, text)
        for text, masked in zip(texts.to_pylist(), shown.to_pylist(), strict=True)
    ]
    return pa.array(found, pa.string())


def may_hide_more(pattern: str, text: str) -> bool:
    """Return whether a text has escapes that may hide further matches."""
    return anchored_to_lines(pattern) is not None or len(readings_of(text)[0]) > 1


@lru_cache(maxsize=256)
def finder(pattern: str) -> Find:
    return lambda text: spans_of(pattern, text)


def spans_of(pattern: str, text: str) -> list[Span]:
    """Return the spans that a pattern matches."""
    begin, end, *_others = [*(mark for mark in MARKS if mark not in text), "", ""]
    if not end:
        # The text contains every mark character, so hide all of it.
        return [(0, len(text))]
    marked = pc.replace_substring_regex(
        pa.array([text]), pattern=pattern, replacement=f"{begin}\\0{end}"
    )[0].as_py()
    first, *others = marked.split(begin)
    spans, at = [], len(first)
    for piece in others:
        match, _end, rest = piece.partition(end)
        spans.append((at, at + len(match)))
        at += len(match) + len(rest)
    return spans
