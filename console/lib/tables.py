"""Tables with selectable, sortable columns; the selection is in the page's URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django.http import HttpRequest
    from django.utils.functional import Promise

Row = TypeVar("Row")

SORT, COLUMNS = "sort", "columns"
KEPT_FIELDS_MAX = 30


@dataclass(frozen=True, slots=True)
class Column:
    """A column. A table's first column is always shown because it names the row.

    On phones, where rows are cards, `is_fact` puts a column before the others. `is_sorted` makes it
    sortable, descending first if it `is_number`; `is_extra` hides it by default.
    """

    name: str
    label: Promise | str
    unit: Promise | str = ""
    is_number: bool = False
    is_sorted: bool = False
    is_fact: bool = False
    is_extra: bool = False
    css: str = ""


class Head(NamedTuple):
    """A column with its state on a page, and the `sort` parameter of its link."""

    column: Column
    aria_sort: str
    next_sort: str


class Table:
    """The columns that a URL selects. Invalid parameters are ignored."""

    def __init__(self, request: HttpRequest, columns: Sequence[Column], sort: str = "") -> None:
        self.columns = tuple(columns)
        by_name = {column.name: column for column in self.columns}
        asked = [name for name in request.GET.getlist(COLUMNS) if name in by_name]
        usual = [column.name for column in self.columns if not column.is_extra]
        self._shown = {self.columns[0].name, *(asked or usual)}
        self.is_chosen = bool(asked)
        wanted = request.GET.get(SORT, sort)
        name = wanted.removeprefix("-")
        is_known = name in by_name and by_name[name].is_sorted
        self.sort = wanted if is_known else sort
        own = {SORT, COLUMNS, "page"}
        # The column form preserves the other parameters of the URL.
        self.kept = [
            (key, value)
            for key, values in request.GET.lists()
            if key not in own
            for value in values
        ][:KEPT_FIELDS_MAX]

    @property
    def sort_name(self) -> str:
        return self.sort.removeprefix("-")

    @property
    def heads(self) -> list[Head]:
        return [self._head(column) for column in self.columns if column.name in self._shown]

    @property
    def choices(self) -> list[tuple[Column, bool]]:
        """Return each optional column, and whether it is shown."""
        return [(column, column.name in self._shown) for column in self.columns[1:]]

    def shown(self, name: str) -> Column | None:
        """Return a column, or None if it is hidden."""
        if name not in self._shown:
            return None
        return next(column for column in self.columns if column.name == name)

    def sorted(self, rows: Iterable[Row], keys: dict[str, Callable[[Row], Any]]) -> list[Row]:
        """Return the sorted rows; rows without a value (None) come last."""
        key = keys.get(self.sort_name)
        rows = list(rows)
        if key is None:
            return rows
        known = [row for row in rows if key(row) is not None]
        known.sort(key=key, reverse=self.sort.startswith("-"))
        return [*known, *(row for row in rows if key(row) is None)]

    def _head(self, column: Column) -> Head:
        if not column.is_sorted:
            return Head(column, "", "")
        down = f"-{column.name}"
        if self.sort_name == column.name:
            is_down = self.sort == down
            return Head(
                column, "descending" if is_down else "ascending", column.name if is_down else down
            )
        return Head(column, "", down if column.is_number else column.name)
