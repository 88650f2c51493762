"""Shows the progress of a copy on a terminal; otherwise does nothing."""

from __future__ import annotations

import sys
import time

from broker_core.store.runtime_info import size_text
from deploy.terminal.translation import translated

SHOWN_EVERY_S = 0.2
BAR_COLUMNS = 24
CLEARED_COLUMNS = 78


class Progress:
    """One line that is updated repeatedly."""

    def __init__(self, total: int, *, is_shown: bool | None = None) -> None:
        """`total` is the expected number of bytes, 0 if unknown."""
        self._total = total
        self._is_shown = sys.stderr.isatty() if is_shown is None else is_shown
        self._began_at = time.monotonic()
        self._shown_at = 0.0
        self.done = 0

    def add(self, count: int) -> None:
        """Add a number of finished bytes."""
        self.done += count
        now = time.monotonic()
        if self._is_shown and now - self._shown_at >= SHOWN_EVERY_S:
            self._shown_at = now
            sys.stderr.write(f"\r{self.line(now - self._began_at):<{CLEARED_COLUMNS}}")
            sys.stderr.flush()

    def end(self) -> None:
        """Erase the line."""
        if self._is_shown:
            sys.stderr.write("\r" + " " * CLEARED_COLUMNS + "\r")
            sys.stderr.flush()

    def line(self, seconds: float) -> str:
        """Return the text to show after some seconds."""
        rate = self.done / seconds if seconds > 0 else 0.0
        if not self._total:
            return translated("{done}, {rate}/s", done=size_text(self.done), rate=size_text(rate))
        # Files grow while they are copied.
        total = max(self._total, self.done)
        share = self.done / total
        left = (total - self.done) / rate if rate else 0.0
        filled = round(share * BAR_COLUMNS)
        bar = "#" * filled + "." * (BAR_COLUMNS - filled)
        return translated(
            "[{bar}] {percent} %  {done} of {total}  {rate}/s  {left} left",
            bar=bar,
            percent=int(share * 100),
            done=size_text(self.done),
            total=size_text(total),
            rate=size_text(rate),
            left=f"{int(left) // 60}:{int(left) % 60:02d}",
        )
