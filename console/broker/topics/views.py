"""Views of topics: list, status, create, change, delete."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import form_for, page
from console.broker.configs import label_pages
from console.broker.configs.labels import label_of, labels_of, matching
from console.broker.configs.pages import (
    ConfigPages,
)
from console.broker.configs.services import addressed, refuse_system, state_of
from console.broker.topics.as_file import topics_file
from console.broker.topics.listing import (
    COLUMNS,
    KIND_LABELS,
    ListHistory,
    found_topics,
    sorted_topics,
    topic_rows,
)
from console.broker.topics.rates import queue_rates
from console.broker.topics.retention import oldest_of
from console.broker.topics.services import (
    TOPICS,
    danger_of,
    delete_topic,
    get_topic,
    purge_danger,
    purge_topic,
    require_purgeable,
)
from console.broker.topics.shrinking import draining_of
from console.gateway.access import gateway
from console.gateway.answers import TopicKind, known_lag
from console.gateway.errors import GatewayError
from console.lib.lists import page_of, search_text
from console.lib.moment import now_ms
from console.lib.table_file import file_address, is_file_asked
from console.lib.tables import Table
from console.observe.history.metrics import PUT, RETAINED, TOPIC
from console.observe.history.pages import history_context
from console.observe.history.reading import Spark, fill_sparks, subject_sparks
from console.observe.history.series import Line
from console.observe.history.without_brokers import with_history_fallback
from console.people.audit.undo import undo_address
from console.ui.copies import (
    CopyText,
    api_texts,
    json_text,
    mqadmin,
    mqadmin_text,
    name_servers,
    plain_text,
)
from console.ui.danger import ask, confirmation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.http import HttpRequest, HttpResponse

    from console.gateway.answers import QueueStatus, Topic
    from console.lib.stored import BrokerQueue
    from console.people.audit.models import Entry


TILES = {"received": Line("", PUT), "retained": Line("", RETAINED)}


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue's offsets, its write rate now and in the last hour, and its share of that hour."""

    status: QueueStatus
    rate: float | None
    spark: Spark | None = None
    share: float | None = None
    oldest_ms: int | None = None


@page
def listing(request: HttpRequest) -> HttpResponse:
    query = search_text(request)
    every = list(gateway().topics.all().values())
    labels = labels_of(TOPIC)
    found = found_topics(matching(every, query, labels), request.GET.get("kind", ""))
    table = Table(request, COLUMNS, sort="topic")
    history = ListHistory.to_sort(table, found.shown)
    ordered = sorted_topics(table, found.shown, history, labels)
    if is_file_asked(request):
        return topics_file(ordered)
    rows = page_of(request, ordered)
    context = {
        "table": table,
        "file_address": file_address(request),
        "rows": topic_rows(list(rows.object_list), history, labels),
        "page": rows,
        "chips": found.chips,
        "kind": found.kind,
        "query": query,
        "is_narrowed": bool(query)
        or found.kind != TopicKind.NORMAL
        or any(topic.kind is TopicKind.NORMAL for topic in every),
        "read_at_ms": now_ms(),
    }
    return render(request, "topics/list.html", context)


def queue_context(topic: Topic) -> dict[str, Any]:
    status = gateway().topics.status(topic.name)
    read_at_ms = now_ms()
    rates = queue_rates(topic.name, status, read_at_ms)
    spark_of = fill_sparks(topic.name, read_at_ms)
    hours = {row.queue: spark_of(row.broker_name, row.queue_id) for row in status}
    shares = shares_of(hours)
    oldest = oldest_of(topic.name, status)
    rows = [
        QueueRow(
            row,
            rates.get(row.queue),
            hours[row.queue],
            shares.get(row.queue),
            oldest.get(row.queue),
        )
        for row in status
    ]
    updates = [row.last_update_ms for row in status if row.last_update_ms is not None]
    return {
        "topic": topic,
        "rows": rows,
        "draining": draining_of(topic, status),
        "message_count": sum(row.message_count for row in status),
        "last_update_ms": max(updates, default=None),
        "sparks": subject_sparks(TOPIC, topic.name, TILES, read_at_ms),
        "rate": sum(rates.values()) if len(rates) == len(status) and rates else None,
        "read_at_ms": read_at_ms,
    }


def shares_of(hours: Mapping[BrokerQueue, Spark | None]) -> dict[BrokerQueue, float]:
    """Return each queue's share of the last hour's messages; empty without messages."""
    sums = {
        queue: sum(value or 0 for value in spark.values)
        for queue, spark in hours.items()
        if spark is not None and spark.is_known
    }
    total = sum(sums.values())
    return {queue: each / total for queue, each in sums.items()} if total else {}


