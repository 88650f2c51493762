"""What master and slave say to each other on the HA port.

Big-endian, no handshake, nothing else::

    slave to master, a report           master to slave, a transfer
      0                 8                 0                 8         12
     +-----------------+                 +-----------------+---------+------------
     | slave's offset  |                 | offset in log   |  size   |  data ...
     +-----------------+                 +-----------------+---------+------------

A slave reports where its log ends: first as the place from which it wants the log, then as what it
has, and as its heartbeat. A transfer of size 0 is the master's heartbeat. Transfers follow each
other without gaps; they cut records anywhere and never cross a file of the log.

Source: store/ha/HAConnection.java, store/ha/HAService.java HAClient (4.9.8).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker_core.errors import ReplicationError

REPORT = struct.Struct(">q")
HEADER = struct.Struct(">qi")
REPORT_SIZE = REPORT.size
HEADER_SIZE = HEADER.size

encode_report = REPORT.pack
encode_header = HEADER.pack

assert REPORT_SIZE == 8
assert HEADER_SIZE == 12


class Header(NamedTuple):
    """What a transfer says of its data."""

    commit_log_offset: int
    size: int


class ReportDecoder:
    """Finds the reports in what a slave sends."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the offsets that are whole by now, in their order."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT_SIZE
        self._rest = data[whole:]
        return [offset for (offset,) in REPORT.iter_unpack(data[:whole])]


def decode_header(data: bytes | bytearray | memoryview, position: int, size_max: int) -> Header:
    """Return the header at a position, which holds it whole.

    Raises:
        ReplicationError: no master sends it.
    """
    header = Header._make(HEADER.unpack_from(data, position))
    if header.commit_log_offset < 0 or not 0 <= header.size <= size_max:
        raise ReplicationError(
            f"a transfer says offset {header.commit_log_offset} and size {header.size}: "
            "this is no master's HA port"
        )
    return header
