"""Limit frames that cost work and carry no data.

Attackers use them: rapid reset (CVE-2023-44487) and floods of settings, empty frames and
priorities (CVE-2019-9515, 9518, 9513). Ordinary clients stay far below the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import Http2ConnectionError
from broker_core.http2.codes import ErrorCode

if TYPE_CHECKING:
    from broker_core.http2.limits import Http2Limits


class UselessFrames:
    """Token bucket of one connection, refilled every second. Event loop only."""

    __slots__ = ("_burst", "_left", "_per_s", "_since")

    def __init__(self, limits: Http2Limits, now: float) -> None:
        self._per_s = limits.useless_frames_per_s
        self._burst = limits.useless_frames_burst
        self._left = limits.useless_frames_burst
        self._since = now

    def count(self, now: float, what: str) -> None:
        """Count one frame.

        Raises:
            Http2ConnectionError: there were too many such frames.
        """
        self._left = min(self._burst, self._left + (now - self._since) * self._per_s) - 1
        self._since = now
        if self._left < 0:
            raise Http2ConnectionError(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"more than {self._per_s:g} {what} and the like per second",
            )
