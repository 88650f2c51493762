"""Log misbehaving peers at a limited rate."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.clock import Clock

logger = logging.getLogger(__name__)

LOG_WINDOW_S = 10.0
LOG_LINES_PER_WINDOW = 5


class PeerLog:
    """Logs misbehaving peers without letting them fill the disk. Event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window_to = 0.0
        self._lines = 0

    def report(self, event: str, peer: str, reason: object) -> None:
        """Log an event about a peer, up to LOG_LINES_PER_WINDOW lines per window."""
        now = self._clock.monotonic()
        if now >= self._window_to:
            if self._lines > LOG_LINES_PER_WINDOW:
                logger.warning("more peer errors not_logged=%d", self._lines - LOG_LINES_PER_WINDOW)
            self._window_to = now + LOG_WINDOW_S
            self._lines = 0
        self._lines += 1
        if self._lines <= LOG_LINES_PER_WINDOW:
            logger.warning("%s peer=%s reason=%s", event, peer, reason)
