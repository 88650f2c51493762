"""Views of topics: list, status, create, change, delete."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from console.accounts.actions import Action
from console.accounts.permissions import form_for, page
from console.broker.configs import labels
from console.broker.configs.labels import label_of, labels_of
from console.broker.configs.pages import (
    ConfigPages,
    Requests,
    Words,
    addressed,
    refuse_system,
    state_of,
)
from console.broker.topics.as_file import topics_file
from console.broker.topics.forms import TopicForm
from console.broker.topics.rates import queue_rates
from console.broker.topics.retention import oldest_of
from console.broker.topics.shrinking import draining_of, objection
from console.gateway.access import gateway
from console.gateway.answers import TopicConfig, TopicKind, known_lag
from console.gateway.errors import GatewayError
from console.lib.lists import Chip, page_of, search_text, shorten
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.lib.table_file import file_address, is_file_asked
from console.lib.tables import Column, Table
from console.observe.history.metrics import PUT, RETAINED, TOPIC
from console.observe.history.pages import history_context
from console.observe.history.reading import Spark, fill_sparks, last_of, sparks, subject_sparks
from console.observe.history.series import Line
from console.observe.history.topic_lags import TopicLag, topic_lags
from console.observe.history.without_brokers import with_history_fallback
from console.people.audit.record import change
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
from console.ui.danger import Danger, Effect, ask, confirmation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.http import HttpRequest, HttpResponse

    from console.broker.configs.models import Label
    from console.gateway.answers import QueueStatus, Topic, Traffic
    from console.lib.stored import BrokerQueue
    from console.people.audit.models import Entry


KIND_LABELS = {
    TopicKind.NORMAL: gettext_lazy("Normal"),
    TopicKind.RETRY: gettext_lazy("Retry"),
    TopicKind.DLQ: gettext_lazy("Dead letter"),
    TopicKind.SYSTEM: gettext_lazy("System"),
}


WORDS = Words(
    plural=gettext_lazy("Topics"),
    new=gettext_lazy("New topic"),
    created=gettext_lazy("Topic %(name)s was created."),
    edit=gettext_lazy("Edit topic"),
    changed=gettext_lazy("Topic %(name)s was changed."),
    deleted=gettext_lazy("Topic %(name)s was deleted."),
    undone=gettext_lazy("Topic %(name)s was restored."),
)


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


TILES = {"received": Line("", PUT), "retained": Line("", RETAINED)}


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
    kind = request.GET.get("kind", TopicKind.NORMAL)
    every = list(gateway().topics.all().values())
    labels = labels_of(TOPIC)
    owners = {name: each.owner.lower() for name, each in labels.items()}
    matching = [
        topic
        for topic in every
        if query.lower() in topic.name.lower() or query.lower() in owners.get(topic.name, "")
    ]
    counts = Counter(topic.kind for topic in matching)
    chips = [Chip("all", _("All"), len(matching))]
    chips += [Chip(each, str(label), counts[each]) for each, label in KIND_LABELS.items()]
    if kind not in {chip.value for chip in chips}:
        kind = TopicKind.NORMAL
    shown = [topic for topic in matching if kind in {"all", topic.kind}]
    table = Table(request, COLUMNS, sort="topic")
    received = Line("received", PUT)
    # Sorting needs the history of all topics; otherwise the current page's is enough.
    trends = (
        sparks(TOPIC, [topic.name for topic in shown], received, now_ms())
        if table.sort_name == "trend"
        else {}
    )
    # The same applies to the lag.
    every_lag = (
        topic_lags([topic.name for topic in shown], now_ms()) if table.sort_name == "lag" else {}
    )
    ordered = table.sorted(
        shown,
        {
            "topic": lambda topic: topic.name.lower(),
            "owner": lambda topic: owners.get(topic.name) or None,
            "queues": lambda topic: topic.write_queue_nums,
            "trend": lambda topic: last_of(trends.get(topic.name)),
            "lag": lambda topic: lag_in(every_lag.get(topic.name)),
        },
    )
    if is_file_asked(request):
        return topics_file(ordered)
    rows = page_of(request, ordered)
    topics = list(rows.object_list)
    names = [topic.name for topic in topics]
    traffic = gateway().topics.traffic(names) if topics else {}
    received_of = trends or sparks(TOPIC, names, received, now_ms())
    lags = every_lag or topic_lags(names, now_ms())
    context = {
        "table": table,
        "file_address": file_address(request),
        "rows": [
            TopicRow(
                topic,
                traffic.get(topic.name),
                received_of.get(topic.name),
                lags.get(topic.name),
                labels.get(topic.name),
            )
            for topic in topics
        ],
        "page": rows,
        "chips": chips,
        "kind": kind,
        "query": query,
        "is_narrowed": bool(query)
        or kind != TopicKind.NORMAL
        or any(topic.kind is TopicKind.NORMAL for topic in every),
        "read_at_ms": now_ms(),
    }
    return render(request, "topics/list.html", context)


def lag_in(found: TopicLag | None) -> int | None:
    return None if found is None else found.lag


def get_topic(name: str) -> Topic:
    """Return a topic by name, or the 404 page."""
    topic = gateway().topics.all().get(name)
    if topic is None:
        raise MissingError(
            _(
                "No broker has a topic named %(name)s. It may have been deleted. Names are "
                "case-sensitive."
            )
            % {"name": name}
        )
    return topic


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


def every() -> Mapping[str, Topic]:
    return gateway().topics.all()


def save(config: TopicConfig, broker_names: Sequence[str]) -> None:
    gateway().topics.save(config, broker_names)


def remove(topic: str) -> None:
    gateway().topics.delete(topic)


def in_use(topic: str) -> str | None:
    """Return why a topic that was just created can't simply be deleted."""
    stored = sum(row.message_count for row in gateway().topics.status(topic))
    if not stored:
        return None
    return ngettext(
        "The topic now holds %(count)d message. To delete it anyway, open the topic's page.",
        "The topic now holds %(count)d messages. To delete them anyway, open the topic's page.",
        stored,
    ) % {"count": stored}


