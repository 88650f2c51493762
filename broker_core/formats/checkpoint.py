"""The checkpoint page: the store time up to which each kind of file is durable.

Big-endian, 4096 bytes, zeros after the fields::

     0                 8                 16               24                32               40
    +-----------------+-----------------+----------------+-----------------+----------------+
    | physic msg time | logics msg time | index msg time | master flushed* | confirm offset*|
    +-----------------+-----------------+----------------+-----------------+----------------+
                                                           * 5.x

Source: store/StoreCheckpoint.java (4.9.8, 5.3.3).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

PAGE_SIZE = 4096
SLACK_MS = 3000
_FIELDS = struct.Struct(">qqqqq")


class Checkpoint(NamedTuple):
    """Store timestamps in milliseconds; the last two are 5.x offsets that are only preserved."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """The log and the ConsumeQueues are durable for all messages stored before this time."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SLACK_MS)


def decode(page: bytes) -> Checkpoint:
    """Return the fields; all are zero if the page is missing or short."""
    if len(page) < _FIELDS.size:
        return Checkpoint()
    return Checkpoint(*_FIELDS.unpack_from(page))


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the page."""
    return _FIELDS.pack(*checkpoint).ljust(PAGE_SIZE, b"\0")
