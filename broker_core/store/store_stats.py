"""Counters of the store, and averages over the last ten minutes.

Source: store/StoreStatsService.java (4.9.8).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock
    from broker_core.store.put_state import PutState
    from broker_core.store.reads import MessageReader

SAMPLES_MAX = 601
WINDOWS_SECONDS = (10, 60, 600)


class _Sample(NamedTuple):
    monotonic: float
    put: int
    found: int
    miss: int
    transferred: int


class StoreStats:
    """Event loop only; `sample` is called every second."""

    def __init__(self, clock: Clock, put_state: PutState, reader: MessageReader) -> None:
        self._put_state = put_state
        self._clock = clock
        self._reader = reader
        self._boot_ms = clock.now_ms()
        self._boot = clock.monotonic()
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES_MAX)
        self.sample()

    def sample(self) -> None:
        """Record the current counters."""
        self._samples.append(self._now())

    def _now(self) -> _Sample:
        reader = self._reader
        return _Sample(
            self._clock.monotonic(),
            self._put_state.put_times,
            reader.get_found_times,
            reader.get_miss_times,
            reader.transferred_messages,
        )

    def runtime_info(self) -> dict[str, str]:
        """Return the rows of the table that are counted here."""
        state = self._put_state
        put = self._tps(lambda sample: sample.put)
        found = self._tps(lambda sample: sample.found)
        miss = self._tps(lambda sample: sample.miss)
        total = self._tps(lambda sample: sample.found + sample.miss)
        transferred = self._tps(lambda sample: sample.transferred)
        seconds = int(self._clock.monotonic() - self._boot)
        minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
        return {
            "bootTimestamp": str(self._boot_ms),
            "runtime": (
                f"[ {days} days, {hours % 24} hours, "
                f"{minutes % 60} minutes, {seconds % 60} seconds ]"
            ),
            "putMessageTimesTotal": str(state.put_times),
            "putMessageFailedTimes": str(state.put_failed_times),
            "putMessageSizeTotal": str(state.put_bytes),
            "putMessageAverageSize": str(
                state.put_bytes / state.put_times if state.put_times else 0.0
            ),
            "putTps": put,
            "getFoundTps": found,
            "getMissTps": miss,
            "getTotalTps": total,
            "getTransferedTps": transferred,
            "getTransferredTps": transferred,
        }

    def _tps(self, counter: Callable[[_Sample], int]) -> str:
        """Return averages over 10 seconds, 1 minute and 10 minutes, separated by spaces."""
        last = self._now()
        texts = []
        for window in WINDOWS_SECONDS:
            first = self._samples[max(len(self._samples) - 1 - window, 0)]
            elapsed = last.monotonic - first.monotonic
            tps = (counter(last) - counter(first)) / elapsed if elapsed > 0 else 0.0
            texts.append(str(round(tps, 3)))
        return " ".join(texts)
