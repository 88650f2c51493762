"""Current verdicts for pages, worded and sorted by urgency."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.history.metrics import BROKER, PROGRESS
from console.observe.verdicts.judge import verdicts_of
from console.observe.verdicts.words import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.observe.verdicts.judge import Verdict
    from console.observe.verdicts.words import Shown

logger = logging.getLogger(__name__)


def current_verdicts() -> list[Shown]:
    """Return the current verdicts; empty if the history can't be read, which pages report."""
    try:
        return in_words(verdicts_of(history_store()).verdicts)
    except HistoryError as error:
        logger.warning("verdicts unreadable error=%s", error)
        return []


def judged_ms() -> int:
    """Return when the rules last ran; 0 if they never did or the history can't be read."""
    try:
        return verdicts_of(history_store()).at_ms
    except HistoryError:
        return 0


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
