"""The developer page that shows every component in every state."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.paginator import Paginator
from django.shortcuts import render

from console.accounts.permissions import page
from console.broker.configs.plan import Plan
from console.lib.lists import Chip
from console.lib.moment import now_ms
from console.lib.tables import Column, Table
from console.observe.history.reading import Spark
from console.ui.copies import json_text, mqadmin, mqadmin_text
from console.ui.danger import Choice, Danger, Effect, ask

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

# These texts are examples for developers, so they aren't translated.
DANGER = Danger(
    title="Delete topic orders?",
    text="One sentence on what the action does.",
    effects=(
        Effect("Messages retained", 1_204_387, "permanently deleted", is_bad=True),
        Effect("Queues", 8, "broker-a"),
        Effect("Bytes that only the master has", None, "not reported"),
    ),
    choices=(Choice("also", "An optional additional action"),),
    undo="This can't be undone.",
    action="Delete topic",
    keep="Keep it",
    address="",
    back="#content",
    name="orders",
)
SEEN = {"perm": 6, "read_queue_nums": 4, "order": False}
PLAN = Plan(
    "orders",
    {"broker-a": SEEN, "broker-b": SEEN, "broker-c": None},
    {"broker-a": SEEN, "broker-b": {**SEEN, "perm": 4}, "broker-c": None},
    {name: {**SEEN, "read_queue_nums": 8} for name in ("broker-a", "broker-b", "broker-c")},
    kind="topic",
)
STATES = ("ok", "warn", "bad", "info", "accent", "")
COLUMNS = (
    Column("name", "Name", is_sorted=True),
    Column("state", "State", is_fact=True),
    Column("trend", "Trend", "1 h", css="spark-cell"),
    Column("lag", "Lag", "msg", is_number=True, is_sorted=True, is_fact=True),
    Column("seen", "Seen"),
    Column("note", "Hidden by default", is_extra=True),
)
RISING = Spark([None if 20 <= at < 26 else at * at / 9 for at in range(60)], 1)
FALLING = Spark([float(90 - at) for at in range(60)], -1)


class ExampleForm(forms.Form):
    """One field of each kind, one of them with an error."""

    name = forms.CharField(label="Name", help_text="Help text below the field.")
    wrong = forms.IntegerField(label="Wrong", max_value=16)
    choice = forms.ChoiceField(label="Choice", choices=[("a", "One"), ("b", "Another")])
    switch = forms.BooleanField(label="Switch", required=False)
    fixed = forms.CharField(label="Cannot change", disabled=True, initial="orders")


def rows(now: int) -> list[dict[str, Any]]:
    return [
        {"name": "billing", "state": "ok", "spark": FALLING, "lag": 3, "seen": now - 4_000},
        {"name": "fraud-check", "state": "bad", "spark": RISING, "lag": 1_204_387, "seen": now},
        {"name": "export", "state": "warn", "spark": None, "lag": None, "seen": now - 172_800_000},
    ]


@page
def gallery(request: HttpRequest) -> HttpResponse:
    if "danger" in request.GET:
        return ask(request, DANGER)
    table = Table(request, COLUMNS, sort="name")
    every = table.sorted(rows(now_ms()), {"name": itemgetter("name"), "lag": itemgetter("lag")})
    context = {
        "table": table,
        "rows": every,
        "states": STATES,
        "chips": [Chip("all", "All", 12), Chip("own", "Own", 3)],
        "kind": "own",
        "page": Paginator(range(130), 50).get_page(request.GET.get("page")),
        "form": ExampleForm({"name": "orders", "wrong": "17", "choice": "a"}),
        "now": now_ms(),
        "danger": replace(DANGER, name="", undo="Undo restores it."),
        "plan": PLAN,
        "copies": [
            mqadmin_text([mqadmin("topicStatus", {"t": "orders"})]),
            json_text({"orders": {"perm": 6}}),
        ],
        "parts": [(part, list(part.lines({}))) for part in PLAN.parts],
    }
    return render(request, "ui/gallery.html", context)