def danger_of(topic: Topic) -> Danger:
    """Return the effects of deleting a topic, and the required confirmation."""
    detail_page = reverse("topics:detail", args=[topic.name])
    status = gateway().topics.status(topic.name)
    groups = gateway().topics.consumers(topic.name)
    connections = gateway().groups.connections_of(groups) if groups else {}
    online = sum(each.is_online for each in connections.values())
    return Danger(
        title=_("Delete topic %(name)s?") % {"name": topic.name},
        text=_(
            "The brokers delete its queues and all consumer offsets in it. They then reject "
            "its producers, unless topic auto-creation is on."
        ),
        effects=(
            Effect(
                _("Messages retained"),
                sum(row.message_count for row in status),
                _("lost permanently"),
                is_bad=True,
            ),
            Effect(_("Queues"), len(status), ", ".join(topic.configs)),
            Effect(_("Groups that lose their offsets here"), len(groups), shorten(groups)),
            Effect(_("Groups with connected consumers"), online, is_bad=True),
        ),
        undo=_("The messages can't be restored. Undo recreates the topic, empty."),
        action=_("Delete topic"),
        keep=_("Cancel"),
        address=reverse("topics:delete", args=[topic.name]),
        back=detail_page,
        name=topic.name,
    )


def purge_danger(topic: Topic) -> Danger:
    """Return the effects of purging a topic, and the required confirmation."""
    of_delete = danger_of(topic)
    return replace(
        of_delete,
        title=_("Purge topic %(name)s?") % {"name": topic.name},
        text=_(
            "Brokers can't empty a topic, so the console deletes it and creates it again with "
            "the same settings. Its queues start at 0. Producers may be rejected for a moment, "
            "and connected consumers find the new queues within 30 seconds."
        ),
        undo=_("The messages can't be restored."),
        action=_("Purge topic"),
        icon="eraser",
        address=reverse("topics:purge", args=[topic.name]),
    )


@form_for(Action.TOPIC, "topic")
def purge(request: HttpRequest, topic: str) -> HttpResponse:
    """Purge a topic: delete it, and recreate it with the same configuration on each broker."""
    subject = get_topic(topic)
    if subject.is_system or subject.kind is not TopicKind.NORMAL:
        raise PermissionDenied
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


def purge_topic(request: HttpRequest, subject: Topic, deleted: list[Entry]) -> Entry:
    """Delete and recreate a topic under an audit entry, which `deleted` gets in between.

    Raises:
        GatewayError: a broker refused; if `deleted` has the entry, the topic is gone.
    """
    before = {"configs": state_of(subject)}
    with change(request, "topic.purge", subject.name, before=before) as entry:
        gateway().topics.delete(subject.name)
        deleted.append(entry)
        for broker_name, config in subject.configs.items():
            gateway().topics.save(config, [broker_name])
    return entry


PAGES = ConfigPages(
    "topic",
    "topics",
    WORDS,
    TopicForm,
    TopicConfig,
    Requests(every, save, remove, in_use, objection),
)


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
        act=lambda: gateway().topics.delete(topic),
        before=lambda: {"configs": state_of(subject)},
    )


@form_for(Action.TOPIC, "topic")
def label(request: HttpRequest, topic: str) -> HttpResponse:
    subject = get_topic(topic)
    refuse_system(subject)
    return labels.edit(request, PAGES, topic)


@form_for(Action.TOPIC)
def label_undo(request: HttpRequest, entry: int) -> HttpResponse:
    return labels.undo(request, PAGES, entry)