def copies_of(topic: Topic) -> list[CopyText]:
    """Return texts that recreate or read the topic elsewhere."""
    made = []
    for address, config in addressed(topic.configs):
        made.append(
            mqadmin(
                "updateTopic",
                {
                    "b": address,
                    "t": topic.name,
                    "r": config.read_queue_nums,
                    "w": config.write_queue_nums,
                    "p": config.perm,
                    "o": config.order,
                },
            )
        )
    read = (
        'messages = (\n    spark.read.format("rocketmq")\n'
        f'    .option("namesrvAddr", {json.dumps(name_servers())})\n'
        f'    .option("subscribe", {json.dumps(topic.name)})\n    .load()\n)'
    )
    return [
        mqadmin_text(made, _("mqadmin: create an identical group")),
        mqadmin_text([mqadmin("topicStatus", {"t": topic.name})], _("mqadmin: queue status")),
        CopyText(_("Python: read messages with Spark"), read),
        *api_texts("topic", topic.name),
        json_text(state_of(topic)),
        plain_text(topic.name),
    ]


@page
@with_history_fallback(TOPIC, lambda topic: topic)
def detail(request: HttpRequest, topic: str) -> HttpResponse:
    subject = get_topic(topic)
    groups = gateway().topics.consumers(topic)
    progresses = gateway().groups.progress_of(groups) if groups else {}
    connections = gateway().groups.connections_of(groups) if groups else {}
    group_rows = [
        {
            "name": group,
            "members": len(connections[group].members),
            "lag": known_lag(progresses[group].in_topic(topic)),
            "is_beyond_end": any(row.is_beyond_end for row in progresses[group].in_topic(topic)),
        }
        for group in groups
    ]
    context = queue_context(subject) | {
        "groups": group_rows,
        "traffic": gateway().topics.traffic([topic])[topic],
        "kind_label": KIND_LABELS[subject.kind],
        "is_clients": subject.kind is TopicKind.NORMAL,
        "pages": PAGES,
        "subject": subject,
        "label": label_of(TOPIC, topic),
        "copies": copies_of(subject),
    }
    context |= history_context(request, TOPIC, topic)
    return render(request, "topics/detail.html", context)


@page
def queues(request: HttpRequest, topic: str) -> HttpResponse:
    """Show the part of the page that refreshes itself."""
    return render(request, "topics/_queues.html", queue_context(get_topic(topic)))


@form_for(Action.TOPIC, "topic")
def purge(request: HttpRequest, topic: str) -> HttpResponse:
    """Purge a topic: delete it, and recreate it with the same configuration on each broker."""
    subject = get_topic(topic)
    require_purgeable(subject)
    danger = purge_danger(subject)
    question = confirmation(request, danger)
    if question is not None:
        return question
    deleted: list[Entry] = []
    try:
        purge_topic(request, subject, deleted)
    except GatewayError as error:
        problem = f"{error.what} {error.advice}".strip()
        if not deleted:
            return ask(request, replace(danger, problem=problem))
        text = _("Topic %(name)s was deleted, but wasn't recreated on every broker: %(problem)s")
        messages.error(request, text % {"name": topic, "problem": problem})
        return redirect(undo_address(deleted[0]))
    messages.success(request, _("Topic %(name)s was purged.") % {"name": topic})
    return redirect("topics:detail", topic)


PAGES = ConfigPages(TOPICS, "topics")


@form_for(Action.TOPIC)
def create(request: HttpRequest) -> HttpResponse:
    return PAGES.create(request)


@form_for(Action.TOPIC, "topic")
def edit(request: HttpRequest, topic: str) -> HttpResponse:
    return PAGES.edit(request, get_topic(topic))


@form_for(Action.TOPIC)
def undo(request: HttpRequest, entry: int) -> HttpResponse:
    return PAGES.undo(request, entry)


@form_for(Action.TOPIC, "topic")
def delete(request: HttpRequest, topic: str) -> HttpResponse:
    subject = get_topic(topic)
    return PAGES.delete(
        request,
        subject,
        danger_of(subject),
        lambda: delete_topic(request, subject),
    )


@form_for(Action.TOPIC, "topic")
def label(request: HttpRequest, topic: str) -> HttpResponse:
    subject = get_topic(topic)
    refuse_system(subject)
    return label_pages.edit(request, PAGES, topic)


@form_for(Action.TOPIC)
def label_undo(request: HttpRequest, entry: int) -> HttpResponse:
    return label_pages.undo(request, PAGES, entry)
