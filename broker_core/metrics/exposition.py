"""Prometheus text exposition format 0.0.4.

::

    # HELP rocketmq_messages_in_total Messages that producers sent
    # TYPE rocketmq_messages_in_total counter
    rocketmq_messages_in_total{cluster="DefaultCluster",topic="orders"} 42

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Labels = Mapping[str, str]
    Number = float | None
    """None means unknown; the series is omitted."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TRUNCATED = "trebuchet_metrics_truncated"


class Family(NamedTuple):
    """A metric with its series, which are generated while they are written."""

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    series: Iterable[tuple[Labels, Number]]


class Histogram(NamedTuple):
    """A histogram of durations.

    Each series has its labels, its counts (up to each bound, and above the last) and the sum.
    """

    name: str
    text: str
    bounds: Sequence[float]
    series: Sequence[tuple[Labels, Sequence[int], float]]


def lines_of(
    metrics: Iterable[Family | Histogram], constant: Labels, series_max: int
) -> Iterator[str]:
    """Yield the lines of each metric, up to series_max series.

    The constant labels are added to each line. A final metric lists the truncated metrics.
    """
    truncated = []
    for metric in metrics:
        if isinstance(metric, Histogram):
            yield from _histogram_lines(metric, constant)
            continue
        yield from _head(metric.name, metric.text, metric.kind)
        written = 0
        for labels, value in metric.series:
            if value is None:
                continue
            if written >= series_max:
                truncated.append(metric.name)
                break
            written += 1
            yield f"{metric.name}{_labels({**constant, **labels})} {number(value)}\n"
    yield from _head(TRUNCATED, "Metrics with more series than the page allows", "gauge")
    for name in truncated:
        yield f"{TRUNCATED}{_labels({**constant, 'metric': name})} 1\n"


def _histogram_lines(metric: Histogram, constant: Labels) -> Iterator[str]:
    yield from _head(metric.name, metric.text, "histogram")
    for own, counts, total in metric.series:
        labels = {**constant, **own}
        below = 0
        for bound, count in zip((*metric.bounds, float("inf")), counts, strict=True):
            below += count
            yield f"{metric.name}_bucket{_labels({**labels, 'le': number(bound)})} {below}\n"
        yield f"{metric.name}_sum{_labels(labels)} {number(total)}\n"
        yield f"{metric.name}_count{_labels(labels)} {below}\n"


def _head(name: str, text: str, kind: str) -> Iterator[str]:
    escaped = text.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n"


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    # JSON allows lone surrogates, which have no UTF-8 encoding.
    value = value.encode("utf-8", errors="replace").decode()
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number(value: float) -> str:
    """Return a number in Prometheus format."""
    if value == float("inf"):
        return "+Inf"
    return str(value) if isinstance(value, int) else repr(round(value, 9))
