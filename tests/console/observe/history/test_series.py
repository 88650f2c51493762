"""Series: an unknown value is never zero, and brokers are summed only where all are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from broker_core.stats.latency import FINE_MS
from console.observe.history import metrics, points
from console.observe.history.latency import BOUNDS_MS, quantile_ms
from console.observe.history.metrics import Column
from console.observe.history.points import MISSING
from console.observe.history.range import requested_range
from console.observe.history.series import Aspect, Line, trend_of, values_of
from console.observe.history.tiers import COARSE, FINE, HOUR_MS

if TYPE_CHECKING:
    from console.observe.history.metrics import Metric
    from console.observe.history.points import Points

NOW_MS = 1_795_251_600_000


def of(metric: Metric, *values: int | None, covered: int = 10_000) -> Points:
    column = Column(metric.code)
    made = points.of_samples(
        [column],
        np.array([[MISSING if value is None else value] for value in values], dtype=np.int64),
        np.full(len(values), covered, dtype=np.int64),
        np.arange(len(values)),
    )
    assert made is not None
    return made


def test_a_counter_becomes_a_rate_and_a_gap_stays_a_gap() -> None:
    assert values_of([of(metrics.PUT, 50, None, 0)], Line("", metrics.PUT)) == [5.0, None, 0.0]


def test_a_peak_is_also_a_rate() -> None:
    coarse = points.coarser(of(metrics.PUT, 10, 90, 20), 60)

    assert values_of([coarse], Line("", metrics.PUT, Aspect.PEAK)) == [9.0]
    assert values_of([coarse], Line("", metrics.PUT)) == [4.0]
    assert values_of([coarse], Line("", metrics.PUT, Aspect.SUM)) == [120.0]


def test_brokers_are_summed_only_if_each_is_known() -> None:
    one, other = of(metrics.PUT, 10, 10, 10, 10), of(metrics.PUT, None, 20, None, 20)

    # Before its first time a broker doesn't count as missing.
    assert values_of([one, other], Line("", metrics.PUT)) == [1.0, 3.0, None, 3.0]


def test_the_age_over_brokers_is_the_greatest() -> None:
    parts = [of(metrics.LAG_AGE, 4_000, 0), of(metrics.LAG_AGE, 9_000, 1_000)]

    assert values_of(parts, Line("", metrics.LAG_AGE, scale=0.001)) == [9.0, 1.0]


def test_an_unrecorded_figure_is_unknown() -> None:
    assert values_of([of(metrics.PUT, 1, 2)], Line("", metrics.DEAD)) == [None, None]


def test_quantiles_come_from_the_brokers_buckets() -> None:
    assert BOUNDS_MS == FINE_MS


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ([0] * 21, 0.5, None),
        ([0, 10], 0.5, 0.01),
        ([10, 0, 0], 0.99, 0.0),
        ([0] * 20 + [5], 0.5, 10_000.0),
    ],
)
def test_a_quantile_is_within_its_bucket(counts, share, expected) -> None:
    assert quantile_ms(counts, share) == pytest.approx(expected) if expected else not expected


@pytest.mark.parametrize(
    ("values", "trend"),
    [
        ([], None),
        ([1.0], None),
        ([1, 1, 1, 2, 2, 2], None),
        ([*[1.0] * 4, *[None] * 50, *[2.0] * 5], None),
        ([1.0] * 10, 0),
        ([*[1.0] * 5, *[2.0] * 5], 1),
        ([9, 9, 9, 9, None, 9, 1, 1, 1, 1, 1], -1),
    ],
)
def test_a_trend_compares_the_ends_of_enough_values(values, trend) -> None:
    assert trend_of(values) == trend


@pytest.mark.parametrize(
    ("query", "recent", "span"),
    [
        ({}, "1h", HOUR_MS),
        ({"range": "30d"}, "30d", 720 * HOUR_MS),
        ({"range": "", "from": "", "to": ""}, "1h", HOUR_MS),
        ({"from": str(NOW_MS - 7_200_000), "to": str(NOW_MS)}, "", 2 * HOUR_MS),
    ],
)
def test_an_address_contains_the_range(query, recent, span) -> None:
    found = requested_range(query, NOW_MS)

    assert (found.recent, found.high_ms - found.low_ms) == (recent, span)
    assert found.problem == ""


def test_a_range_that_ends_in_the_future_ends_now() -> None:
    found = requested_range({"from": str(NOW_MS - HOUR_MS), "to": str(NOW_MS + HOUR_MS)}, NOW_MS)

    assert (found.low_ms, found.high_ms, found.problem) == (NOW_MS - HOUR_MS, NOW_MS, "")


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"range": "nonsense"}, '"nonsense" isn\'t a time range'),
        ({"from": "5"}, "needs a start (from) and an end (to)"),
        ({"to": "5"}, "needs a start (from) and an end (to)"),
        ({"from": "yesterday", "to": "5"}, '"yesterday" isn\'t a time'),
        ({"from": "-5", "to": "5"}, '"-5" isn\'t a time'),
        ({"from": "9" * 30, "to": "5"}, "isn't a time"),
        ({"from": "5", "to": "4"}, "ends before it starts"),
        ({"from": "5", "to": "5"}, "ends before it starts"),
        ({"from": str(NOW_MS), "to": str(NOW_MS + HOUR_MS)}, "starts in the future"),
        ({"from": str(NOW_MS - 1), "to": str(NOW_MS)}, "shorter than a minute"),
        ({"from": "0", "to": str(NOW_MS)}, "longer than 366 days"),
    ],
)
def test_an_impossible_range_is_reported_beside_the_default_range(asked, problem) -> None:
    found = requested_range(asked, NOW_MS)

    assert problem in found.problem
    assert (found.low_ms, found.high_ms) == (NOW_MS - HOUR_MS, NOW_MS)
    assert not any(is_selected for _query, _label, is_selected in found.choices)


def test_a_range_is_as_fine_as_possible() -> None:
    assert requested_range({"range": "15m"}, NOW_MS).tier == FINE
    assert requested_range({"range": "1y"}, NOW_MS).tier == COARSE
