"""Sparklines with little data use the full width and show their start time."""

from __future__ import annotations

import re
from datetime import datetime

import pytest
from django.urls import reverse
from django.utils import timezone, translation

from console.lib.moment import now_ms
from console.observe.history.access import history_store
from console.observe.history.metrics import BROKER, PUT, TOPIC, Subject
from console.observe.history.reading import SHOWN_MIN, Spark
from console.observe.history.templatetags.history import WIDTH, path_of, sparkline
from console.observe.history.tiers import COARSE, MIDDLE
from tests.support.history_points import keep

HOUR = 60
FIRST = 1_800_000_000_000 // MIDDLE.step_ms


def young(*values: float | None) -> Spark:
    """Return an hour whose last values are these; earlier values are unknown."""
    return Spark.of([*[None] * (HOUR - len(values)), *values], FIRST)


def drawn(spark: Spark) -> list[float]:
    """Return where on the line's width its points are."""
    path = re.search(r'd="([^"]*)"', sparkline(spark, "msg/s"))
    assert path is not None
    return [float(each) for each in re.findall(r"[ML]([\d.]+) ", path[1])]


def test_the_line_of_half_an_hour_has_the_whole_width() -> None:
    points = drawn(young(*[5.0] * 30))

    assert (points[0], points[-1]) == (0.0, float(WIDTH))


def test_the_line_of_two_minutes_shows_at_least_ten() -> None:
    spark = young(1.0, 2.0)

    assert len(spark.shown) == SHOWN_MIN
    assert drawn(spark) == [pytest.approx(WIDTH * 8 / 9, abs=0.1), float(WIDTH)]


def test_a_gap_stays_a_gap() -> None:
    path = path_of([1.0, None, 1.0, 1.0], 1.0)

    assert path.count("M") == 2
    assert f"L{WIDTH}.0 2.0" in path


@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_few_values_have_no_trend(count) -> None:
    html = sparkline(young(*[float(each * each) for each in range(count)]), "msg/s")

    assert "\u2197" not in html
    assert "rising" not in html
    assert "steady" not in html


def test_enough_values_have_a_trend() -> None:
    html = sparkline(young(*[float(each) for each in range(10)]), "msg/s")

    assert "\u2197" in html
    assert ", rising" in html


def test_a_young_line_says_since_when_in_the_reader_s_zone() -> None:
    spark = young(3.0, 4.0, 9.0)
    since_ms = (FIRST + HOUR - 3) * MIDDLE.step_ms

    assert spark.since_ms == since_ms
    with timezone.override("Asia/Shanghai"):
        clock = timezone.localtime(
            datetime.fromtimestamp(since_ms / 1000, tz=timezone.get_current_timezone())
        ).strftime("%H:%M")
        html = sparkline(spark, "msg/s")
    assert f'title="since {clock}: 3 to 9 msg/s"' in html
    # The script puts the time in the browser's zone.
    assert f'data-since="{since_ms}"' in html
    assert 'data-words="since %s: 3 to 9 msg/s"' in html


def test_a_day_of_ten_minutes_counts_from_its_own_start() -> None:
    spark = Spark.of([*[None] * 100, *[1.0] * 44], FIRST // 10, COARSE)

    assert spark.since_ms == (FIRST // 10 + 100) * COARSE.step_ms


def test_an_hour_without_its_first_minutes_is_an_hour() -> None:
    spark = Spark.of([None, None, None, *[1.0] * 57], FIRST)

    assert spark.since_ms is None
    with translation.override("en"):
        assert 'title="last hour: 1 to 1 msg/s"' in sparkline(spark, "msg/s")


@pytest.mark.django_db
@pytest.mark.usefixtures("collector")
def test_a_tile_and_a_row_of_a_young_appliance_say_so(brokers, actors) -> None:
    brokers.add_topic("Orders")
    rows = {
        (Subject(BROKER, "broker-a", "0"), PUT): [10] * 18,
        (Subject(TOPIC, "broker-a", "Orders"), PUT): [10] * 18,
    }
    keep(history_store(), now_ms() // 60_000 * 60_000 - 180_000, rows)

    html = actors.reader.get(reverse("overview:index")).text

    tile = html.partition('class="tile"')[2].partition("</div>")[0]
    assert re.search(r'class="tile__since">since <time data-clock="\d+">\d\d:\d\d</time>', tile)
    assert html.count('title="since ') >= 3


def test_a_young_line_may_be_of_percentages() -> None:
    assert "3 to 9 %" in sparkline(young(3.0, 4.0, 9.0), "%")
