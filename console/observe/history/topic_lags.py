"""Group lag per topic from the history's last minutes, without a request to brokers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.history.metrics import LAG, PROGRESS
from console.observe.history.series import Aspect, Line, values_of
from console.observe.history.tiers import MIDDLE

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from console.observe.history.points import Points

logger = logging.getLogger(__name__)

SLOTS = 3
"""Minutes: a group without a sample in any of them is gone."""
SMALL_SET_MAX = 200
"""Larger sets are read from the cached table of all topics, computed once per sample."""


@dataclass(frozen=True, slots=True)
class TopicLag:
    """The groups of a topic, and the one that is furthest behind."""

    groups: int
    lag: int
    worst: str


def topic_lags(topics: Iterable[str], now_ms: int) -> dict[str, TopicLag]:
    """Return the lag of each topic that a group reads; empty if it can't be read."""
    wanted = set(topics)
    first = now_ms // MIDDLE.step_ms - SLOTS
    try:
        if len(wanted) <= SMALL_SET_MAX:
            return _lags(wanted, first)
        every = history_store().cached_result(("topic lags", first), lambda: _lags(None, first))
    except HistoryError as error:
        logger.warning("history unreadable error=%s", error)
        return {}
    return {topic: every[topic] for topic in wanted if topic in every}


def _lags(wanted: Container[str] | None, first: int) -> dict[str, TopicLag]:
    """Return the lag of these topics, None for all.

    Raises:
        HistoryError: the history can't be read.
    """
    subjects = {
        subject: number
        for subject, number in history_store().all_subjects().items()
        if subject.kind == PROGRESS and (wanted is None or subject.name.partition("@")[2] in wanted)
    }
    read = history_store().read(list(subjects.values()), MIDDLE, first, SLOTS)
    parts: dict[tuple[str, str], list[Points]] = {}
    for subject, number in subjects.items():
        group, _at, topic = subject.name.partition("@")
        parts.setdefault((topic, group), []).append(read[number])
    lags: dict[str, list[tuple[int, str]]] = {}
    for (topic, group), points in parts.items():
        known = [each for each in values_of(points, Line("", LAG, Aspect.PEAK)) if each is not None]
        if known:
            lags.setdefault(topic, []).append((round(known[-1]), group))
    return {topic: TopicLag(len(found), *max(found)) for topic, found in lags.items()}
