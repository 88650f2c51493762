"""Admit requests longer than a window one after another.

A request that fits in its stream's first window needs no admission. The window of a longer one is
widened when its bytes fit in the connection's buffer limit; until then the client holds them. An
admitted request always completes, so requests can't block each other in a cycle.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.http2.call import Call


class LargeRequests:
    """The large requests of one connection, first come, first served. Event loop only."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Call, int]] = deque()
        self._admitted_bytes = 0

    def admit(self, call: Call, message_bytes: int, bytes_max: int) -> bool:
        """Return whether a message may arrive now; otherwise `release` returns it later."""
        if self._waiting or not self._fits(message_bytes, bytes_max):
            self._waiting.append((call, message_bytes))
            return False
        self._admit(call, message_bytes)
        return True

    def release(self, call: Call, bytes_max: int) -> list[Call]:
        """Return the calls that may continue now that an admitted one has completed."""
        self._admitted_bytes -= call.admitted_bytes
        call.admitted_bytes = 0
        found = []
        waiting = self._waiting
        while waiting:
            next_call, message_bytes = waiting[0]
            if next_call.is_open:
                if not self._fits(message_bytes, bytes_max):
                    break
                self._admit(next_call, message_bytes)
                found.append(next_call)
            waiting.popleft()
        return found

    def _fits(self, message_bytes: int, bytes_max: int) -> bool:
        return not self._admitted_bytes or self._admitted_bytes + message_bytes <= bytes_max

    def _admit(self, call: Call, message_bytes: int) -> None:
        call.admitted_bytes = message_bytes
        self._admitted_bytes += message_bytes
