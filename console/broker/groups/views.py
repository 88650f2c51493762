"""Views of consumer groups: list, consumers, progress, configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from broker_core.message.names import dlq_topic
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
from console.broker.groups.as_file import groups_file
from console.broker.groups.forms import GroupForm
from console.broker.groups.progress import progress_context
from console.broker.groups.states import group_states
from console.gateway.access import gateway
from console.gateway.answers import GroupConfig
from console.lib.lists import Chip, page_of, search_text
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue
from console.lib.table_file import file_address, is_file_asked
from console.lib.tables import Column, Table
from console.observe.history.metrics import GROUP, LAG
from console.observe.history.pages import history_context
from console.observe.history.reading import Spark, last_of, sparks
from console.observe.history.series import Aspect, Line
from console.observe.history.without_brokers import with_history_fallback
from console.observe.overview.states import has_no_consumers
from console.ui.copies import CopyText, api_texts, json_text, mqadmin, mqadmin_text, plain_text
from console.ui.danger import Choice, Danger, Effect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.http import HttpRequest, HttpResponse

    from console.broker.configs.models import Label
    from console.broker.groups.states import GroupState
    from console.gateway.answers import (
        ConsumeProgress,
        Group,
        GroupConnections,
        QueueProgress,
    )
    from console.people.audit.models import Entry

OWN, SYSTEM = "own", "system"

WORDS = Words(
    plural=gettext_lazy("Groups"),
    new=gettext_lazy("New subscription group"),
    created=gettext_lazy("Group %(name)s was created."),
    edit=gettext_lazy("Edit group"),
    changed=gettext_lazy("Group %(name)s was changed."),
    deleted=gettext_lazy("Group %(name)s was deleted."),
    undone=gettext_lazy("Group %(name)s was restored."),
)


COLUMNS = (
    Column("group", gettext_lazy("Group"), is_sorted=True),
    Column("owner", gettext_lazy("Owner"), is_sorted=True, is_extra=True),
    Column("state", gettext_lazy("State"), is_fact=True),
    Column("reading", gettext_lazy("Consumption"), is_sorted=True, is_fact=True),
    Column("members", gettext_lazy("Consumers"), is_number=True, is_fact=True),
    Column("topics", gettext_lazy("Topics"), is_number=True, css="muted"),
    Column("trend", gettext_lazy("Trend"), "1 h", css="spark-cell"),
    Column(
        "lag",
        gettext_lazy("Lag"),
        gettext_lazy("msg"),
        is_number=True,
        is_sorted=True,
        is_fact=True,
    ),
    Column("consumed", gettext_lazy("Consumed"), gettext_lazy("msg/s"), is_number=True),
    Column("last", gettext_lazy("Store time of the last consumed message")),
)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A row of the list."""

    group: Group
    connections: GroupConnections
    progress: ConsumeProgress
    lag: Spark | None
    reading: GroupState
    label: Label | None = None

    @property
    def is_abandoned(self) -> bool:
        return has_no_consumers(self.progress, self.connections)


