"""Lexer of filter expressions: one token at a time, in time linear in the text.

The lexer produces a token when the parser asks for it.

Source: filter/parser/SelectorParser.jj (5.3.3).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

EXPRESSION_CHARS_MAX = 8192
"""RocketMQ has no limit. An IN of 500 values of ten characters fits."""
QUOTED_CHARS_MAX = 40
HINTS = {
    "LIKE": "LIKE isn't supported; use CONTAINS, STARTSWITH or ENDSWITH",
    "!=": "write <> instead of !=",
    "==": "write = instead of ==",
    "&&": "write AND instead of &&",
    "||": "write OR instead of ||",
    '"': "put text in single quotes",
}
"""The rejected text of other SQL dialects, with its replacement."""


class TokenKind(Enum):
    """The kind of a token; keywords and signs are named by their text."""

    STRING = "string"
    DECIMAL = "whole number"
    FLOAT = "number"
    NAME = "name"
    KEYWORD = "keyword"
    SIGN = "sign"
    END = "end"


class Token(NamedTuple):
    """A token with its text; keywords are in upper case, strings without their quotes."""

    kind: TokenKind
    text: str
    position: int


KEYWORDS = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})
_WORDS = (TokenKind.KEYWORD, TokenKind.SIGN)
# A plain dictionary, because an enum's own lookup calls Python code for each token.
_KINDS = dict(TokenKind.__members__)

# Quantifiers are possessive wherever the next character decides, so nothing is tried twice. A
# comment that doesn't end with its line counts as two minus signs, and no digits or L may follow a
# 0. Groups with possessive repeats are atomic instead: before Python 3.11.5 a possessive group
# keeps the characters that its last, failed iteration consumed.
_SKIPPED = re.compile(
    r"(?>(?:[ \t\n\r\f]|--[^\n\r]*+(?:\r\n?|\n)|/\*[^*]*+\*(?>(?:\*|[^*/][^*]*+\*)*)/)*)"
)
_SKIPPED_BEGIN = frozenset((*" \t\n\r\f-/", ""))
"""First characters of skipped text; "" is the end of the text."""
_TOKEN = re.compile(
    r"""
      (?P<STRING>'(?:''|[^'])*+')
    | (?P<FLOAT>[0-9]++\.[0-9]*+(?:E[+-]?[0-9]++)?|\.[0-9]++(?:E[+-]?[0-9]++)?|[0-9]++E[+-]?[0-9]++)
    | (?P<DECIMAL>0|[1-9][0-9]*+L?)
    | (?P<NAME>[A-Z_$][A-Z0-9_$]*+)
    | (?P<SIGN><>|<=|>=|[<>=(),+-])
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


class Lexer:
    """The tokens of one text. Any thread."""

    __slots__ = ("_next", "_position", "_text")

    def __init__(self, text: str) -> None:
        if len(text) > EXPRESSION_CHARS_MAX:
            raise ValueError(
                f"the expression has {len(text)} characters, more than {EXPRESSION_CHARS_MAX}"
            )
        self._text = text
        self._position = 0
        self._next: Token | None = None

    def peek(self) -> Token:
        """Return the next token without consuming it.

        Raises:
            ValueError: no token starts there.
        """
        if self._next is None:
            self._next = self._read()
        return self._next

    def take(self) -> Token:
        """Consume the next token and return it.

        Raises:
            ValueError: no token starts there.
        """
        token = self.peek()
        self._next = None
        return token

    def take_if(self, text: str) -> bool:
        """Consume the next token if it is this keyword or sign; return whether it was."""
        token = self._next
        if token is None:
            token = self._next = self._read()
        if token.text != text or token.kind not in _WORDS:
            return False
        self._next = None
        return True

    def skip_unended_comment(self) -> None:
        """Skip a comment that ends with the text instead of a line.

        Only right after a complete expression: elsewhere RocketMQ reads two minus signs there.
        """
        token = self.peek()
        if self._text.startswith("--", token.position):
            self._position = len(self._text)
            self._next = None

    def unexpected(self, token: Token, expected: str) -> ValueError:
        """Return the error for a token in the wrong place, with its position and text."""
        return self._refusal(token.position, f"expected {expected}")

    def _refusal(self, position: int, reason: str) -> ValueError:
        text = self._text
        rest = text[position : position + QUOTED_CHARS_MAX]
        more = "..." if len(text) > position + QUOTED_CHARS_MAX else ""
        found = f"{rest!r}{more}" if rest else "end"
        # Of ==, the second = is the first unexpected sign.
        for start in (position, max(position - 1, 0)):
            for sign, hint in HINTS.items():
                if text[start : start + len(sign)].upper() == sign:
                    reason = hint
        return ValueError(f"unexpected {found} at character {position + 1}: {reason}")

    def _read(self) -> Token:
        start = self._position
        if self._text[start : start + 1] in _SKIPPED_BEGIN:
            skipped = _SKIPPED.match(self._text, start)
            start = skipped.end() if skipped else start
            if start == len(self._text):
                self._position = start
                return Token(TokenKind.END, "", start)
        match = _TOKEN.match(self._text, start)
        if match is None or match.lastgroup is None:
            is_quote = self._text[start] == "'"
            reason = "the closing quote is missing" if is_quote else "not a word, number or sign"
            raise self._refusal(start, reason)
        self._position = match.end()
        kind, text = _KINDS[match.lastgroup], match[0]
        if kind is TokenKind.STRING:
            text = text[1:-1].replace("''", "'")
        elif kind is TokenKind.NAME and (upper := text.upper()) in KEYWORDS:
            kind, text = TokenKind.KEYWORD, upper
        return Token(kind, text, start)
