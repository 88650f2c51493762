"""Values of a filter with Java's semantics: kinds, conversion from strings, comparison.

Source: filter/expression/ComparisonExpression.java __compare (4.9.7); java.lang.Integer, Long,
Double valueOf.
"""

from __future__ import annotations

import math
import re
from enum import IntEnum
from typing import NamedTuple

NUMBER_CHARS_MAX = 512
"""A longer property doesn't count as a number, because parsing takes quadratic time."""
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MAX = 2**63 - 1

_DECIMAL_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fFdD]?)"
)
_HEX_DOUBLE = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]++\.?|[0-9a-fA-F]*+\.[0-9a-fA-F]++)[pP][+-]?[0-9]++[fFdD]?"
)
# The characters that String.trim() removes.
_BLANK = "".join(map(chr, range(0x21)))


class EvaluationError(Exception):
    """Java throws here: the message doesn't match, regardless of the rest of the expression."""


class NumberKind(IntEnum):
    """Kinds of numbers, in the order in which they are widened."""

    INT = 0
    LONG = 1
    DOUBLE = 2


_RANGES = {NumberKind.INT: (INT_MIN, INT_MAX), NumberKind.LONG: (-(2**63), LONG_MAX)}


class Number(NamedTuple):
    """A number with its Java class, which determines how strings compared with it are parsed."""

    kind: NumberKind
    value: int | float


Value = str | bool | Number | None


def whole_number(value: int) -> Number:
    """Return an Integer if the value fits, else a Long."""
    return Number(NumberKind.INT if INT_MIN <= value <= INT_MAX else NumberKind.LONG, value)


def negate(number: Number) -> Number:
    """Return the number with the other sign, of the same kind."""
    return Number(number.kind, -number.value)


def compare(left: str | bool | Number, right: str | bool | Number) -> int:
    """Return a number below, equal to or above 0; below 0 also if the values aren't comparable.

    Raises:
        EvaluationError: Java would throw.
    """
    if isinstance(left, Number):
        if isinstance(right, Number):
            return _compare_numbers(left, right)
        if isinstance(right, str):
            return _compare_numbers(left, read_number(right, left.kind))
        return -1
    if isinstance(left, bool):
        if isinstance(right, bool):
            return left - right
        if isinstance(right, str):
            # RocketMQ casts the wrong one of the two.
            raise EvaluationError("a Boolean is not a String")
        return -1
    if isinstance(right, Number):
        return _compare_numbers(read_number(left, right.kind), right)
    if isinstance(right, bool):
        return (left.lower() == "true") - right
    return (left > right) - (left < right)


def compare_as_doubles(left: str, right: str) -> int:
    """Compare two strings as numbers.

    Raises:
        EvaluationError: a string isn't a number.
    """
    return _compare_doubles(read_double(left), read_double(right))


def read_number(text: str, kind: NumberKind) -> Number:
    """Parse a string as a number.

    Raises:
        EvaluationError: the string isn't a number of that kind.
    """
    if kind is NumberKind.DOUBLE:
        return Number(kind, read_double(text))
    return Number(kind, read_whole(text, kind))


def read_whole(text: str, kind: NumberKind) -> int:
    """Return Integer.valueOf(text) or Long.valueOf(text).

    Raises:
        EvaluationError: the string isn't a whole number or is out of range.
    """
    digits = text[1:] if text.startswith(("+", "-")) else text
    # Java accepts the decimal digits of all scripts that are one UTF-16 unit.
    if (
        digits.isdecimal()
        and len(text) <= NUMBER_CHARS_MAX
        and (text.isascii() or max(digits) <= "\uffff")
    ):
        value = int(text)
        low, high = _RANGES[kind]
        if low <= value <= high:
            return value
    raise EvaluationError("not a whole number in range")


def read_double(text: str) -> float:
    """Return Double.valueOf(text).

    Raises:
        EvaluationError: the string isn't a number.
    """
    if len(text) <= NUMBER_CHARS_MAX:
        trimmed = text.strip(_BLANK)
        if _DECIMAL_DOUBLE.fullmatch(trimmed):
            return float(trimmed.rstrip("fFdD") if trimmed[-1] in "fFdD" else trimmed)
        if _HEX_DOUBLE.fullmatch(trimmed):
            return _hex_double(trimmed.rstrip("fFdD"))
    raise EvaluationError("not a number")


def _hex_double(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def _compare_numbers(left: Number, right: Number) -> int:
    a, b = left.value, right.value
    if left.kind is NumberKind.DOUBLE or right.kind is NumberKind.DOUBLE:
        return _compare_doubles(float(a), float(b))
    return (a > b) - (a < b)


def _compare_doubles(a: float, b: float) -> int:
    """Compare like Double.compareTo: NaN is greatest and equals itself, -0.0 is below 0.0."""
    if a < b:
        return -1
    if a > b:
        return 1
    if a == b and a != 0:
        return 0
    rank_a = (math.isnan(a), math.copysign(1.0, a) if a == 0 else 0.0)
    rank_b = (math.isnan(b), math.copysign(1.0, b) if b == 0 else 0.0)
    return (rank_a > rank_b) - (rank_a < rank_b)
