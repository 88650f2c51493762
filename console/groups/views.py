"""Views of subscription groups: list, members, progress, configuration."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.permissions import administrator_required
from console.audit.record import change
from console.gateway.access import gateway
from console.gateway.answers import TopicKind
from console.gateway.errors import GatewayError
from console.gateway.kinds import topic_kind
from console.gateway.moment import now_ms
from console.groups.forms import GroupForm

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.gateway.answers import ConsumeProgress, Group, GroupConnections, QueueProgress

ROWS_A_PAGE = 50
FILTER_CHARACTERS_MAX = 255


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A line of the list."""

    group: Group
    connections: GroupConnections
    progress: ConsumeProgress

    @property
    def is_left_alone(self) -> bool:
        return not self.connections.is_online and self.progress.lag > 0


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """A group's progress in one topic."""

    topic: str
    is_retry: bool
    queues: tuple[QueueProgress, ...]

    @property
    def lag(self) -> int:
        return sum(row.lag for row in self.queues if row.lag is not None)


@require_safe
@never_cache
def listing(request: HttpRequest) -> HttpResponse:
    query = request.GET.get("q", "").strip()[:FILTER_CHARACTERS_MAX]
    kind = "system" if request.GET.get("kind") == "system" else "own"
    every = list(gateway().groups().values())
    matching = [group for group in every if query.lower() in group.name.lower()]
    shown = [group for group in matching if group.is_system == (kind == "system")]
    page = Paginator(shown, ROWS_A_PAGE).get_page(request.GET.get("page"))
    names = [group.name for group in page.object_list]
    connections = gateway().online_groups(names) if names else {}
    progresses = gateway().progresses(names) if names else {}
    system_count = sum(group.is_system for group in matching)
    context = {
        "rows": [
            GroupRow(group, connections[group.name], progresses[group.name])
            for group in page.object_list
        ],
        "page": page,
        "query": query,
        "kind": kind,
        "own_count": len(matching) - system_count,
        "system_count": system_count,
        "has_groups": any(not group.is_system for group in every),
        "read_at_ms": now_ms(),
    }
    return render(request, "groups/list.html", context)


def found(name: str) -> Group:
    """Return a group by name, or the 404 page."""
    group = gateway().groups().get(name)
    if group is None:
        raise Http404
    return group


def progress_context(name: str) -> dict[str, Any]:
    progress = gateway().progress(name)
    by_topic: dict[str, list[QueueProgress]] = {}
    for row in progress.queues:
        by_topic.setdefault(row.topic, []).append(row)
    topics = [
        TopicProgress(topic, topic_kind(topic) is TopicKind.RETRY, tuple(rows))
        for topic, rows in by_topic.items()
    ]
    return {
        "progress": progress,
        "connections": gateway().connections(name),
        "topics": sorted(topics, key=lambda each: (each.is_retry, each.topic)),
    }


@require_safe
@never_cache
def detail(request: HttpRequest, group: str) -> HttpResponse:
    context = {"group": found(group)} | progress_context(group)
    return render(request, "groups/detail.html", context)


@require_safe
@never_cache
def progress(request: HttpRequest, group: str) -> HttpResponse:
    """Show the part of the page that refreshes itself."""
    context = {"group": found(group)} | progress_context(group)
    return render(request, "groups/_progress.html", context)


@administrator_required
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def create(request: HttpRequest) -> HttpResponse:
    brokers = [node.broker_name for node in gateway().cluster().masters]
    form = GroupForm(
        request.POST or None, broker_names=brokers, taken=gateway().groups() if request.POST else ()
    )
    if request.method == "POST" and form.is_valid():
        config = form.config()
        chosen = form.cleaned_data["broker_names"]
        try:
            after = asdict(config) | {"brokers": chosen}
            with change(request, "group.create", config.group, after=after):
                gateway().save_group(config, chosen)
        except GatewayError as error:
            form.add_error(None, error.what)
        else:
            messages.success(request, _("Group %(group)s is created.") % {"group": config.group})
            return redirect("groups:detail", config.group)
    return render(request, "groups/form.html", {"form": form, "is_new": True})


@administrator_required
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def edit(request: HttpRequest, group: str) -> HttpResponse:
    subject = found(group)
    refuse_system(subject)
    original = subject.config
    if original is None:
        raise Http404
    form = GroupForm(request.POST or None, broker_names=list(subject.configs), original=original)
    if request.method == "POST" and form.is_valid():
        config = form.config()
        chosen = form.cleaned_data["broker_names"]
        before = {name: asdict(subject.configs[name]) for name in chosen}
        after = {name: asdict(config) for name in chosen}
        try:
            with change(request, "group.update", group, before=before, after=after):
                gateway().save_group(config, chosen)
        except GatewayError as error:
            form.add_error(None, error.what)
        else:
            messages.success(request, _("Group %(group)s is changed.") % {"group": group})
            return redirect("groups:detail", group)
    context = {"form": form, "is_new": False, "group": subject}
    return render(request, "groups/form.html", context)


@administrator_required
@require_POST
def delete(request: HttpRequest, group: str) -> HttpResponse:
    subject = found(group)
    refuse_system(subject)
    if request.POST.get("name") != group:
        messages.error(request, _("The name typed is not the group's; nothing was deleted."))
        return redirect("groups:detail", group)
    if gateway().connections(group).is_online:
        messages.error(
            request,
            _("Group %(group)s has members; stop them first, else it comes back at once.")
            % {"group": group},
        )
        return redirect("groups:detail", group)
    remove_offset = request.POST.get("remove_offset") == "on"
    before = {
        "configs": {name: asdict(config) for name, config in subject.configs.items()},
        "offsets": offset_snapshot(group),
    }
    try:
        with change(request, "group.delete", group, before=before):
            gateway().delete_group(group, remove_offset=remove_offset)
    except GatewayError as error:
        messages.error(request, error.what)
        return redirect("groups:detail", group)
    messages.success(request, _("Group %(group)s is deleted.") % {"group": group})
    return redirect("groups:list")


def offset_snapshot(group: str) -> list[dict[str, Any]]:
    """Return a group's consumer offsets as the audit keeps them."""
    return [
        {
            "topic": row.topic,
            "broker": row.broker_name,
            "queue": row.queue_id,
            "offset": str(row.consumer_offset),
        }
        for row in gateway().progress(group).queues
        if row.consumer_offset is not None
    ]


def refuse_system(group: Group) -> None:
    if group.is_system:
        raise PermissionDenied
