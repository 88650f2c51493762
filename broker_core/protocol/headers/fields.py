"""Readers of single ext fields, which arrive as strings.

For a missing mandatory field Java logs it, continues with null and answers SYSTEM_ERROR with a
NullPointerException. Trebuchet answers the same code with a sentence that names the field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

INT32_DIGITS_MAX = 11
INT64_DIGITS_MAX = 20
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def text(ext_fields: Mapping[str, str], key: str) -> str:
    """Return a mandatory field.

    Raises:
        RequestRefusedError: it is missing.
    """
    value = ext_fields.get(key)
    if value is None:
        raise _refusal(f"the request has no {key}")
    return value


def int32(
    ext_fields: Mapping[str, str],
    key: str,
    default: int | None = None,
    *,
    low: int = INT32_MIN,
    high: int = INT32_MAX,
) -> int:
    """Return an int field from low to high, default if it is missing.

    Raises:
        RequestRefusedError: not a number, out of range, or missing without a default.
    """
    return _integer(ext_fields, key, default, INT32_DIGITS_MAX, low, high)


def int64(
    ext_fields: Mapping[str, str],
    key: str,
    default: int | None = None,
    *,
    low: int = INT64_MIN,
    high: int = INT64_MAX,
) -> int:
    """Return a long field from low to high, default if it is missing.

    Raises:
        RequestRefusedError: not a number, out of range, or missing without a default.
    """
    return _integer(ext_fields, key, default, INT64_DIGITS_MAX, low, high)


def boolean(ext_fields: Mapping[str, str], key: str, *, default: bool = False) -> bool:
    """Return a boolean field by Java's rule: only "true", in any case, is true."""
    value = ext_fields.get(key)
    return default if value is None else value.lower() == "true"


def _integer(
    ext_fields: Mapping[str, str],
    key: str,
    default: int | None,
    digits_max: int,
    low: int,
    high: int,
) -> int:
    value = ext_fields.get(key)
    if value is None:
        if default is None:
            raise _refusal(f"the request has no {key}")
        return default
    # Java's parser accepts digits with one sign. Python's also accepts blanks and underscores, and
    # takes quadratic time in the length.
    if len(value) <= digits_max and value.isascii() and value.lstrip("+-").isdigit():
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if low <= number <= high:
            return number
    raise _refusal(f"the request's {key} is not a number from {low} to {high}: {value[:32]!r}")


def _refusal(remark: str) -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
