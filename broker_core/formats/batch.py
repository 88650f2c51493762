"""The body of a batch: messages in the form that SEND_BATCH_MESSAGE carries.

Big-endian, one after the other::

    total size i4 | magic i4 | body crc i4 | flag i4 | body size i4 | body |
        properties size i2 | properties

Magic and crc are 0 and ignored.

Source: common/message/MessageDecoder.java encodeMessage, store/CommitLog.java (4.9.8).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from broker_core.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Iterator

_unpack_head = struct.Struct(">i8xii").unpack_from
HEAD_SIZE = 20
FLAG_POSITION, BODY_SIZE_POSITION = 12, 16
_unpack_size = struct.Struct(">i").unpack_from
MESSAGE_BYTES_MIN = HEAD_SIZE + 2
_unpack_properties_size = struct.Struct(">h").unpack_from


def decode(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (flag, body, properties) of the messages of a batch.

    Raises:
        CorruptRecordError: the sizes are inconsistent.
    """
    position, end = 0, len(data)
    while position < end:
        try:
            total_size, flag, body_size = _unpack_head(data, position)
            body_from = position + HEAD_SIZE
            body_to = body_from + max(body_size, 0)
            (properties_size,) = _unpack_properties_size(data, body_to)
        except struct.error as error:
            raise CorruptRecordError("batch", position, "ends within a message") from error
        properties_from = body_to + 2
        following = properties_from + properties_size
        if (
            body_size < 0
            or properties_size < 0
            or total_size != following - position
            or following > end
        ):
            raise CorruptRecordError("batch", position, "sizes do not add up")
        yield flag, data[body_from:body_to], data[properties_from:following]
        position = following


def has_more_messages(data: bytes, count: int) -> bool:
    """Return whether a batch has more messages than this, according to its size fields."""
    position, end = 0, len(data)
    while position <= end - HEAD_SIZE:
        if not count:
            return True
        count -= 1
        (size,) = _unpack_size(data, position)
        if size < HEAD_SIZE:
            return False
        position += size
    return False


def joined_properties(item: bytes, batch: bytes) -> bytes:
    r"""Return an item's properties followed by the batch's, with \x02 between them if needed."""
    if item and batch and item[-1] != 2:
        return item + b"\x02" + batch
    return item + batch
