"""The JSON bodies of requests of ours, which Java never writes."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import ResponseCode

T = TypeVar("T")


def read_json(body: bytes, kind: type[T], what: str) -> T:
    """Return a body as a structure; an empty one has its defaults.

    Raises:
        RequestRefusedError: it is not such a structure; `what` names it for people.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (ValueError, RecursionError) as error:
        # Keys that are not UTF-8 raise UnicodeDecodeError, values that are not DecodeError.
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR, f"{what} cannot be read: {error}"
        ) from error
