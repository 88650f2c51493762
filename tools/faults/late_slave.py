"""A deliberately wrong slave, which writes reported data only when the next transfer arrives.

    python -m tools.faults.late_slave -c broker.conf

A kill loses messages that its master has acknowledged to senders; `slave_kill` must find that.
"""

from __future__ import annotations

import sys
from unittest import mock

from broker_core import __main__ as broker
from broker_core.formats.ha_frames import Header, decode_header, encode_report
from broker_core.ha import slave
from broker_core.store.commit_log import CommitLog

append_data = CommitLog.append_data
held: list[tuple[CommitLog, bytes]] = []
"""Received and unwritten data."""


def hold_data(self: CommitLog, data: memoryview) -> None:
    held.append((self, bytes(data)))


def write_and_decode(data: bytearray, position: int, size_max: int) -> Header:
    for log, one in held:
        append_data(log, memoryview(one))
    held.clear()
    return decode_header(data, position, size_max)


def encode_more(commit_log_offset: int) -> bytes:
    return encode_report(commit_log_offset + sum(len(one) for _, one in held))


if __name__ == "__main__":
    with (
        mock.patch.object(CommitLog, "append_data", hold_data),
        mock.patch.object(slave, "decode_header", write_and_decode),
        mock.patch.object(slave, "encode_report", encode_more),
    ):
        sys.exit(broker.main())
