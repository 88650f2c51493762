"""Current verdicts for pages, worded and sorted by urgency."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.history.metrics import BROKER, PROGRESS
from console.observe.verdicts.judge import HELD_MS, verdicts_of
from console.observe.verdicts.words import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.observe.verdicts.judge import Verdict
    from console.observe.verdicts.words import Shown

logger = logging.getLogger(__name__)

WHOLE = 1
UNFOLDED = 4
LISTED_MAX = 50


@dataclass(frozen=True, slots=True)
class OverviewVerdicts:
    """Verdicts to show next to the flow, most urgent first.

    If `is_judged` is False, the rules haven't run recently, so an empty list doesn't mean that
    there are no issues.
    """

    verdicts: list[Shown]
    is_judged: bool

    @property
    def count(self) -> int:
        return len(self.verdicts)

    @property
    def worst(self) -> str:
        return self.verdicts[0].state

    @property
    def first(self) -> list[Shown]:
        return self.verdicts[:WHOLE]

    @property
    def brief(self) -> list[Shown]:
        return self.verdicts[WHOLE:UNFOLDED]

    @property
    def folded(self) -> list[Shown]:
        return self.verdicts[UNFOLDED:LISTED_MAX]

    @property
    def more(self) -> int:
        return max(0, self.count - UNFOLDED)

    @property
    def unlisted(self) -> int:
        return max(0, self.count - LISTED_MAX)


def current_verdicts() -> list[Shown]:
    """Return the current verdicts; empty if the history can't be read, which pages report."""
    try:
        return in_words(verdicts_of(history_store()).verdicts)
    except HistoryError as error:
        logger.warning("verdicts unreadable error=%s", error)
        return []


def overview_verdicts(now_ms: int) -> OverviewVerdicts:
    """Return the verdicts that the overview shows next to the flow.

    Raises:
        HistoryError: the history can't be read.
    """
    found = verdicts_of(history_store())
    # All viewers share one page, but only people who can see the topic's messages may see keys.
    for_all = [replace(each, detail="") for each in in_words(found.verdicts)]
    return OverviewVerdicts(for_all, now_ms - found.at_ms < HELD_MS)


def in_words(verdicts: Iterable[Verdict]) -> list[Shown]:
    return [words for verdict in verdicts if (words := shown(verdict)) is not None]


def verdicts_about(kind: str, name: str) -> list[Shown]:
    """Return the verdicts on a page's subject; a group's include those on its progress."""
    return [each for each in current_verdicts() if is_about(each.verdict, kind, name)]


def is_about(verdict: Verdict, kind: str, name: str) -> bool:
    if verdict.kind == PROGRESS:
        group, _at, topic = verdict.name.partition("@")
        return name == {"group": group, "topic": topic}.get(kind)
    own = f"{verdict.broker}:{verdict.name}" if verdict.kind == BROKER else verdict.name
    return (verdict.kind, own) == (kind, name)
