"""The tidy rule that the compiled code states no constant that a Python module states.

`broker_core/native/constants.py` has the constants that both need. The rule finds its texts, its
names, and its numbers where these can't be anything else: conspicuous numbers and record offsets.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker_core.message.names import PROPERTY_NAMES
from broker_core.native.constants import NUMBERS, TEXTS
from broker_core.trace.event import JSON_NAMES
from tests.support.tidy import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.sources import Source

CONSPICUOUS_MIN = 256
"""Smaller numbers are often sizes or characters, and powers of two are often limits."""
BLOCK = re.compile(r'"""(?:.|\n)*?"""|/\*(?:.|\n)*?\*/')
COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|#(?!define).*""")
TEXT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""")
NUMBER = re.compile(r"(?<![\w.])(0x[0-9A-Fa-f]+|\d+)U?L*(?![\w.])")
DEFINITION = re.compile(r"^ *(?:cdef )?(?:[a-z]\w*[ *]+)*([A-Z]\w*) = -?\d")
AT_OFFSET = re.compile(r"big(?:32|64)\((\w+ \+ )+[1-9]\d*\)")
JSON_NAME = re.compile(r'"(\w+)":')
SEPARATORS = "\x01\x02"
# A field's name such as "flag" is an ordinary word.
WORDS = {
    *PROPERTY_NAMES,
    *(
        text
        for name, text in TEXTS.items()
        if name.startswith("PROPERTY") or not (text.isalpha() and text.islower())
    ),
}
CONSPICUOUS = {
    value for value in NUMBERS.values() if value >= CONSPICUOUS_MIN and value & (value - 1)
}
ADVICE = "import it from constants.pxd or from the Python module"


def restated_constants(source: Source) -> Iterator[Finding]:
    """Yield texts, names, numbers and offsets that `constants.py` has."""
    text = BLOCK.sub(lambda match: "\n" * match[0].count("\n"), source.text)
    for line, content in enumerate(text.splitlines(), start=1):
        code = COMMENT.sub(lambda match: match[1] or "", content)
        texts = [_unescaped(match[1][1:-1]) for match in TEXT.finditer(code)]
        for subject in (*_words(texts), *_numbers(TEXT.sub('""', code))):
            problem = f"{subject} duplicates a Python constant: {ADVICE}"
            yield Finding(source.path, line, subject, problem)


def _unescaped(text: str) -> str:
    return re.sub(r"\\x(..)", lambda match: chr(int(match[1], 16)), text).replace("\\", "")


def _words(texts: list[str]) -> Iterator[str]:
    for text in texts:
        names = [name for name in JSON_NAME.findall(text) if name in JSON_NAMES.values()]
        if not names and (word := text.strip(SEPARATORS)) in WORDS:
            names = [word]
        yield from names


def _numbers(code: str) -> Iterator[str]:
    for match in DEFINITION.finditer(code):
        if match[1] in NUMBERS:
            yield match[1]
    for match in AT_OFFSET.finditer(code):
        yield match[0]
    for match in NUMBER.finditer(code):
        if int(match[1], 0) in CONSPICUOUS:
            yield match[1]
