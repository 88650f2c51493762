"""Shared parts of pages with a list: filter text, chips, pagination."""

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
    """A filter chip above the list, for one kind of rows."""

    value: str
    label: str
    count: int


def search_text(request: HttpRequest) -> str:
    """Return the text in the search field."""
    return request.GET.get("q", "").strip()[:FILTER_CHARACTERS_MAX]


def page_of(request: HttpRequest, rows: Sequence[Row]) -> Page[Row]:
    """Return the requested page of rows, or the nearest one."""
    return Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page"))


def stored_page_of(request: HttpRequest, rows: QuerySet[Stored]) -> Page[Stored]:
    """Return the requested page of database rows, reading only these."""
    return Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page"))


def shorten(names: Sequence[str]) -> str:
    """Return the first names, and the number of remaining ones."""
    shown = ", ".join(names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return (
        _("%(names)s and %(count)d more") % {"names": shown, "count": more} if more > 0 else shown
    )
