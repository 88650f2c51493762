"""What pages read of the verdicts: those of now, in words, by urgency."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from console.history.access import history_store
from console.history.database import HistoryError
from console.history.metrics import BROKER, PROGRESS
from console.verdicts.judge import verdicts_of
from console.verdicts.words import shown

if TYPE_CHECKING:
    from console.verdicts.judge import Verdict
    from console.verdicts.words import Shown

logger = logging.getLogger(__name__)


def current_verdicts() -> list[Shown]:
    """Return what the rules say; nothing where the history cannot be read, which pages say."""
    try:
        found = verdicts_of(history_store()).verdicts
    except HistoryError as error:
        logger.warning("verdicts cannot be read: %s", error)
        return []
    return [words for verdict in found if (words := shown(verdict)) is not None]


def verdicts_about(kind: str, name: str) -> list[Shown]:
    """Return the verdicts of a page's subject: a group's are those of its progress, too."""
    return [each for each in current_verdicts() if is_about(each.verdict, kind, name)]


def is_about(verdict: Verdict, kind: str, name: str) -> bool:
    if verdict.kind == PROGRESS:
        group, _at, topic = verdict.name.partition("@")
        return name == {"group": group, "topic": topic}.get(kind)
    own = f"{verdict.broker}:{verdict.name}" if verdict.kind == BROKER else verdict.name
    return (verdict.kind, own) == (kind, name)
