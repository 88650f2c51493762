"""Count the constructions that make the project's English hard to read, per 1,000 words.

The text is docstrings and comments in code, and Markdown outside code blocks. Strings that the
console shows have their own tests. `CONSTRUCTIONS` names each pattern and how to rewrite it.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

# Name of a construction and how to rewrite it -> pattern.
CONSTRUCTIONS = {
    '"none" as a noun: say what is missing': (
        r"\bof none\b|(?<![Tt]here )\b(?:is|are|was|were) none\b"
        r"|\bnone (?:that|is|are|was|were)\b|\bor none\b"
    ),
    '"is no" and a noun: write "isn\'t a"': (
        r"(?<![Tt]here )\b(?:is|are|was|were) no "
        r"(?!longer|more|less|fewer|one\b|such|problem|[a-z]+er\b)[a-z]+"
    ),
    '"no more" or "any more" as an adverb: write "no longer"': (
        r"\bno more\b(?=[.,;:)]|$)|\b(?:runs?|is|are|holds?) no more\b(?! than)"
        r"|\bany more\b(?=[.,;:)]|$)"
    ),
    "a sentence that starts with a pronoun: name the subject": (
        r"(?:^|[.!?] )(?:Its|Their|Of none|Those|Whoever|Whatever|Whose)\b"
    ),
    '"what" as the subject of a sentence: name the subject': (
        r"(?:^|[.!?] )What (?!if\b)[^?.]*(?!\?)(?:\.|$)"
    ),
    'a clause with "what" as a noun: name the thing': (
        r"\bwhat (?:is|are|was|were|has|had|have|came|comes|stands|lies|follows|goes|went|became"
        r"|it|they|he|an?|the|each|every|nobody|no|one|another|this|that|its|their|may|can|must"
        r"|of|in|on)\b"
    ),
    "an archaism: use an everyday word": (
        r"\b(?:whoever|whosoever|wherefore|whereof|thereof|therein|whence|lest|anew|aforesaid"
        r"|hitherto|thither|forsakes?|forsaken|beside)\b"
    ),
    '"stand" or "lie": write "be" or "be stored"': (
        r"\b(?:stands?|stood|standing|lies?|lay|lying) (?:in|at|on|beside|before|behind|between"
        r"|there|here|under|within|above|below|after|next|by)\b"
    ),
    '"come": write "arrive", "be" or "happen"': (
        r"\b(?:comes?|came) (?:to be|around|of|in between)\b"
    ),
    '"tell": write "report", "say" or "show"': (
        r"\b(?:tells?|told|telling) (?:what|who|of|the|its|it|a|an|nothing|no|them|by)\b"
        r"|\b(?:is|are|was|were|be|been) told\b"
    ),
    '"take": write "accept", "remove" or "read"': (
        r"\b(?:is|are|was|were|be|been|being) taken\b|\btakes? (?:it|them|what|back|nothing)\b"
    ),
    '"know": write "support", "have" or "record"': (
        r"\b(?:knows?|known|knew) (?:no|nothing|of|what|none)\b"
    ),
    '"be seen to" or "looked after": write "handle"': r"\b(?:seen|looked) (?:to|after)\b",
    '"one" or "those" with a clause: repeat the noun': (
        r"\b(?:one|those|ones) (?:that|which|who|whose)\b"
    ),
}
PATTERN = re.compile(
    "|".join(f"(?P<c{number}>{pattern})" for number, pattern in enumerate(CONSTRUCTIONS.values()))
)
NAMES = tuple(CONSTRUCTIONS)
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
QUOTED = re.compile(r"`[^`\n]*`|https?://\S+")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
# A whole line, or text after code and two spaces; tool directives aren't prose.
COMMENT = re.compile(
    r"^(?:[^\n]*?\S {2,}| *)# ?(?!type:|noqa|pragma|fmt:|mypy:|cython:)(.*)$", re.MULTILINE
)
TRIPLE_QUOTED = re.compile(r'"""(.*?)"""', re.DOTALL)
# A blank line, a list item, a table row or a heading starts a new paragraph.
PARAGRAPH = re.compile(r"\n(?=\s*\n|\s*[-*|#>]|\s*\d+\.)")
COMPILED = {".pyx", ".pxi", ".pxd"}
SUFFIXES = {".py", ".md", *COMPILED}
GENERATED = {"migrations", "built", "__pycache__", "artifacts"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Hit:
    """One construction that a text contains."""

    path: str
    line: int
    construction: str
    words: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.words!r}: {self.construction}"


@dataclass(slots=True)
class Measure:
    """The words of some files and the constructions found in them."""

    words: int
    hits: list[Hit]

    @property
    def rate(self) -> float:
        """Constructions per 1,000 words."""
        return 1000 * len(self.hits) / max(1, self.words)


def measure(root: Path, files: Iterable[Path]) -> Measure:
    """Count words and constructions in Python, Cython and Markdown files below `root`."""
    total = Measure(0, [])
    for file in files:
        path = file.relative_to(root).as_posix()
        for line, text in passages(file):
            plain = " ".join(QUOTED.sub("x", text).split())
            total.words += len(WORD.findall(plain))
            for name, words in constructions_in(plain).items():
                total.hits += (Hit(path, line, name, each) for each in words)
    return total


def constructions_in(text: str) -> dict[str, list[str]]:
    """Return the constructions in a text of one line, each with the words that match it."""
    found: dict[str, list[str]] = {}
    for match in PATTERN.finditer(text):
        name = NAMES[int(str(match.lastgroup)[1:])]
        found.setdefault(name, []).append(match[0].strip(". ")[:80])
    return found


def files_below(path: Path) -> Iterator[Path]:
    """Yield the files with prose at or below a path."""
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*")):
        if file.suffix in SUFFIXES and not GENERATED.intersection(file.parts):
            yield file


def passages(file: Path) -> Iterator[tuple[int, str]]:
    """Yield each passage of prose in a file with the line it starts on."""
    text = file.read_text()
    if file.suffix == ".md":
        yield from paragraphs(text)
        return
    yield from comments(text)
    if file.suffix in COMPILED:
        for match in TRIPLE_QUOTED.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, match[1]
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node, clean=False)):
            yield node.body[0].lineno, docstring


def paragraphs(markdown: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs, list items and table rows of a document, without its code blocks."""
    line = 1
    for part in PARAGRAPH.split(FENCE.sub(lambda block: "\n" * block[0].count("\n"), markdown)):
        yield line, re.sub(r"\s\|\s|^\s*[-*|#>]+\s", " ", part)
        line += part.count("\n") + 1


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield comments, with those on successive lines joined."""
    first, last, joined = 0, -1, ""
    line, position = 1, 0
    for match in COMMENT.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        if line != last + 1:
            if joined:
                yield first, joined
            first, joined = line, ""
        joined = f"{joined} {match[1]}".strip()
        last = line
    if joined:
        yield first, joined
