"""Watermark: the offset up to which a broker's log is in the lake, stored in the table's own log.

Delta commits it with the files of a batch, as three application transaction numbers: a batch never
appears without its watermark.

The bytes before it have a fingerprint. If a log loses its end, or a broker switches to another log,
offsets are reused. Ingest must not continue as if nothing had changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.store.fingerprint import NO_FINGERPRINT

if TYPE_CHECKING:
    from deltalake import DeltaTable

STATE_PREFIX = "bronze-"
DROPPED_BEFORE_STATE = "dropped-before"


@dataclass(frozen=True, slots=True)
class Watermark:
    """The next batch begins at `offset`; `batch_ms` is when the last batch was committed."""

    offset: int
    fingerprint: int
    batch_ms: int

    @classmethod
    def of(cls, opened_table: DeltaTable, broker: str) -> Watermark | None:
        """Return the watermark of a broker's log, None before its first batch."""
        offset, fingerprint, batch_ms = map(opened_table.transaction_version, _names(broker))
        if offset is None:
            return None
        return cls(offset, fingerprint or NO_FINGERPRINT, batch_ms or 0)

    def states(self, broker: str) -> dict[str, int]:
        """Return the numbers that set this watermark in a commit."""
        numbers = (self.offset, self.fingerprint, self.batch_ms)
        return dict(zip(_names(broker), numbers, strict=True))


def _names(broker: str) -> tuple[str, str, str]:
    name = STATE_PREFIX + broker
    return name, f"{name}-fingerprint", f"{name}-time"


@dataclass(frozen=True, slots=True)
class Rereading:
    """The part of a log that a rebuild must not restore.

    In the log up to `to`, messages stored before `from_ms` belong to days that retention has
    dropped; gold has counted them already.
    """

    to: int = 0
    from_ms: int = 0

    @classmethod
    def of(cls, opened_table: DeltaTable, broker: str) -> Rereading:
        """Return the limits for a broker's log; before the first rebuild there are no limits."""
        to, from_ms = map(opened_table.transaction_version, _reread_keys(broker))
        return cls(to or 0, from_ms or 0)

    def states(self, broker: str) -> dict[str, int]:
        """Return the numbers that set these limits in a commit."""
        return dict(zip(_reread_keys(broker), (self.to, self.from_ms), strict=True))

    def from_ms_at(self, offset: int) -> int | None:
        """Return the store time from which messages at an offset are ingested, None for all."""
        return self.from_ms if offset < self.to else None


def _reread_keys(broker: str) -> tuple[str, str]:
    return f"again-{broker}", f"again-{broker}-from"


def dropped_before_ms(opened_table: DeltaTable) -> int:
    """Return the time before which retention has dropped the messages of all brokers."""
    return opened_table.transaction_version(DROPPED_BEFORE_STATE) or 0


def dropped_to(opened_table: DeltaTable, broker: str) -> int:
    """Return the offset up to which retention has dropped a broker's messages."""
    return opened_table.transaction_version(dropped_state(broker)) or 0


def dropped_state(broker: str) -> str:
    return f"dropped-{broker}"