@page
def listing(request: HttpRequest) -> HttpResponse:
    query = search_text(request)
    kind = SYSTEM if request.GET.get("kind") == SYSTEM else OWN
    every = list(gateway().groups.all().values())
    labels = labels_of(GROUP)
    owners = {name: each.owner.lower() for name, each in labels.items()}
    matching = [
        group
        for group in every
        if query.lower() in group.name.lower() or query.lower() in owners.get(group.name, "")
    ]
    shown = [group for group in matching if group.is_system == (kind == SYSTEM)]
    table = Table(request, COLUMNS, sort="group")
    lag = Line("lag", LAG, Aspect.PEAK)
    # Sorting needs the history of all groups; otherwise the current page's is enough.
    trends = (
        sparks(GROUP, [group.name for group in shown], lag, now_ms())
        if table.sort_name in {"lag", "reading"}
        else {}
    )
    states = group_states(now_ms())
    ordered = table.sorted(
        shown,
        {
            "group": lambda group: group.name.lower(),
            "owner": lambda group: owners.get(group.name) or None,
            "reading": lambda group: (
                states.rank(group.name, trends.get(group.name)),
                group.name.lower(),
            ),
            "lag": lambda group: last_of(trends.get(group.name)),
        },
    )
    if is_file_asked(request):
        return groups_file(ordered, states)
    rows = page_of(request, ordered)
    names = [group.name for group in rows.object_list]
    connections = gateway().groups.connections_of(names) if names else {}
    progresses = gateway().groups.progress_of(names) if names else {}
    lags = trends or sparks(GROUP, names, lag, now_ms())
    system_count = sum(group.is_system for group in matching)
    context = {
        "table": table,
        "file_address": file_address(request),
        "rows": [
            GroupRow(
                group,
                connections[group.name],
                progresses[group.name],
                lags.get(group.name),
                states.of(
                    group.name,
                    has_committed=progresses[group.name].has_committed,
                    lag=lags.get(group.name),
                    is_abandoned=has_no_consumers(progresses[group.name], connections[group.name]),
                ),
                labels.get(group.name),
            )
            for group in rows.object_list
        ],
        "page": rows,
        "query": query,
        "kind": kind,
        "chips": [
            Chip(OWN, _("Client groups"), len(matching) - system_count),
            Chip(SYSTEM, _("System"), system_count),
        ],
        "is_narrowed": bool(query) or kind == SYSTEM or any(not group.is_system for group in every),
        "read_at_ms": now_ms(),
    }
    return render(request, "groups/list.html", context)


def get_group(name: str) -> Group:
    """Return a group by name, or the 404 page."""
    group = gateway().groups.all().get(name)
    if group is None:
        raise MissingError(
            _(
                "No broker has a group named %(name)s. It may have been deleted. Names are "
                "case-sensitive."
            )
            % {"name": name}
        )
    return group


def copies_of(group: Group) -> list[CopyText]:
    """Return texts that create or query the group elsewhere."""
    made = [
        mqadmin(
            "updateSubGroup",
            {
                "b": address,
                "g": group.name,
                "s": config.consume_enable,
                "m": config.consume_from_min_enable,
                "d": config.consume_broadcast_enable,
                "q": config.retry_queue_nums,
                "r": config.retry_max_times,
                "i": config.broker_id,
                "w": config.which_broker_when_consume_slowly,
                "a": config.notify_consumer_ids_changed_enable,
            },
        )
        for address, config in addressed(group.configs)
    ]
    asked = [
        mqadmin("consumerProgress", {"g": group.name}),
        mqadmin("consumerConnection", {"g": group.name}),
    ]
    found = [mqadmin_text(asked, _("mqadmin: progress and consumers"))]
    if made:
        found.insert(0, mqadmin_text(made, _("mqadmin: create an identical group")))
    asked_for = [*api_texts("group", group.name), json_text(state_of(group))]
    return [*found, *asked_for, plain_text(group.name)]


@page
@with_history_fallback(GROUP, lambda group: group)
def detail(request: HttpRequest, group: str) -> HttpResponse:
    subject = get_group(group)
    context = {
        "group": subject,
        "subject": subject,
        "label": label_of(GROUP, group),
        "pages": PAGES,
        "copies": copies_of(subject),
    }
    context |= history_context(request, GROUP, group)
    context |= progress_context(group)
    context["has_dead_letters"] = dlq_topic(group) in gateway().topics.all()
    return render(request, "groups/detail.html", context)


@page
def progress(request: HttpRequest, group: str) -> HttpResponse:
    """Show the part of the page that refreshes itself."""
    context = {"group": get_group(group)} | progress_context(group)
    return render(request, "groups/_progress.html", context)


def every() -> Mapping[str, Group]:
    return gateway().groups.all()


def save(config: GroupConfig, broker_names: Sequence[str]) -> None:
    gateway().groups.save(config, broker_names)


def remove(group: str) -> None:
    gateway().groups.delete(group, remove_offset=False)


def in_use(group: str) -> str | None:
    """Return why a group with consumers can't be deleted."""
    if not gateway().groups.connections(group).is_online:
        return None
    return _(
        "Group %(group)s has connected consumers. Stop them first; otherwise they recreate the "
        "group immediately."
    ) % {"group": group}


