"""Marks on charts and issues next to them, from apps that use the history.

These apps provide them when they load, so the history doesn't import them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    MarksOf = Callable[[str, str, int, int], Iterable[tuple[int, str, str]]]
    IssuesAbout = Callable[[str, str], list[Any]]

_marks: list[MarksOf] = []
_issues: list[IssuesAbout] = []


def provide_marks(source: MarksOf) -> None:
    """Add a source of marks: (kind, name, low_ms, high_ms) to (at_ms, what, text)."""
    _marks.append(source)


def provide_issues(source: IssuesAbout) -> None:
    """Add a source of issues about a subject."""
    _issues.append(source)


def marks_of(kind: str, name: str, low_ms: int, high_ms: int) -> Iterator[tuple[int, str, str]]:
    """Yield (at_ms, what, text) of a subject's marks in a time range."""
    for source in _marks:
        yield from source(kind, name, low_ms, high_ms)


def issues_about(kind: str, name: str) -> list[Any]:
    """Return a subject's current issues, as verdicts/_list.html shows them."""
    return [issue for source in _issues for issue in source(kind, name)]
