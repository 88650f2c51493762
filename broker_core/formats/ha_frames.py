"""The protocol between master and slave on the HA port.

Big-endian, without a handshake::

    slave to master, a report           master to slave, a transfer
      0                 8                 0                 8         12
     +-----------------+                 +-----------------+---------+------------
     | slave's offset  |                 | offset in log   |  size   |  data ...
     +-----------------+                 +-----------------+---------+------------

A slave reports the end of its log: first to say where the transfer should start, then to
acknowledge, and as its heartbeat. A transfer of size 0 is the master's heartbeat. Transfers have no
gaps; they may split records and never cross a file of the log.

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
    """The header of a transfer."""

    commit_log_offset: int
    size: int


class ReportDecoder:
    """Extracts the reports from a slave's bytes."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the offsets that are now complete, in order."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT_SIZE
        self._rest = data[whole:]
        return [offset for (offset,) in REPORT.iter_unpack(data[:whole])]


def decode_header(data: bytes | bytearray | memoryview, position: int, size_max: int) -> Header:
    """Return the header at a position; all of its bytes must be there.

    Raises:
        ReplicationError: no master sends such a header.
    """
    header = Header._make(HEADER.unpack_from(data, position))
    if header.commit_log_offset < 0 or not 0 <= header.size <= size_max:
        raise ReplicationError(
            f"a transfer has offset {header.commit_log_offset} and size {header.size}, which no "
            "master sends; check that the address is a master's HA port"
        )
    return header
