"""Watermark: up to where a broker's log is in the lake, kept in the table's own log.

Delta commits it with the files of a batch, as three numbers of applications: a batch and its
watermark are there together, or neither is.

The bytes before it have a fingerprint: a log that lost its end, or whose broker took over another
one's, uses offsets a second time, and must not be read on as if nothing had been.
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
    """The next batch begins at `offset`; `batch_ms` is when the last one was committed."""

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
        """Return what a commit says to set this watermark."""
        numbers = (self.offset, self.fingerprint, self.batch_ms)
        return dict(zip(_names(broker), numbers, strict=True))


def _names(broker: str) -> tuple[str, str, str]:
    name = STATE_PREFIX + broker
    return name, f"{name}-fingerprint", f"{name}-time"


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """What a rebuild must not bring back of a log that is not the one which was read first.

    Of the log up to `to`, messages stored before `from_ms` are those of days that the retention
    has dropped: gold has counted them.
    """

    to: int = 0
    from_ms: int = 0

    @classmethod
    def of(cls, opened_table: DeltaTable, broker: str) -> ReadAgain:
        """Return what holds for a broker's log; nothing is kept back before there was a rebuild."""
        to, from_ms = map(opened_table.transaction_version, _names_again(broker))
        return cls(to or 0, from_ms or 0)

    def states(self, broker: str) -> dict[str, int]:
        """Return what a commit says to set this."""
        return dict(zip(_names_again(broker), (self.to, self.from_ms), strict=True))

    def from_ms_at(self, offset: int) -> int | None:
        """Return from when on messages at an offset are taken, None where all are."""
        return self.from_ms if offset < self.to else None


def _names_again(broker: str) -> tuple[str, str]:
    return f"again-{broker}", f"again-{broker}-from"


def dropped_before_ms(opened_table: DeltaTable) -> int:
    """Return before which time the retention has dropped the messages of all brokers."""
    return opened_table.transaction_version(DROPPED_BEFORE_STATE) or 0


def dropped_to(opened_table: DeltaTable, broker: str) -> int:
    """Return up to where of a broker's log the retention has dropped the messages."""
    return opened_table.transaction_version(dropped_state(broker)) or 0


def dropped_state(broker: str) -> str:
    return f"dropped-{broker}"
