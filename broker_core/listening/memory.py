"""Limit the bytes that a process holds for all its connections together.

Each connection limits its own bytes and stops reading when it holds too many. That doesn't limit
thousands of connections, so they share a budget. When half of it is used, connections stop reading
sooner. When the whole budget is used, the process drops the connection whose peer keeps the most
bytes waiting, by sending a long frame slowly or by not reading its answers.
"""

from __future__ import annotations

from typing import Protocol

MIB = 1 << 20
HELD_BYTES_MAX = 256 * MIB


class Holder(Protocol):
    """A connection that holds bytes and reports every change to the budget."""

    @property
    def held_bytes(self) -> int:
        """Bytes of incomplete and unserved frames, requests in progress and unread answers."""
        ...

    @property
    def stuck_bytes(self) -> int:
        """The part of held_bytes that only the peer can free, by sending or reading."""
        ...

    def drop(self, reason: str) -> None:
        """Close immediately and log the reason. Must not raise."""
        ...


class MemoryBudget:
    """The bytes that the connections of one process hold. Event loop only.

    Attributes:
        bytes: bytes now held by all holders.
        dropped: connections dropped since the start because of this budget or their own limit.
    """

    __slots__ = ("_bytes_max", "_holders", "bytes", "dropped")

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        self.bytes = 0
        self.dropped = 0
        self._bytes_max = bytes_max
        # In the order of their creation: among equal holders, the oldest is dropped.
        self._holders: dict[Holder, None] = {}

    @property
    def is_tight(self) -> bool:
        """Whether half of the budget is used."""
        return self.bytes > self._bytes_max // 2

    def open(self, holder: Holder) -> None:
        """Add a new connection, which holds no bytes yet."""
        self._holders[holder] = None

    def close(self, holder: Holder) -> None:
        """Release all bytes of a connection that ended. Can be called twice."""
        if holder in self._holders:
            del self._holders[holder]
            self.bytes -= holder.held_bytes

    def add(self, count: int) -> None:
        """Add bytes; the holder must already have added them to its own count."""
        self.bytes += count
        if self.bytes > self._bytes_max:
            self._drop_some()

    def remove(self, count: int) -> None:
        """Subtract bytes that a holder released."""
        self.bytes -= count

    def _drop_some(self) -> None:
        while self.bytes > self._bytes_max:
            worst = max(self._holders, key=_stuck_bytes_of, default=None)
            if worst is None or not worst.stuck_bytes:
                # The requests of all others are in progress, so those connections don't read.
                return
            stuck, held = worst.stuck_bytes, self.bytes
            self.close(worst)
            self.dropped += 1
            worst.drop(
                f"all connections hold {held} bytes, more than {self._bytes_max}, and {stuck} "
                "bytes wait for this one to send or read"
            )


def _stuck_bytes_of(holder: Holder) -> int:
    return holder.stuck_bytes
