"""Views of the audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.paginator import Paginator
from django.db.models import Q
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from console.accounts.permissions import administrator_required
from console.audit.models import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.http import HttpRequest, HttpResponse

ROWS_A_PAGE = 50
FILTER_CHARACTERS_MAX = 255


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs between before and after; None: not there."""

    key: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """An entry with what it changed."""

    entry: Entry
    differences: tuple[Difference, ...]

    @property
    def at_ms(self) -> int:
        return int(self.entry.at.timestamp() * 1000)


@administrator_required
@require_safe
@never_cache
def listing(request: HttpRequest) -> HttpResponse:
    query = request.GET.get("q", "").strip()[:FILTER_CHARACTERS_MAX]
    action = request.GET.get("action", "")
    entries = Entry.objects.all()
    if query:
        entries = entries.filter(Q(subject__icontains=query) | Q(actor_name__icontains=query))
    actions = Entry.objects.order_by("action").values_list("action", flat=True).distinct()
    if action:
        entries = entries.filter(action=action)
    page = Paginator(entries, ROWS_A_PAGE).get_page(request.GET.get("page"))
    context = {
        "rows": [
            Row(entry, tuple(differences(entry.before, entry.after))) for entry in page.object_list
        ],
        "page": page,
        "query": query,
        "action": action,
        "actions": list(actions),
    }
    return render(request, "audit/list.html", context)


def differences(before: Any, after: Any) -> Iterator[Difference]:
    """Yield what differs, leaf by leaf."""
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
