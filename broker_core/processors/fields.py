"""Fields of a request's header, read with a refusal that names what is missing or wrong.

Differs: the original answers a missing mandatory field with a NullPointerException's text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

LONG_MIN = -(1 << 63)
LONG_MAX = (1 << 63) - 1
_NUMBER = re.compile(r"[+-]?\d{1,19}", re.ASCII)


def text(fields: Mapping[str, str], name: str) -> str:
    """Return a mandatory text."""
    value = fields.get(name)
    if value is None:
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"the request has no {name}")
    return value


def integer(
    fields: Mapping[str, str],
    name: str,
    default: int | None = None,
    *,
    low: int = LONG_MIN,
    high: int = LONG_MAX,
) -> int:
    """Return a whole number between low and high; without a default it is mandatory."""
    value = fields.get(name)
    if value is None and default is not None:
        return default
    value = text(fields, name)
    if not _NUMBER.fullmatch(value) or not low <= int(value) <= high:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"{name} {value[:40]!r} is not a whole number from {low} to {high}",
        )
    return int(value)


def boolean(fields: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Return Java's reading of a boolean: true in any case, everything else is false."""
    value = fields.get(name)
    return default if value is None else value.casefold() == "true"
