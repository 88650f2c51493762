"""The rates of the last minutes, in memory; pages sample them while they are open."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES_MAX = 450
SAMPLE_INTERVAL_MS = 1_900
# Without a sample for this long the line breaks: no page was open.
GAP_MS = 10_000


class Sample(NamedTuple):
    """Messages a second at a moment; None when unknown."""

    at_ms: int
    put_tps: float | None
    get_tps: float | None


class RateHistory:
    """A bounded ring of samples. Any thread; viewers at the same time share one sample."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)

    def sample(self, now_ms: int, take: Callable[[], Sample]) -> None:
        """Add a sample unless the last one is young; an error of `take` leaves a gap."""
        with self._lock:
            last = self._samples[-1] if self._samples else None
            if last is not None and now_ms - last.at_ms < SAMPLE_INTERVAL_MS:
                return
            if last is not None and now_ms - last.at_ms > GAP_MS:
                self._samples.append(Sample(last.at_ms + 1, None, None))
            try:
                self._samples.append(take())
            except Exception:
                self._samples.append(Sample(now_ms, None, None))
                raise

    def since(self, at_ms: int) -> list[Sample]:
        with self._lock:
            return [sample for sample in self._samples if sample.at_ms > at_ms]

    def clear(self) -> None:
        with self._lock:
            self._samples.clear()


history = RateHistory()
