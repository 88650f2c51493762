"""Latency of puts and gets, from request to response.

Counted in RocketMQ's buckets, so `putMessageDistributeTime` looks familiar to users. Quantiles are
interpolated between bounds over a window; no samples are kept.

Source: store/StoreStatsService.java (4.9.7).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BOUNDS_MS = (0.0, 10.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 3e3, 4e3, 5e3, 10e3)
NAMES = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)
FINE_MS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, *BOUNDS_MS[1:])
"""Bucket bounds: RocketMQ's, and finer ones below 10 ms."""
_COARSE = (*(bisect_left(BOUNDS_MS, bound) for bound in FINE_MS), len(BOUNDS_MS))
WINDOW_SAMPLES = 61
"""Snapshots, one per second; the distribution is the difference of the first and the last."""

A = TypeVar("A")
B = TypeVar("B")


class Latency:
    """Latency of one kind of request. Event loop only; call `sample` every second.

    Attributes:
        served: requests answered in the current turn of the loop. The answers are sent at its
            end, so `end_turn` counts the whole turn for each.
        total_ms: total latency of all requests.
        max_ms: maximum latency of a request.
        longest_s: maximum time that a request held the loop since `take_longest_ms`.
        buckets: requests since the start: up to each bound of FINE_MS, and above the last. The
        native turn counts pulls directly, as `answered` does.
    """

    __slots__ = (
        "_monotonic",
        "_samples",
        "_timed",
        "buckets",
        "longest_s",
        "max_ms",
        "served",
        "total_ms",
    )

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.max_ms = 0.0
        self.total_ms = 0.0
        self.served = 0
        self.longest_s = 0.0
        self._monotonic = monotonic
        self.buckets = [0] * (len(FINE_MS) + 1)
        self._samples: deque[tuple[int, ...]] = deque([tuple(self.buckets)], WINDOW_SAMPLES)
        self._timed: dict[Any, Any] = {}

    @property
    def counts(self) -> tuple[int, ...]:
        """Requests since the start by bucket: up to each bound of FINE_MS, and above the last."""
        return tuple(self.buckets)

    @property
    def recent_counts(self) -> tuple[int, ...]:
        """The same for the window only."""
        return tuple(self._window())

    def record(self, seconds: float, requests: int = 1) -> None:
        """Count one or more requests with this latency."""
        took_ms = seconds * 1000.0
        if took_ms > self.max_ms:
            self.max_ms = took_ms
        self.total_ms += took_ms * requests
        self.buckets[bisect_left(FINE_MS, took_ms)] += requests

    def end_turn(self, seconds: float) -> None:
        """Count the turn's requests with the turn's duration."""
        served, self.served = self.served, 0
        if served:
            took_ms = seconds * 1000.0
            if took_ms > self.max_ms:
                self.max_ms = took_ms
            if seconds > self.longest_s:
                self.longest_s = seconds
            self.total_ms += took_ms * served
            self.buckets[bisect_left(FINE_MS, took_ms)] += served

    def take_longest_ms(self) -> float:
        """Return the longest time that a request held the loop since the last call."""
        longest_s, self.longest_s = self.longest_s, 0.0
        return longest_s * 1000

    def sample(self) -> None:
        """Take the next snapshot of the window."""
        self._samples.append(tuple(self.buckets))

    def distribution(self) -> str:
        """Return the window's counts in RocketMQ's format."""
        coarse = [0] * len(NAMES)
        for index, count in enumerate(self._window()):
            coarse[_COARSE[index]] += count
        return "".join(f"{name}:{count} " for name, count in zip(NAMES, coarse, strict=True))

    def quantile_ms(self, share: float) -> float:
        """Return the milliseconds within which a share of the window's requests was answered."""
        counts = self._window()
        wanted = sum(counts) * share
        if not wanted:
            return 0.0
        seen = 0
        for index, count in enumerate(counts):
            if count and seen + count >= wanted:
                low = FINE_MS[index - 1] if index else 0.0
                high = min(FINE_MS[index] if index < len(FINE_MS) else self.max_ms, self.max_ms)
                return low + max(0.0, high - low) * (wanted - seen) / count
            seen += count
        return self.max_ms

    def timed(
        self, handler: Callable[[A, B], Any], is_answer: tuple[type, ...]
    ) -> Callable[[A, B], Any]:
        """Wrap a handler to record its time, including the wait for a deferred answer."""
        monotonic = self._monotonic
        answered = self.answered

        def serve(request: A, connection: B) -> Any:
            started = monotonic()
            answer = handler(request, connection)
            if isinstance(answer, is_answer):
                answered(monotonic() - started)
                return answer
            return None if answer is None else self._after(started, answer)

        self._timed[serve] = handler
        return serve

    def untimed(self, handler: object) -> object:
        """Return the handler that `timed` wrapped, or the argument if it isn't wrapped."""
        return self._timed.get(handler, handler)

    def answered(self, seconds: float) -> None:
        """Count one request that held the loop until it was answered."""
        self.record(seconds)
        if seconds > self.longest_s:
            self.longest_s = seconds

    async def _after(self, started: float, answer: Awaitable[Any]) -> Any:
        result = await answer
        self.record(self._monotonic() - started)
        return result

    def _window(self) -> list[int]:
        return [now - then for now, then in zip(self.buckets, self._samples[0], strict=True)]
