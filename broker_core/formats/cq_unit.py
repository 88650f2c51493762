"""The ConsumeQueue unit: the location of message number n of a queue.

Big-endian, unit n at byte 20 * n of the queue::

     0                8        12               20
    +----------------+--------+----------------+
    | offset in log  |  size  |   tags code    |
    +----------------+--------+----------------+

The tags code is Java's hash of the TAGS property, sign-extended; in SCHEDULE_TOPIC_XXXX and
rmq_sys_wheel_timer it is the delivery time. A filler (0, 2^31 - 1, 0) replaces a missing message:
RocketMQ writes fillers before the first unit of a queue that doesn't begin at the start of a file.

Invariant: a unit with size <= 0 was never written.
Source: store/ConsumeQueue.java (4.9.8).
"""

from __future__ import annotations

import struct

import numpy as np

UNIT = struct.Struct(">qiq")
UNIT_SIZE = 20
FILLER_SIZE = 0x7FFFFFFF
UNITS = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
FILLER = UNIT.pack(0, FILLER_SIZE, 0)

SIZE_POSITION, TAGS_CODE_POSITION = 8, 12

assert UNIT.size == UNIT_SIZE
assert struct.calcsize(">q") == SIZE_POSITION
assert struct.calcsize(">qi") == TAGS_CODE_POSITION
assert UNITS.itemsize == UNIT_SIZE
