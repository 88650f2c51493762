"""Samples and times that a test makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console.collector.figures import Figures
from console.collector.sampler import Moment
from console.gateway.sample import BrokerSample, GroupSample, ProgressSample, TopicSample
from console.history.latency import BOUNDS_MS
from console.history.metrics import Column, Metric, Subject

if TYPE_CHECKING:
    import threading

START_MS = 1_795_251_600_000
BOOT_MS = START_MS - 3_600_000


def sample(
    topics: dict[str, list[int]] | None = None,
    progress: dict[tuple[str, str], list[int]] | None = None,
    *,
    sizes: dict[str, int] | None = None,
    members: dict[str, int | None] | None = None,
    **more: Any,
) -> BrokerSample:
    """Return a sample; `topics` and `progress` hold rows of queues."""
    fields: dict[str, Any] = {
        "broker_name": "broker-a",
        "broker_id": 0,
        "boot_timestamp": BOOT_MS,
        "sampled_at": START_MS,
        "counters": {},
        "gauges": {},
        "latency_bounds_ms": list(BOUNDS_MS),
        **more,
    }
    return BrokerSample(
        topics=[
            TopicSample(name, (sizes or {}).get(name), queues)
            for name, queues in (topics or {}).items()
        ],
        groups=[GroupSample(name, count) for name, count in (members or {}).items()],
        progress=[
            ProgressSample(group, topic, queues)
            for (group, topic), queues in (progress or {}).items()
        ],
        **fields,
    )


class Found:
    """The figures of a sample, to be asked for one by one."""

    def __init__(self, before: BrokerSample | None, now: BrokerSample) -> None:
        self._table = {(subject, column): value for subject, column, value in Figures(before, now)}

    def of(self, kind: str, name: str, metric: Metric, *part: int) -> int | None:
        """Return a figure, None when it is not known."""
        subject = Subject(kind, "broker-a", name)
        return self._table.get((subject, Column(metric.code, *part)))

    @property
    def kinds(self) -> set[str]:
        return {subject.kind for subject, _ in self._table}


class TestTime:
    """Time that passes when it is waited for."""

    __test__ = False

    def __init__(self) -> None:
        self.wall_ms = START_MS
        self.monotonic_ms = 5_000

    def now(self) -> Moment:
        return Moment(self.wall_ms, self.monotonic_ms)

    def wait_ms(self, milliseconds: int, stop: threading.Event) -> None:
        self.pass_ms(milliseconds)

    def pass_ms(self, milliseconds: int) -> None:
        self.wall_ms += milliseconds
        self.monotonic_ms += milliseconds
