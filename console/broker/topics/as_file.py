"""The list of topics as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.lib.moment import now_ms
from console.lib.table_file import csv_file
from console.observe.history.topic_lags import topic_lags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpResponse

    from console.gateway.answers import Topic

HEAD = (
    "topic",
    "type",
    "write_queues",
    "read_queues",
    "permission",
    "ordered",
    "brokers",
    "groups",
    "lag",
    "furthest_behind",
)


def topics_file(topics: Sequence[Topic]) -> HttpResponse:
    lags = topic_lags([topic.name for topic in topics], now_ms())

    def row(topic: Topic) -> tuple[object, ...]:
        lag = lags.get(topic.name)
        behind = (None, None, None) if lag is None else (lag.groups, lag.lag, lag.worst)
        queues = (topic.write_queue_nums, topic.read_queue_nums)
        brokers = " ".join(topic.configs)
        may = "r" * topic.is_readable + "w" * topic.is_writable
        return topic.name, topic.kind.value, *queues, may, topic.order, brokers, *behind

    return csv_file("topics", HEAD, map(row, topics))
