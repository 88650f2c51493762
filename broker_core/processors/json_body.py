"""JSON bodies of Trebuchet's own requests, which Java never writes."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import ResponseCode

T = TypeVar("T")


def read_json(body: bytes, kind: type[T], what: str) -> T:
    """Decode a body into a struct; an empty body gives the defaults.

    Raises:
        RequestRefusedError: the body doesn't match; `what` describes it for people.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (ValueError, RecursionError) as error:
        # Invalid UTF-8 raises UnicodeDecodeError in keys and DecodeError in values.
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR, f"{what} cannot be read: {error}"
        ) from error
