"""Compare a slave's reports and its master's use of them with the actual logs.

A simulation can read both at the same moment: each report is compared with the slave's log, and
each offset up to which the master answers senders with the highest report so far.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from broker_core.ha import slave as ha_slave
from broker_core.store.acknowledge import Acknowledgement
from tools.faults.operations import Acked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.faults.simulation.client import Notes
    from tools.faults.simulation.host import Host

OFFSET_SIZE = 8
REPORTS = "encode_report"
"""A mutant may replace this function."""


class Copies:
    """Writes an `Acked` for each such offset of the master, and for each untrue report."""

    def __init__(self, slave: Host, ack_mode: str, notes: Notes) -> None:
        self._slave = slave
        self._ack_mode = ack_mode
        self._notes = notes
        self.reported = 0
        """The highest offset that the slave has ever reported."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch while the block runs."""
        encode, replicated = vars(ha_slave)[REPORTS], Acknowledgement.replicated

        def encode_and_note(commit_log_offset: int) -> bytes:
            report: bytes = encode(commit_log_offset)
            self._note_report(int.from_bytes(report[-OFFSET_SIZE:], "big", signed=True))
            return report

        def replicate_and_note(acknowledge: Acknowledgement, commit_log_offset: int) -> None:
            if acknowledge.is_replicating and commit_log_offset >= 0:
                self._note("master", commit_log_offset, self.reported)
            replicated(acknowledge, commit_log_offset)

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(ha_slave, REPORTS, encode_and_note))
            stack.enter_context(
                mock.patch.object(Acknowledgement, "replicated", replicate_and_note)
            )
            yield

    def _note_report(self, reported: int) -> None:
        self.reported = max(self.reported, reported)
        broker = self._slave.broker
        if broker is None:
            return
        store = broker.storage.store
        had = store.max_commit_log_offset
        if self._ack_mode == "flushed":
            had = min(had, store.flushed_where)
        if reported > had:
            self._note("slave", reported, had)

    def _note(self, server: str, reported: int, had: int) -> None:
        self._notes.operations.append(Acked(server, reported, had, self._notes.now_ns()))
