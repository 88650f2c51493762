"""History metrics: the last sample of progress, topics and groups; verdicts; the collector.

Figures are exposed as long as they are in the collector's last sample. An unknown figure has no
series, rather than a zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings

from console.observe.history import metrics
from console.observe.history.access import history_store
from console.observe.history.reading import collector_state
from console.observe.history.series import Line, values_of
from console.observe.history.tiers import FINE
from console.observe.scraping.families import gauge, one, seconds
from console.observe.verdicts.judge import verdicts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker_core.metrics.exposition import Family, Labels
    from console.observe.history.metrics import Metric, Subject
    from console.observe.history.points import Points
    from console.observe.history.reading import CollectorState

FIGURES: tuple[tuple[str, str, str, Metric, float], ...] = (
    (
        metrics.PROGRESS,
        "lag_messages",
        "Messages of a topic that a group hasn't consumed",
        metrics.LAG,
        1,
    ),
    (
        metrics.PROGRESS,
        "lag_seconds",
        "Age of the oldest message that a group hasn't consumed",
        metrics.LAG_AGE,
        0.001,
    ),
    (metrics.GROUP, "group_members", "Connected consumers of a group", metrics.MEMBERS, 1),
    (
        metrics.TOPIC,
        "topic_retained_messages",
        "Retained messages of a topic",
        metrics.RETAINED,
        1,
    ),
)


def families(now_ms: int) -> Iterator[Family]:
    """Yield the last sample and the collector's status.

    Raises:
        HistoryError: the history can't be read.
    """
    state = collector_state(now_ms)
    last = last_sample(state) if state.is_alive else {}
    for kind, name, text, metric, scale in FIGURES:
        yield gauge(name, text, _series(last, kind, metric, scale))
    yield from _collector(state, last)
    yield from _verdicts()


def last_sample(state: CollectorState) -> dict[Subject, Points]:
    """Return the last sample by subject, limited to the maximum per kind."""
    assert state.status is not None
    # One above the limit, so that the page can report that there are more.
    left = dict.fromkeys(LABELS, settings.TREBUCHET_METRICS_SERIES_MAX + 1)
    wanted = {}
    for subject, number in history_store().all_subjects().items():
        if left.get(subject.kind, 0) > 0:
            left[subject.kind] -= 1
            wanted[subject] = number
    slot = state.status.at_ms // FINE.step_ms
    read = history_store().read(list(wanted.values()), FINE, slot, 1)
    return {subject: read[number] for subject, number in wanted.items()}


def _series(
    last: dict[Subject, Points], kind: str, metric: Metric, scale: float
) -> Iterator[tuple[Labels, float | None]]:
    line = Line("", metric, scale=scale)
    for subject, points in last.items():
        if subject.kind == kind:
            yield LABELS[kind](subject), values_of([points], line)[-1]


def _of_progress(subject: Subject) -> Labels:
    group, _, topic = subject.name.partition("@")
    return {"node_id": subject.broker, "consumer_group": group, "topic": topic}


LABELS: dict[str, Callable[[Subject], Labels]] = {
    metrics.PROGRESS: _of_progress,
    metrics.GROUP: lambda subject: {"node_id": subject.broker, "consumer_group": subject.name},
    metrics.TOPIC: lambda subject: {"node_id": subject.broker, "topic": subject.name},
    metrics.BROKER: lambda subject: {"node_id": subject.broker, "broker_id": subject.name},
}


def _collector(state: CollectorState, last: dict[Subject, Points]) -> Iterator[Family]:
    yield one(
        "collector_up",
        "Whether the collector took a sample within the last 45 s",
        float(state.is_alive),
    )
    if state.status is None:
        return
    status = state.status
    yield one(
        "collector_last_sample_timestamp_seconds",
        "Time of the collector's last sample",
        seconds(status.at_ms),
    )
    yield one("collector_sample_seconds", "Duration of the last sample", seconds(status.took_ms))
    yield one("collector_sample_numbers", "Number of values in the last sample", status.numbers)
    yield one(
        "collector_problems",
        "Brokers missing from the last sample, plus one if the history isn't stored",
        len(status.problems),
    )
    yield gauge(
        "broker_sampled",
        "1 for each broker in the last sample",
        _series_of_brokers(last),
    )
    yield one("history_bytes", "Size of the history", history_store().database.bytes_used())


def _series_of_brokers(last: dict[Subject, Points]) -> Iterator[tuple[Labels, float | None]]:
    for subject, points in last.items():
        if subject.kind == metrics.BROKER and points.columns:
            yield LABELS[metrics.BROKER](subject), 1


def _verdicts() -> Iterator[Family]:
    kept = verdicts_of(history_store())
    yield gauge(
        "verdict",
        "1 for each current issue",
        [
            (
                {
                    "rule": each.rule,
                    "severity": each.severity,
                    "kind": each.kind,
                    "node_id": each.broker,
                    "name": each.name,
                },
                1,
            )
            for each in kept.verdicts
        ],
    )
    yield one("verdicts", "Number of current issues", len(kept.verdicts))
    yield one(
        "verdicts_judged_timestamp_seconds",
        "Time when the console last checked for issues",
        seconds(kept.at_ms) if kept.at_ms else None,
    )
