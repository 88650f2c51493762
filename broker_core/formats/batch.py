"""The body of a batch: messages, each in the form that SEND_BATCH_MESSAGE carries.

Big-endian, one after the other::

    total size i4 | magic i4 | body crc i4 | flag i4 | body size i4 | body |
        properties size i2 | properties

Magic and crc are zeros and ignored.

Source: common/message/MessageDecoder.java encodeMessage, store/CommitLog.java (4.9.8).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = struct.Struct(">iiiii")
_PROPERTIES_SIZE = struct.Struct(">h")


class BatchItem(NamedTuple):
    """One message of a batch; views into the batch's body."""

    flag: int
    body: memoryview
    properties: memoryview


def decode(data: bytes | memoryview) -> Iterator[BatchItem]:
    """Yield the messages of a batch.

    Raises:
        CorruptRecordError: sizes do not add up.
    """
    view = memoryview(data)
    position = 0
    while position < len(view):
        try:
            total_size, _, _, flag, body_size = _HEAD.unpack_from(view, position)
            body_from = position + _HEAD.size
            (properties_size,) = _PROPERTIES_SIZE.unpack_from(view, body_from + max(body_size, 0))
        except struct.error as error:
            raise CorruptRecordError("batch", position, "ends within a message") from error
        properties_from = body_from + body_size + _PROPERTIES_SIZE.size
        end = properties_from + properties_size
        if body_size < 0 or properties_size < 0 or total_size != end - position or end > len(view):
            raise CorruptRecordError("batch", position, "sizes do not add up")
        yield BatchItem(flag, view[body_from : body_from + body_size], view[properties_from:end])
        position = end


def joined_properties(item: bytes | memoryview, batch: bytes) -> bytes:
    r"""Return an item's properties followed by the batch's, with \x02 between them if needed."""
    own = bytes(item)
    if own and batch and not own.endswith(b"\x02"):
        return own + b"\x02" + batch
    return own + batch
