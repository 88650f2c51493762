"""Scheduled queries for alert rules.

The SQL app provides them when it loads, so alerts import nothing from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from django.db.models import QuerySet


class Run(Protocol):
    """A run of a query."""

    rows: int
    ended_ms: int | None


class Queries(NamedTuple):
    """The functions that an app with queries provides.

    Attributes:
        scheduled: returns the saved queries with a schedule.
        last_run: returns the run with a query's current result, or None without a current result.
        completed_since: yields a query's completed runs since a time in ms, oldest first.
    """

    scheduled: Callable[[], QuerySet[Any]]
    last_run: Callable[[Any, datetime], Run | None]
    completed_since: Callable[[Any, int], Iterable[Run]]


_provided: list[Queries] = []


def provide(queries: Queries) -> None:
    """Set the provider of queries."""
    _provided[:] = [queries]


def queries() -> Queries:
    return _provided[0]
