"""Views of topics: list, status, create, change, delete."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _, gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.permissions import administrator_required
from console.audit.record import change
from console.gateway.access import gateway
from console.gateway.answers import TopicKind
from console.gateway.errors import GatewayError
from console.gateway.moment import now_ms
from console.topics.forms import TopicForm
from console.topics.rates import queue_rates

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.gateway.answers import QueueStatus, Topic, Traffic

ROWS_A_PAGE = 50
FILTER_CHARACTERS_MAX = 255

KIND_LABELS = {
    TopicKind.NORMAL: gettext_lazy("Normal"),
    TopicKind.RETRY: gettext_lazy("Retry"),
    TopicKind.DLQ: gettext_lazy("Dead letter"),
    TopicKind.SYSTEM: gettext_lazy("System"),
}


@dataclass(frozen=True, slots=True)
class KindChip:
    """A choice above the list."""

    value: str
    label: str
    count: int


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A line of the list."""

    topic: Topic
    traffic: Traffic | None

    @property
    def kind_label(self) -> str:
        return str(KIND_LABELS[self.topic.kind])


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue's ends with how fast it fills."""

    status: QueueStatus
    rate: float | None


@require_safe
@never_cache
def listing(request: HttpRequest) -> HttpResponse:
    query = request.GET.get("q", "").strip()[:FILTER_CHARACTERS_MAX]
    kind = request.GET.get("kind", TopicKind.NORMAL)
    every = list(gateway().topics().values())
    matching = [topic for topic in every if query.lower() in topic.name.lower()]
    counts = Counter(topic.kind for topic in matching)
    chips = [KindChip("all", _("All"), len(matching))]
    chips += [KindChip(each, str(label), counts[each]) for each, label in KIND_LABELS.items()]
    if kind not in {chip.value for chip in chips}:
        kind = TopicKind.NORMAL
    shown = [topic for topic in matching if kind in {"all", topic.kind}]
    page = Paginator(shown, ROWS_A_PAGE).get_page(request.GET.get("page"))
    topics = list(page.object_list)
    traffic = gateway().topic_traffic([topic.name for topic in topics]) if topics else {}
    context = {
        "rows": [TopicRow(topic, traffic.get(topic.name)) for topic in topics],
        "page": page,
        "chips": chips,
        "kind": kind,
        "query": query,
        "is_filtered": bool(query),
        "has_topics": any(topic.kind is TopicKind.NORMAL for topic in every),
        "read_at_ms": now_ms(),
    }
    return render(request, "topics/list.html", context)


def found(name: str) -> Topic:
    """Return a topic by name, or the 404 page."""
    topic = gateway().topics().get(name)
    if topic is None:
        raise Http404
    return topic


def queue_context(topic: Topic) -> dict[str, Any]:
    status = gateway().topic_status(topic.name)
    read_at_ms = now_ms()
    rates = queue_rates(topic.name, status, read_at_ms)
    rows = [QueueRow(row, rates.get((row.broker_name, row.queue_id))) for row in status]
    updates = [row.last_update_ms for row in status if row.last_update_ms is not None]
    return {
        "topic": topic,
        "rows": rows,
        "message_count": sum(row.message_count for row in status),
        "last_update_ms": max(updates, default=None),
        "rate": sum(rates.values()) if len(rates) == len(status) and rates else None,
        "read_at_ms": read_at_ms,
    }


@require_safe
@never_cache
def detail(request: HttpRequest, topic: str) -> HttpResponse:
    subject = found(topic)
    groups = gateway().topic_groups(topic)
    progresses = gateway().progresses(groups) if groups else {}
    connections = gateway().online_groups(groups) if groups else {}
    group_rows = [
        {
            "name": group,
            "members": len(connections[group].members),
            "lag": sum(
                row.lag
                for row in progresses[group].queues
                if row.topic == topic and row.lag is not None
            ),
        }
        for group in groups
    ]
    context = queue_context(subject) | {
        "groups": group_rows,
        "traffic": gateway().topic_traffic([topic])[topic],
        "kind_label": KIND_LABELS[subject.kind],
    }
    return render(request, "topics/detail.html", context)


@require_safe
@never_cache
def queues(request: HttpRequest, topic: str) -> HttpResponse:
    """Show the part of the page that refreshes itself."""
    return render(request, "topics/_queues.html", queue_context(found(topic)))


@administrator_required
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def create(request: HttpRequest) -> HttpResponse:
    brokers = [node.broker_name for node in gateway().cluster().masters]
    form = TopicForm(
        request.POST or None, broker_names=brokers, taken=gateway().topics() if request.POST else ()
    )
    if request.method == "POST" and form.is_valid():
        config = form.config()
        chosen = form.cleaned_data["broker_names"]
        after = asdict(config) | {"brokers": chosen}
        try:
            with change(request, "topic.create", config.topic, after=after):
                gateway().save_topic(config, chosen)
        except GatewayError as error:
            form.add_error(None, error.what)
        else:
            messages.success(request, _("Topic %(topic)s is created.") % {"topic": config.topic})
            return redirect("topics:detail", config.topic)
    return render(request, "topics/form.html", {"form": form, "is_new": True})


@administrator_required
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def edit(request: HttpRequest, topic: str) -> HttpResponse:
    subject = found(topic)
    refuse_system(subject)
    original = next(iter(subject.configs.values()))
    form = TopicForm(request.POST or None, broker_names=list(subject.configs), original=original)
    if request.method == "POST" and form.is_valid():
        config = form.config()
        chosen = form.cleaned_data["broker_names"]
        before = {name: asdict(subject.configs[name]) for name in chosen}
        after = {name: asdict(config) for name in chosen}
        try:
            with change(request, "topic.update", topic, before=before, after=after):
                gateway().save_topic(config, chosen)
        except GatewayError as error:
            form.add_error(None, error.what)
        else:
            messages.success(request, _("Topic %(topic)s is changed.") % {"topic": topic})
            return redirect("topics:detail", topic)
    context = {"form": form, "is_new": False, "topic": subject}
    return render(request, "topics/form.html", context)


@administrator_required
@require_POST
def delete(request: HttpRequest, topic: str) -> HttpResponse:
    subject = found(topic)
    refuse_system(subject)
    if request.POST.get("name") != topic:
        messages.error(request, _("The name typed is not the topic's; nothing was deleted."))
        return redirect("topics:detail", topic)
    before = {name: asdict(config) for name, config in subject.configs.items()}
    try:
        with change(request, "topic.delete", topic, before=before):
            gateway().delete_topic(topic)
    except GatewayError as error:
        messages.error(request, error.what)
        return redirect("topics:detail", topic)
    messages.success(request, _("Topic %(topic)s is deleted.") % {"topic": topic})
    return redirect("topics:list")


def refuse_system(topic: Topic) -> None:
    """Keep what the broker itself depends on out of reach, whatever the page offered."""
    if topic.kind is TopicKind.SYSTEM:
        raise PermissionDenied
