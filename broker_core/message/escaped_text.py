r"""Search text that may contain escapes, as if it were unescaped.

Masking has to hide `\u002B49 170` as well as `+49 170`. A text is searched as is and with each kind
of escape decoded, also when escapes are nested (JSON in a JSON string). A match in any reading is
replaced at the corresponding place in the text; the rest of the text stays unchanged.

Kinds: JSON and JavaScript escapes, percent encoding, XML and HTML character references,
quoted-printable.
"""

from __future__ import annotations

import html
import quopri
import re
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Span = tuple[int, int]
Find = Callable[[str], Iterable[Span]]
"""Returns the spans of all matches in a text."""

DEPTH_MAX = 4
REPLACEMENT = "\ufffd"
SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}


class Kind(NamedTuple):
    """A kind of escape: the pattern of one or more in a row, and the text they decode to."""

    pattern: re.Pattern[str]
    meaning: Callable[[re.Match[str]], str]


def _of_code(code: int) -> str:
    is_character = code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF
    return chr(code) if is_character else REPLACEMENT


def _json_meaning(found: re.Match[str]) -> str:
    high, low, code, simple = found.group("high", "low", "code", "simple")
    if high is not None:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    return _of_code(int(code.strip("uUx{}"), 16)) if code else SIMPLE.get(simple, simple)


def _percent_meaning(found: re.Match[str]) -> str:
    code = found.group("code")
    if code is not None:
        return _of_code(int(code, 16))
    return unquote_to_bytes(found.group()).decode(errors="replace")


def _printable_meaning(found: re.Match[str]) -> str:
    return quopri.decodestring(found.group().encode()).decode(errors="replace")


KINDS = (
    Kind(
        re.compile(
            r"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
            r"|(?P<code>u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]{1,6}\}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2})"
            r"|(?P<simple>.))",
            re.DOTALL,
        ),
        _json_meaning,
    ),
    Kind(re.compile(r"(?:%[0-9a-fA-F]{2})+|%[uU](?P<code>[0-9a-fA-F]{4})"), _percent_meaning),
    Kind(
        re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"),
        lambda found: html.unescape(found.group()),
    ),
    Kind(re.compile(r"(?:=[0-9A-F]{2}|=\r?\n)+"), _printable_meaning),
)
QUOTE = re.compile(r'\\.|"', re.DOTALL)
PAIR = re.compile(r"\\.", re.DOTALL)
LINE_ANCHORS = {r"\A": "^", r"\z": "$"}
NUMBER = re.compile(r"-?[0-9][0-9.eE+-]*")


def anchored_to_lines(pattern: str) -> str | None:
    """Return an RE2 pattern with its anchors changed to line anchors, None if it has no anchors."""
    of_lines = PAIR.sub(lambda found: LINE_ANCHORS.get(found.group(), found.group()), pattern)
    return f"(?m:{of_lines})" if "^" in of_lines or "$" in of_lines else None


class Reading:
    """A text decoded from another, with the source position of each character."""

    def __init__(
        self, text: str, made_by: Callable[[], Places] | None, source: Reading | None
    ) -> None:
        self.text = text
        self._made_by = made_by
        self._source = source
        self._places: Places | None = None

    def span(self, begin: int, end: int) -> Span:
        """Return the span in the original text that corresponds to a span of this text."""
        if self._made_by is None or self._source is None:
            return begin, end
        if self._places is None:
            self._places = self._made_by()
        return self._source.span(self._places.begins[begin], self._places.ends[end - 1])


class Places(NamedTuple):
    """The start and end of the source of each character in a reading."""

    begins: Sequence[int]
    ends: Sequence[int]


def mask_matches(text: str, find: Find, mask: str, find_in_lines: Find | None = None) -> str:
    """Return a text with every match of `find` in any of its readings replaced by a mask.

    `find_in_lines` is for patterns anchored to the start or end of a value: it gets the JSON
    strings and numbers, one per line. If escapes are nested too deep to be decoded, the whole text
    is masked.
    """
    spans: set[Span] = set()
    readings, is_whole = readings_of(text)
    if not is_whole:
        return mask
    for reading in readings:
        spans.update(reading.span(*each) for each in find(reading.text) if each[0] < each[1])
        if find_in_lines is not None and (values := values_of(reading)) is not None:
            lines = find_in_lines(values.text)
            spans.update(values.span(*each) for each in lines if each[0] < each[1])
    return replace_spans(text, sorted(spans), mask)


def replace_spans(text: str, spans: Sequence[Span], mask: str) -> str:
    """Return a text with each span replaced; overlapping spans count as one."""
    parts: list[str] = []
    at = 0
    for begin, end in spans:
        if begin < at and parts:
            if end > at:
                at = end
            continue
        parts += [text[at:begin], mask]
        at = end
    return "".join([*parts, text[at:]])


@lru_cache(maxsize=2)
def readings_of(text: str) -> tuple[tuple[Reading, ...], bool]:
    """Return a text and its decoded forms, and whether these are complete.

    Nested escapes are decoded up to DEPTH_MAX, for each kind alone and for all kinds together: an
    apparent escape of another kind may be the text to find.
    """
    own = Reading(text, None, None)
    found = {text: own}
    is_whole = True
    for kinds in (*((kind,) for kind in KINDS), KINDS):
        reading = own
        for _depth in range(DEPTH_MAX):
            following = decode_escapes(reading, kinds)
            if following is reading:
                break
            reading = found.setdefault(following.text, following)
        else:
            is_whole = is_whole and decode_escapes(reading, kinds) is reading
    return tuple(found.values()), is_whole


def decode_escapes(reading: Reading, kinds: Sequence[Kind]) -> Reading:
    """Return a reading with escapes of these kinds decoded, itself if it has no escapes."""
    for kind in kinds:
        meant = kind.pattern.sub(kind.meaning, reading.text)
        if meant != reading.text:
            reading = Reading(meant, partial(_places, kind, reading.text), reading)
    return reading


def _places(kind: Kind, text: str) -> Places:
    begins: list[int] = []
    ends: list[int] = []
    at = 0
    for found in kind.pattern.finditer(text):
        begins += range(at, found.start())
        ends += range(at + 1, found.start() + 1)
        length = len(kind.meaning(found))
        begins += [found.start()] * length
        ends += [found.end()] * length
        at = found.end()
    begins += range(at, len(text))
    ends += range(at + 1, len(text) + 1)
    return Places(begins, ends)


def values_of(reading: Reading) -> Reading | None:
    """Return a text's JSON strings and numbers, one per line; None if there aren't any."""
    spans = list(_values(reading.text))
    if not spans:
        return None
    json = KINDS[0]
    lines, begins, ends = [], [], []
    for begin, end in spans:
        part = reading.text[begin:end]
        line = json.pattern.sub(json.meaning, part)
        places = _places(json, part)
        lines.append(line)
        begins += [begin + each for each in places.begins] + [end]
        ends += [begin + each for each in places.ends] + [end]
    return Reading("\n".join(lines) + "\n", lambda: Places(begins, ends), reading)


def _values(text: str) -> Iterator[Span]:
    """Yield the spans of string contents and, in JSON, of the numbers outside strings."""
    is_json = text.lstrip()[:1] in ("{", "[")
    opened: int | None = None
    at = 0
    for found in QUOTE.finditer(text):
        if found.group() != '"':
            continue
        if opened is None:
            if is_json:
                yield from (each.span() for each in NUMBER.finditer(text, at, found.start()))
            opened = found.end()
        else:
            yield opened, found.start()
            opened, at = None, found.end()
    if is_json and opened is None:
        yield from (each.span() for each in NUMBER.finditer(text, at))
