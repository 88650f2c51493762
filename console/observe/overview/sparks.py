"""Sparklines next to the overview's tiles."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.history.metrics import BROKER, GOT, GROUP, LAG, PUT
from console.observe.history.reading import SPARK_SLOTS, Spark, counted
from console.observe.history.series import Aspect, Line, values_of
from console.observe.history.tiers import COARSE, DAY_MS, HOUR_MS, MIDDLE

if TYPE_CHECKING:
    from console.observe.history.metrics import Metric
    from console.observe.history.points import Points
    from console.observe.history.tiers import Tier

logger = logging.getLogger(__name__)

DAY_SLOTS = DAY_MS // COARSE.step_ms
HOUR_SLOTS = HOUR_MS // COARSE.step_ms
GROUPS_MAX = 300
"""With more groups, the lag isn't summed; the page doesn't show it either."""


class Sparks(NamedTuple):
    """Rates and lag over the last hour, messages over the last day; None without data."""

    put: Spark | None = None
    got: Spark | None = None
    put_day: Spark | None = None
    got_day: Spark | None = None
    lag: Spark | None = None


def sparks_now(now_ms: int) -> Sparks:
    """Return the history of all brokers and groups; empty if it can't be read."""
    store = history_store()
    try:
        every = store.all_subjects()
        brokers = {each: number for each, number in every.items() if each.kind == BROKER}
        masters = counted(brokers, PUT).values()
        groups = [number for subject, number in every.items() if subject.kind == GROUP]
        first = now_ms // MIDDLE.step_ms - SPARK_SLOTS
        day_from = now_ms // COARSE.step_ms - DAY_SLOTS
        hour = store.read([*brokers.values()], MIDDLE, first, SPARK_SLOTS)
        day = store.read([*brokers.values()], COARSE, day_from, DAY_SLOTS)
        few = groups if len(groups) <= GROUPS_MAX else []
        hour_of_groups = [*store.read(few, MIDDLE, first, SPARK_SLOTS).values()]
    except HistoryError as error:
        logger.warning("history unreadable error=%s", error)
        return Sparks()
    hour_of_masters = [hour[number] for number in masters]
    day_of_masters = [day[number] for number in masters]
    hour_of_brokers, day_of_brokers = [*hour.values()], [*day.values()]
    return Sparks(
        put=spark(hour_of_masters, PUT, Aspect.MEAN, first),
        got=spark(hour_of_brokers, GOT, Aspect.MEAN, first),
        put_day=longest(day_of_masters, day_from, hour_of_masters, first, PUT),
        got_day=longest(day_of_brokers, day_from, hour_of_brokers, first, GOT),
        lag=spark(hour_of_groups, LAG, Aspect.MEAN, first),
    )


def broker_sparks(now_ms: int) -> dict[tuple[str, int], Spark]:
    """Return the last hour of each broker's incoming messages, by name and ID."""
    store = history_store()
    first = now_ms // MIDDLE.step_ms - SPARK_SLOTS
    try:
        brokers = {
            (subject.broker, int(subject.name)): number
            for subject, number in store.all_subjects().items()
            if subject.kind == BROKER and subject.name.isdigit()
        }
        read = store.read([*brokers.values()], MIDDLE, first, SPARK_SLOTS)
    except HistoryError as error:
        logger.warning("history unreadable error=%s", error)
        return {}
    made = {
        place: spark([read[number]], PUT, Aspect.MEAN, first) for place, number in brokers.items()
    }
    return {place: each for place, each in made.items() if each is not None}


def longest(
    day: list[Points], day_from: int, hour: list[Points], first: int, metric: Metric
) -> Spark | None:
    """Return the last day, or the last hour by the minute if there is no more data."""
    long = spark(day, metric, Aspect.SUM, day_from, COARSE)
    if long is not None and sum(value is not None for value in long.values) > HOUR_SLOTS:
        return long
    return spark(hour, metric, Aspect.SUM, first) or long


def spark(
    parts: list[Points], metric: Metric, aspect: Aspect, first: int, tier: Tier = MIDDLE
) -> Spark | None:
    made = Spark.of(values_of(parts, Line("", metric, aspect)), first, tier)
    return made if made.is_known else None
