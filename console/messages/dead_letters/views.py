"""Pages of dead letters: the groups that have dead letters, and the dead letters of one group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.paginator import Paginator
from django.shortcuts import render
from django.utils.translation import gettext_lazy, pgettext_lazy

from broker_core.message import names
from console.accounts.permissions import page
from console.gateway.access import gateway
from console.gateway.answers import TopicKind
from console.lib.lists import page_of, search_text
from console.lib.moment import now_ms
from console.lib.tables import Column, Table
from console.messages.dead_letters.models import Run, stop_orphaned
from console.messages.dead_letters.selection import Selection
from console.messages.dead_letters.services import letters_of, row_of
from console.observe.history.metrics import PUT, TOPIC
from console.observe.history.reading import last_of, sparks
from console.observe.history.series import Line

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


ROWS_A_PAGE = 100
RUNS_SHOWN = 10

COLUMNS = (
    Column("group", gettext_lazy("Group"), is_sorted=True),
    Column(
        "open",
        pgettext_lazy("dead letters", "Open"),
        gettext_lazy("msg"),
        is_number=True,
        is_fact=True,
    ),
    Column("retained", gettext_lazy("Retained"), gettext_lazy("msg"), is_number=True),
    Column("trend", gettext_lazy("Incoming"), "1 h", is_sorted=True, css="spark-cell"),
    Column("oldest", gettext_lazy("Oldest"), is_fact=True),
    Column("newest", gettext_lazy("Newest")),
)


@page
def listing(request: HttpRequest) -> HttpResponse:
    """Show the groups that have dead letters."""
    query = search_text(request)
    every = [
        topic.name.removeprefix(names.DLQ_GROUP_TOPIC_PREFIX)
        for topic in gateway().topics.all().values()
        if topic.kind is TopicKind.DLQ
    ]
    shown = [group for group in every if query.lower() in group.lower()]
    table = Table(request, COLUMNS, sort="group")
    inflow = Line("inflow", PUT)
    topics = [names.dlq_topic(group) for group in shown]
    trends = sparks(TOPIC, topics, inflow, now_ms())
    ordered = table.sorted(
        shown,
        {
            "group": lambda group: group.lower(),
            "trend": lambda group: last_of(trends.get(names.dlq_topic(group))),
        },
    )
    rows = page_of(request, ordered)
    context = {
        "table": table,
        "rows": [row_of(group, trends.get(names.dlq_topic(group))) for group in rows.object_list],
        "page": rows,
        "query": query,
        "is_narrowed": bool(query) or bool(every),
        "read_at_ms": now_ms(),
    }
    return render(request, "dead_letters/list.html", context)


@page
def group(request: HttpRequest, group: str) -> HttpResponse:
    """Show a group's dead letters and their reasons."""
    stop_orphaned()
    selection = Selection.of(request.GET)
    letters = letters_of(group, selection)
    chosen = selection.among(letters.found)
    is_all = request.GET.get("state") == "all"
    shown = [each for each in reversed(chosen) if is_all or each.is_open]
    rows = Paginator(shown, ROWS_A_PAGE).get_page(request.GET.get("page"))
    context: dict[str, Any] = {
        "group": group,
        "is_known_group": group in gateway().groups.all(),
        "letters": letters,
        "oldest_ms": letters.open[0].copy.stored.store_ms if letters.open else None,
        "selection": selection,
        "rows": rows.object_list,
        "page": rows,
        "is_all": is_all,
        "open_count": sum(each.is_open for each in chosen),
        "runs": Run.objects.filter(group=group)[:RUNS_SHOWN],
        "topic": names.dlq_topic(group),
        "inflow": sparks(TOPIC, [names.dlq_topic(group)], Line("inflow", PUT), now_ms()).get(
            names.dlq_topic(group)
        ),
        "read_at_ms": now_ms(),
    }
    return render(request, "dead_letters/group.html", context)
