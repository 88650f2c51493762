"""The charts for each kind of subject, as one literal table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django.utils.translation import gettext_lazy as _

from console.observe.history import metrics
from console.observe.history.metrics import BROKER, CLUSTER, GROUP, PROCESS, QUEUE, TOPIC
from console.observe.history.series import Aspect, Line

if TYPE_CHECKING:
    from django.utils.functional import Promise

SECONDS, GIB, PERCENT = 0.001, 1 / (1 << 30), 0.1
"""From ms to s; from bytes to GiB; from ms of CPU time per second to percent of a core."""
MIB = 1 / (1 << 20)


class ChartLine(NamedTuple):
    """A line with its legend text; `name` is for files."""

    name: str
    label: Promise | str
    line: Line


class Chart(NamedTuple):
    """A chart: its name in URLs, title, unit, and kind of subject."""

    slug: str
    kind: str
    title: Promise
    unit: Promise | str
    lines: tuple[ChartLine, ...]
    source: Promise

    def of_part(self, part: int) -> Chart:
        """Return the same chart for one part of the figures, such as a queue."""
        return self._replace(
            lines=tuple(each._replace(line=each.line._replace(part=part)) for each in self.lines)
        )


def _line(
    name: str,
    label: Promise,
    metric: metrics.Metric,
    aspect: Aspect = Aspect.MEAN,
    scale: float = 1.0,
) -> ChartLine:
    return ChartLine(name, label, Line(name, metric, aspect, scale=scale))


OFFSETS = _("Broker queue ends")
COMMITS = _("Consumer offsets and queue ends")
BROKERS_OWN = _("Broker counters")

IN_AND_OUT = (
    _line("put", _("received"), metrics.PUT),
    _line("got", _("delivered"), metrics.GOT),
)

TOPIC_CHARTS = (
    Chart(
        "messages",
        TOPIC,
        _("Received"),
        _("msg/s"),
        (
            _line("received", _("received"), metrics.PUT),
            _line("peak", _("10 s peak"), metrics.PUT, Aspect.PEAK),
        ),
        OFFSETS,
    ),
    Chart(
        "bytes",
        TOPIC,
        _("Bytes received"),
        "MiB/s",
        (_line("bytes", _("received"), metrics.PUT_BYTES, scale=MIB),),
        BROKERS_OWN,
    ),
    Chart(
        "retained",
        TOPIC,
        _("Retained"),
        _("msg"),
        (_line("retained", _("retained"), metrics.RETAINED),),
        OFFSETS,
    ),
)
GROUP_CHARTS = (
    Chart(
        "lag",
        GROUP,
        _("Lag"),
        _("msg"),
        (
            _line("lag", _("lag"), metrics.LAG),
            _line("peak", _("max"), metrics.LAG, Aspect.PEAK),
        ),
        COMMITS,
    ),
    Chart(
        "age",
        GROUP,
        _("Age of the oldest unread message"),
        "s",
        (_line("age", _("age"), metrics.LAG_AGE, Aspect.PEAK, SECONDS),),
        _("Store times of the oldest unread messages"),
    ),
    Chart(
        "consumed",
        GROUP,
        _("Consumed"),
        _("msg/s"),
        (
            _line("consumed", _("consumed"), metrics.CONSUMED),
            _line("rewound", _("rewound"), metrics.REWOUND),
        ),
        _("Consumer offsets"),
    ),
    Chart(
        "members",
        GROUP,
        _("Consumers"),
        "",
        (_line("members", _("consumers"), metrics.MEMBERS),),
        _("Connected clients"),
    ),
    Chart(
        "failures",
        GROUP,
        _("Retries and dead letters"),
        _("msg/s"),
        (
            _line("retried", _("retried"), metrics.RETRIED),
            _line("dead", _("dead letters"), metrics.DEAD),
        ),
        _("Ends of the group's retry and dead-letter queues"),
    ),
)
# Other figures aren't sampled per queue: each would need a series for every queue.
QUEUE_CHARTS = tuple(
    each._replace(kind=QUEUE) for each in GROUP_CHARTS if each.slug in {"lag", "age"}
)
BROKER_CHARTS = (
    Chart(
        "messages",
        BROKER,
        _("Messages"),
        _("msg/s"),
        IN_AND_OUT,
        BROKERS_OWN,
    ),
    Chart(
        "put-latency",
        BROKER,
        _("Send latency"),
        "ms",
        (
            _line("p50", _("p50"), metrics.PUT_TOOK, Aspect.P50),
            _line("p99", _("p99"), metrics.PUT_TOOK, Aspect.P99),
        ),
        _("Broker send histogram"),
    ),
    Chart(
        "flush-latency",
        BROKER,
        _("Flush latency"),
        "ms",
        (
            _line("p50", _("p50"), metrics.FLUSH_TOOK, Aspect.P50),
            _line("p99", _("p99"), metrics.FLUSH_TOOK, Aspect.P99),
        ),
        _("Broker flush histogram"),
    ),
    Chart(
        "disk",
        BROKER,
        _("Disk"),
        "GiB",
        (
            _line("used", _("disk used"), metrics.DISK_USED, scale=GIB),
            _line("total", _("disk size"), metrics.DISK_TOTAL, scale=GIB),
            _line("log", _("CommitLog"), metrics.LOG_BYTES, scale=GIB),
        ),
        _("CommitLog file system"),
    ),
    Chart(
        "cpu",
        BROKER,
        _("Request processor"),
        _("% of a core"),
        (_line("cpu", _("broker"), metrics.CPU, scale=PERCENT),),
        _("Broker process"),
    ),
    Chart(
        "memory",
        BROKER,
        _("Memory"),
        "MiB",
        (_line("rss", _("resident"), metrics.RSS, scale=MIB),),
        _("Broker process, including mapped files in memory"),
    ),
    Chart(
        "half",
        BROKER,
        _("Half messages"),
        _("msg"),
        (_line("pending", _("pending"), metrics.HALF_PENDING, Aspect.PEAK),),
        _("Broker transaction table"),
    ),
)
CLUSTER_CHART = Chart(
    "messages",
    CLUSTER,
    _("Messages"),
    _("msg/s"),
    IN_AND_OUT,
    _("Counters of all brokers"),
)
LAG_CHARTS = (
    Chart(
        "replication",
        BROKER,
        _("Replication lag"),
        "MiB",
        (
            _line("lag", _("lag"), metrics.REPLICATION_BEHIND, scale=MIB),
            _line("peak", _("max"), metrics.REPLICATION_BEHIND, Aspect.PEAK, MIB),
        ),
        _("For a master, the slave furthest behind; for a slave, its own lag"),
    ),
    Chart(
        "replication-age",
        BROKER,
        _("Replication delay"),
        "s",
        (
            _line(
                "age", _("age of the missing part"), metrics.REPLICATION_AGE, Aspect.PEAK, SECONDS
            ),
        ),
        _("For a master, the slave furthest behind; for a slave, its own lag"),
    ),
)
SLAVES_CHARTS = (
    Chart(
        "slaves",
        BROKER,
        _("Slaves"),
        "",
        (
            _line("connected", _("connected"), metrics.SLAVES),
            _line("in-sync", _("in sync"), metrics.SLAVES_IN_SYNC),
        ),
        _("Master's HA connections"),
    ),
)
PROCESS_CHARTS = (
    Chart(
        "process-cpu",
        PROCESS,
        _("Request processor"),
        _("% of a core"),
        (_line("cpu", _("CPU"), metrics.CPU, scale=PERCENT),),
        _("/proc, read by the collector"),
    ),
    Chart(
        "process-memory",
        PROCESS,
        _("Memory"),
        "MiB",
        (_line("rss", _("resident"), metrics.RSS, scale=MIB),),
        _("/proc, read by the collector"),
    ),
)
CHARTS = {
    (chart.kind, chart.slug): chart
    for chart in (
        *TOPIC_CHARTS,
        *GROUP_CHARTS,
        *QUEUE_CHARTS,
        *BROKER_CHARTS,
        *LAG_CHARTS,
        *SLAVES_CHARTS,
        *PROCESS_CHARTS,
        CLUSTER_CHART,
    )
}
OF_KIND = {
    TOPIC: TOPIC_CHARTS,
    GROUP: GROUP_CHARTS,
    QUEUE: QUEUE_CHARTS,
    BROKER: BROKER_CHARTS,
    PROCESS: PROCESS_CHARTS,
}
