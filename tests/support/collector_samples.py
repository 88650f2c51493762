"""Samples and times for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console.gateway.answers import BrokerNode
from console.gateway.sample import (
    BrokerSample,
    GroupSample,
    ProgressSample,
    TopicSample,
    decoded,
    encoded,
)
from console.observe.collector.figures import Figures
from console.observe.collector.reading import Reading
from console.observe.collector.sampler import Moment
from console.observe.history.latency import BOUNDS_MS
from console.observe.history.metrics import Column, Metric, Subject
from console.observe.history.points import MISSING

if TYPE_CHECKING:
    import threading

    from console.gateway.errors import GatewayError

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
    """Access to the figures of a sample, one at a time."""

    def __init__(self, before: BrokerSample | None, now: BrokerSample) -> None:
        was = None if before is None else Reading(before)
        figures = Figures(was, Reading(now, was))
        rows = zip(
            *(each.tolist() for each in (figures.owners, figures.codes, figures.parts)),
            figures.values.tolist(),
            strict=True,
        )
        self._table = {
            (figures.subjects[owner], Column(code, part)): value
            for owner, code, part, value in rows
            if value != MISSING
        }

    def of(self, kind: str, name: str, metric: Metric, *part: int) -> int | None:
        """Return a figure, or None if it's unknown."""
        subject = Subject(kind, "broker-a", name)
        return self._table.get((subject, Column(metric.code, *part)))

    @property
    def kinds(self) -> set[str]:
        return {subject.kind for subject, _ in self._table}


class TestTime:
    """Time that passes only when someone waits."""

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


class LargeBroker:
    """A SampleGateway for a broker of many topics with four queues each.

    One group reads each of the first `read` topics. One topic in five is busy, and one in ten of
    the busy topics' groups lags. Answers are decoded from the bytes that a broker would send.
    """

    QUEUES = 4

    def __init__(self, topics: int, read: int) -> None:
        self._sent = [17 * topic for topic in range(topics)]
        self._read = read
        self._now_ms = START_MS
        self._answer = b""

    def grow(self) -> None:
        """Advance by ten seconds: busy topics get messages, and their groups lag a little."""
        self._now_ms += 10_000
        for topic in range(0, len(self._sent), 5):
            self._sent[topic] += 3 + (topic + self._now_ms // 10_000) % 7
        self._answer = encoded(self._sample())

    def take(self) -> dict[BrokerNode, BrokerSample | GatewayError]:
        node = BrokerNode("cluster", "broker-a", 0, "127.0.0.1:10911")
        return {node: decoded(self._answer)}

    def _sample(self) -> BrokerSample:
        queues = range(self.QUEUES)
        pairs = [f"%RETRY%group-{number // 5}" for number in range(0, self._read, 5)]
        sample_topics = {
            f"topic-{number}": [each for queue in queues for each in (queue, 0, sent + queue)]
            for number, sent in enumerate(self._sent)
        }
        progress = {}
        for number in range(self._read):
            sent, lags = self._sent[number], number % 5 == 0
            age_ms = 900 if number % 50 else 90_000
            progress[f"group-{number // 5}", f"topic-{number}"] = [
                each
                for queue in queues
                for each in (
                    (queue, max(0, sent + queue - 2), sent + queue, self._now_ms - age_ms)
                    if lags
                    else (queue, sent + queue, sent + queue, -1)
                )
            ]
        return sample(
            sample_topics | {name: [0, 0, 7] for name in pairs},
            progress,
            sizes={name: rows[2] * 512 for name, rows in sample_topics.items()},
            members={f"group-{number // 5}": 2 for number in range(0, self._read, 5)},
            counters={"put": sum(self._sent), "putBytes": 512 * sum(self._sent), "got": 1},
            gauges={"diskUsed": self._now_ms // 1_000, "diskTotal": 1 << 40, "rss": 1 << 27},
            latencies={"put": [self._sent[0]] * (len(BOUNDS_MS) + 1)},
            sampled_at=self._now_ms,
        )