def put_back(entry: Entry) -> None:
    """Restore the consumer offsets that a deletion removed, unless there are new ones."""
    if not (entry.after or {}).get("remove_offset"):
        return
    known = gateway().topics.all()
    now = {(row.topic, row.queue) for row in committed(entry.subject)}
    wanted: dict[str, dict[BrokerQueue, int]] = {}
    for each in entry.before["offsets"]:
        queue = BrokerQueue(each["broker"], each["queue"])
        is_there = each["topic"] in known and queue.broker_name in known[each["topic"]].configs
        if is_there and (each["topic"], queue) not in now:
            wanted.setdefault(each["topic"], {})[queue] = int(each["offset"])
    for topic, offsets in wanted.items():
        gateway().offsets.commit(entry.subject, topic, offsets)


def danger_of(group: Group) -> Danger:
    """Return the effects of deleting a group, and the required confirmation."""
    kept = committed(group.name)
    topics = len({row.topic for row in kept})
    return Danger(
        title=_("Delete group %(name)s?") % {"name": group.name},
        text=_(
            "The brokers delete the group's configuration. If you delete its consumer offsets "
            "too, new consumers start where their own settings say."
        ),
        effects=(
            Effect(_("Configurations"), len(group.configs), ", ".join(group.configs)),
            Effect(
                _("Consumer offsets"),
                len(kept),
                ngettext(
                    "in %(count)d topic; kept unless you choose to delete them",
                    "in %(count)d topics; kept unless you choose to delete them",
                    topics,
                )
                % {"count": topics},
            ),
            Effect(_("Unread messages"), sum(row.lag or 0 for row in kept)),
        ),
        choices=(Choice("remove_offset", _("Delete consumer offsets too")),),
        # Without a configuration there is nothing that could be recreated.
        name="" if group.configs else group.name,
        undo=_("This can't be undone.")
        if not group.configs
        else _("You can undo this as long as no one recreates the group."),
        action=_("Delete group"),
        keep=_("Cancel"),
        address=reverse("groups:delete", args=[group.name]),
        back=reverse("groups:detail", args=[group.name]),
        refusal=in_use(group.name) or "",
    )


PAGES = ConfigPages(
    "group",
    "groups",
    WORDS,
    GroupForm,
    GroupConfig,
    Requests(every, save, remove, in_use, put_back=put_back),
)


@form_for(Action.GROUP)
def create(request: HttpRequest) -> HttpResponse:
    return PAGES.create(request)


@form_for(Action.GROUP, "group")
def edit(request: HttpRequest, group: str) -> HttpResponse:
    return PAGES.edit(request, get_group(group))


@form_for(Action.GROUP)
def undo(request: HttpRequest, entry: int) -> HttpResponse:
    return PAGES.undo(request, entry)


@form_for(Action.GROUP, "group")
def delete(request: HttpRequest, group: str) -> HttpResponse:
    subject = get_group(group)
    remove_offset = request.POST.get("remove_offset") == "on"
    return PAGES.delete(
        request,
        subject,
        danger_of(subject),
        act=lambda: gateway().groups.delete(group, remove_offset=remove_offset),
        before=lambda: {"configs": state_of(subject), "offsets": offset_snapshot(group)},
        after={"remove_offset": remove_offset},
    )


def offset_snapshot(group: str) -> list[dict[str, Any]]:
    """Return a group's consumer offsets in the audit log's format."""
    return [
        {
            "topic": row.topic,
            "broker": row.broker_name,
            "queue": row.queue_id,
            "offset": str(row.consumer_offset),
        }
        for row in committed(group)
    ]


def committed(group: str) -> list[QueueProgress]:
    """Return the queues in which a group has a consumer offset."""
    queues = gateway().groups.progress(group).queues
    return [row for row in queues if row.consumer_offset is not None]


@form_for(Action.GROUP, "group")
def label(request: HttpRequest, group: str) -> HttpResponse:
    subject = get_group(group)
    refuse_system(subject)
    return labels.edit(request, PAGES, group)


@form_for(Action.GROUP)
def label_undo(request: HttpRequest, entry: int) -> HttpResponse:
    return labels.undo(request, PAGES, entry)
