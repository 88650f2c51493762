"""A lake table as DuckDB scans it: columns and filters go to the LakeReader, rows come back.

DuckDB pushes down each condition of a WHERE that compares a column with constants, such as
`day = DATE '2026-11-21'`. The LakeReader applies it to masked rows, and uses it to skip files.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

# DuckDB's public classes of Arrow sources receive all filters as one opaque pyarrow expression,
# which can't be turned into SQL.
from duckdb._sources import arrow

from analytics.lake.tables import DAY
from analytics.query.conditions import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analytics.query.conditions import Predicate
    from analytics.query.lake_reader import LakeReader
    from analytics.query.views import View


class TableScan(arrow.ArrowScanSource):
    """One table of the lake, as one person sees it."""

    schema_is_stable = True

    def __init__(self, reader: LakeReader, view: View) -> None:
        super().__init__(view)
        self._reader = reader
        self._view = view

    def __arrow_c_schema__(self) -> object:
        return self._view.streamed.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all rows; DuckDB requires this method of an Arrow source."""
        return self.stream(None, ())[0]

    def accepts(self, predicate: Predicate) -> bool:
        """Return whether the LakeReader can apply a condition."""
        try:
            Condition(self._view.streamed.names).add(predicate)
        except (ValueError, RecursionError):
            return False
        return True

    def stream(
        self, columns: Sequence[int] | None, filters: Iterable[Predicate]
    ) -> tuple[object, bool]:
        """Return the rows that meet all filters, with the columns at these indices."""
        names = self._view.streamed.names
        condition, of_day = Condition(names), Condition([DAY])
        for predicate in filters:
            condition.add(predicate)
            with suppress(ValueError):
                of_day.add(predicate)
        chosen = names if columns is None else [names[number] for number in columns]
        rows = self._reader.rows(self._view, chosen, condition, of_day)
        return rows.__arrow_c_stream__(), columns is not None
