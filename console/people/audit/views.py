"""The audit log page and its export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.http import StreamingHttpResponse
from django.shortcuts import render
from django.utils.translation import gettext, gettext_lazy as _

from console.accounts.permissions import administrators_action, administrators_page
from console.lib.lists import FILTER_CHARACTERS_MAX, search_text, stored_page_of
from console.lib.missing import MissingError
from console.lib.tables import Column, Table
from console.people.audit.exporting import csv_lines, json_lines
from console.people.audit.models import Entry
from console.people.audit.objects import object_address, people_among
from console.people.audit.record import change
from console.people.audit.searching import narrowed
from console.people.audit.undo import undo_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.http import HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase


OUTCOME_STATES = {
    Entry.Outcome.STARTED: "warn",
    Entry.Outcome.DONE: "ok",
    Entry.Outcome.FAILED: "bad",
    Entry.Outcome.REFUSED: "bad",
}


COLUMNS = (
    Column("when", _("When"), is_sorted=True),
    Column("who", _("User"), is_fact=True),
    Column("action", _("Action"), is_sorted=True, is_fact=True),
    Column("subject", _("Subject"), is_sorted=True, is_fact=True, css="break"),
    Column("outcome", _("Outcome"), css="prose"),
    Column("change", _("Changes"), css="prose"),
    Column("request", _("Request"), is_extra=True, css="mono"),
)
KINDS = {"csv": (csv_lines, "text/csv"), "jsonl": (json_lines, "application/x-ndjson")}
ORDER = {"when": "at", "action": "action", "subject": "subject"}


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that differs between before and after; None if one of them lacks it."""

    key: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """An entry with its differences."""

    entry: Entry
    differences: tuple[Difference, ...]
    address: str

    @property
    def state(self) -> str:
        return OUTCOME_STATES[Entry.Outcome(self.entry.outcome)]

    @property
    def undo_address(self) -> str:
        return undo_address(self.entry)

    @property
    def at_ms(self) -> int:
        return int(self.entry.at.timestamp() * 1000)


@administrators_page
def listing(request: HttpRequest) -> HttpResponse:
    query, action = search_text(request), request.GET.get("action", "")
    entries = narrowed(query, action)
    actions = Entry.objects.order_by("action").values_list("action", flat=True).distinct()
    table = Table(request, COLUMNS, sort="-when")
    sign = "-" if table.sort.startswith("-") else ""
    page = stored_page_of(request, entries.order_by(f"{sign}{ORDER[table.sort_name]}", f"{sign}id"))
    people = people_among(page.object_list)
    context = {
        "table": table,
        "rows": [
            Row(
                entry,
                tuple(differences(entry.before, entry.after)),
                object_address(entry, people),
            )
            for entry in page.object_list
        ],
        "page": page,
        "query": query,
        "action": action,
        "actions": list(actions),
        "is_narrowed": bool(query or action),
        "kinds": [("csv", "CSV"), ("jsonl", "JSON lines")],
    }
    return render(request, "audit/list.html", context)


@administrators_action
def export(request: HttpRequest, kind: str) -> HttpResponseBase:
    """Return the filtered entries as a file, and record the export."""
    if kind not in KINDS:
        raise MissingError(gettext("The audit log can be exported as CSV or JSON lines."))
    query = request.POST.get("q", "").strip()[:FILTER_CHARACTERS_MAX]
    action = request.POST.get("action", "")
    entries = narrowed(query, action).order_by("pk")
    after = {"format": kind, "entries": entries.count(), "filter": query, "action": action}
    with change(request, "audit.export", "audit", after=after) as entry:
        # Leave out the entry about this export.
        entries = entries.filter(pk__lt=entry.pk)
    lines, content_type = KINDS[kind]
    response = StreamingHttpResponse(lines(entries), content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="audit.{kind}"'
    return response


def differences(before: Any, after: Any) -> Iterator[Difference]:
    """Yield the leaf values that differ."""
    old, new = dict(leaves(before)), dict(leaves(after))
    for key in [*old, *(key for key in new if key not in old)]:
        if old.get(key) != new.get(key):
            yield Difference(key, old.get(key), new.get(key))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    elif value is not None:
        yield path, str(value)
