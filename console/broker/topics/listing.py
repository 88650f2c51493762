"""The list of topics: its filters, its order, and the history in its rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, gettext_lazy

from console.broker.configs.labels import owner_in
from console.gateway.access import gateway
from console.gateway.answers import TopicKind
from console.lib.lists import Chip
from console.lib.moment import now_ms
from console.lib.tables import Column
from console.observe.history.metrics import PUT, TOPIC
from console.observe.history.reading import last_of, sparks
from console.observe.history.series import Line
from console.observe.history.topic_lags import topic_lags

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from console.broker.configs.models import Label
    from console.gateway.answers import Topic, Traffic
    from console.lib.tables import Table
    from console.observe.history.reading import Spark
    from console.observe.history.topic_lags import TopicLag

KIND_LABELS = {
    TopicKind.NORMAL: gettext_lazy("Normal"),
    TopicKind.RETRY: gettext_lazy("Retry"),
    TopicKind.DLQ: gettext_lazy("Dead letter"),
    TopicKind.SYSTEM: gettext_lazy("System"),
}

KIND_STATES = {TopicKind.NORMAL: "accent", TopicKind.RETRY: "warn", TopicKind.DLQ: "bad"}

COLUMNS = (
    Column("topic", gettext_lazy("Topic"), is_sorted=True),
    Column("owner", gettext_lazy("Owner"), is_sorted=True, is_extra=True),
    Column("type", gettext_lazy("Type")),
    Column("queues", gettext_lazy("Queues"), "w / r", is_number=True, is_sorted=True),
    Column("permission", gettext_lazy("Permission")),
    Column("brokers", gettext_lazy("Brokers"), css="muted"),
    Column("trend", gettext_lazy("Trend"), "1 h", is_sorted=True, is_fact=True, css="spark-cell"),
    Column(
        "received", gettext_lazy("Received"), gettext_lazy("msg/s"), is_number=True, is_fact=True
    ),
    Column("hour", gettext_lazy("Last hour"), gettext_lazy("msg"), is_number=True, is_fact=True),
    Column("day", gettext_lazy("Last day"), gettext_lazy("msg"), is_number=True),
    Column("groups", gettext_lazy("Groups"), is_number=True, is_extra=True),
    Column(
        "lag",
        gettext_lazy("Lag"),
        gettext_lazy("msg"),
        is_number=True,
        is_sorted=True,
        is_fact=True,
    ),
)

RECEIVED = Line("received", PUT)


@dataclass(frozen=True, slots=True)
class FoundTopics:
    """The topics of the chosen kind, and a chip with a count for each kind."""

    shown: Sequence[Topic]
    kind: str
    chips: Sequence[Chip]


@dataclass(frozen=True, slots=True)
class ListHistory:
    """Trends and lags by topic name; empty if only the current page needs them."""

    trends: Mapping[str, Spark]
    lags: Mapping[str, TopicLag]

    @classmethod
    def to_sort(cls, table: Table, topics: Sequence[Topic]) -> ListHistory:
        """Return the history of all topics that the table's order depends on."""
        names = [topic.name for topic in topics]
        return cls(
            trends=trends_of(names) if table.sort_name == "trend" else {},
            lags=topic_lags(names, now_ms()) if table.sort_name == "lag" else {},
        )


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A row of the list."""

    topic: Topic
    traffic: Traffic | None
    spark: Spark | None
    lag: TopicLag | None
    label: Label | None = None

    @property
    def kind_label(self) -> str:
        return str(KIND_LABELS[self.topic.kind])

    @property
    def kind_state(self) -> str:
        return KIND_STATES.get(self.topic.kind, "")


def trends_of(names: Sequence[str]) -> Mapping[str, Spark]:
    return sparks(TOPIC, names, RECEIVED, now_ms())


def found_topics(matching: Sequence[Topic], kind: str) -> FoundTopics:
    """Return the matching topics of a kind; normal topics by default."""
    counts = Counter(topic.kind for topic in matching)
    chips = [Chip("all", _("All"), len(matching))]
    chips += [Chip(each, str(label), counts[each]) for each, label in KIND_LABELS.items()]
    if kind not in {chip.value for chip in chips}:
        kind = TopicKind.NORMAL
    return FoundTopics([topic for topic in matching if kind in {"all", topic.kind}], kind, chips)


def sorted_topics(
    table: Table, topics: Sequence[Topic], history: ListHistory, labels: Mapping[str, Label]
) -> list[Topic]:
    """Return topics in the table's order."""
    return table.sorted(
        topics,
        {
            "topic": lambda topic: topic.name.lower(),
            "owner": lambda topic: owner_in(labels.get(topic.name)),
            "queues": lambda topic: topic.write_queue_nums,
            "trend": lambda topic: last_of(history.trends.get(topic.name)),
            "lag": lambda topic: lag_in(history.lags.get(topic.name)),
        },
    )


def topic_rows(
    topics: Sequence[Topic], history: ListHistory, labels: Mapping[str, Label]
) -> list[TopicRow]:
    """Return the rows of a page, with traffic and history."""
    names = [topic.name for topic in topics]
    traffic = gateway().topics.traffic(names) if topics else {}
    trends = history.trends or trends_of(names)
    lags = history.lags or topic_lags(names, now_ms())
    return [
        TopicRow(
            topic,
            traffic.get(topic.name),
            trends.get(topic.name),
            lags.get(topic.name),
            labels.get(topic.name),
        )
        for topic in topics
    ]


def lag_in(found: TopicLag | None) -> int | None:
    return None if found is None else found.lag
