"""What pages with a list share: the filter's text, chips of kinds, pages of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from django.core.paginator import Page, Paginator
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import Model, QuerySet
    from django.http import HttpRequest

ROWS_A_PAGE = 50
FILTER_CHARACTERS_MAX = 255
NAMES_SHOWN = 4

Row = TypeVar("Row")
Stored = TypeVar("Stored", bound="Model")


@dataclass(frozen=True, slots=True)
class Chip:
    """A kind that the list can be narrowed to, above it."""

    value: str
    label: str
    count: int


def asked_text(request: HttpRequest) -> str:
    """Return what the search field says."""
    return request.GET.get("q", "").strip()[:FILTER_CHARACTERS_MAX]


def page_of(request: HttpRequest, rows: Sequence[Row]) -> Page[Row]:
    """Return the page of rows that the address asks for, the nearest when there is none."""
    return Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page"))


def stored_page_of(request: HttpRequest, rows: QuerySet[Stored]) -> Page[Stored]:
    """Return the page of stored rows that the address asks for; only they are read."""
    return Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page"))


def shortened(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return (
        _("%(names)s and %(count)d more") % {"names": shown, "count": more} if more > 0 else shown
    )
