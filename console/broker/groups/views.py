"""Views of consumer groups: list, consumers, progress, configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import render
from django.utils.translation import gettext as _

from broker_core.message.names import dlq_topic
from console.accounts.actions import Action
from console.accounts.permissions import form_for, page
from console.broker.configs import label_pages
from console.broker.configs.labels import label_of, labels_of, matching
from console.broker.configs.pages import (
    ConfigPages,
)
from console.broker.configs.services import addressed, refuse_system, state_of
from console.broker.groups.as_file import groups_file
from console.broker.groups.listing import (
    COLUMNS,
    SYSTEM,
    ListHistory,
    found_groups,
    group_rows,
    sorted_groups,
)
from console.broker.groups.progress import progress_context
from console.broker.groups.services import (
    GROUPS,
    danger_of,
    delete_group,
    get_group,
)
from console.gateway.access import gateway
from console.lib.lists import page_of, search_text
from console.lib.moment import now_ms
from console.lib.table_file import file_address, is_file_asked
from console.lib.tables import Table
from console.observe.history.metrics import GROUP
from console.observe.history.pages import history_context
from console.observe.history.without_brokers import with_history_fallback
from console.ui.copies import CopyText, api_texts, json_text, mqadmin, mqadmin_text, plain_text

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.gateway.answers import (
        Group,
    )


@page
def listing(request: HttpRequest) -> HttpResponse:
    query = search_text(request)
    every = list(gateway().groups.all().values())
    labels = labels_of(GROUP)
    found = found_groups(matching(every, query, labels), request.GET.get("kind", ""))
    table = Table(request, COLUMNS, sort="group")
    history = ListHistory.to_sort(table, found.shown)
    ordered = sorted_groups(table, found.shown, history, labels)
    if is_file_asked(request):
        return groups_file(ordered, history.states)
    rows = page_of(request, ordered)
    context = {
        "table": table,
        "file_address": file_address(request),
        "rows": group_rows(list(rows.object_list), history, labels),
        "page": rows,
        "query": query,
        "kind": found.kind,
        "chips": found.chips,
        "is_narrowed": bool(query)
        or found.kind == SYSTEM
        or any(not group.is_system for group in every),
        "read_at_ms": now_ms(),
    }
    return render(request, "groups/list.html", context)


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


PAGES = ConfigPages(GROUPS, "groups")


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
        lambda: delete_group(request, subject, remove_offset=remove_offset),
    )


@form_for(Action.GROUP, "group")
def label(request: HttpRequest, group: str) -> HttpResponse:
    subject = get_group(group)
    refuse_system(subject)
    return label_pages.edit(request, PAGES, group)


@form_for(Action.GROUP)
def label_undo(request: HttpRequest, entry: int) -> HttpResponse:
    return label_pages.undo(request, PAGES, entry)
