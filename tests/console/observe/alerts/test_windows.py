"""Maintenance windows: in a user's zone, once or weekly, in nights with clock changes."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from console.observe.alerts.models import Window
from console.observe.alerts.windows import is_about, is_open, next_span

BERLIN = "Europe/Berlin"
DAILY = list(range(7))


def at(text: str, zone: str = BERLIN, fold: int = 0) -> int:
    when = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return round(when.timestamp() * 1000)


def weekly(begins: str, minutes: int, weekdays: list[int], zone: str = BERLIN) -> Window:
    return Window(
        kind=Window.Kind.WEEKLY, begins=begins, minutes=minutes, weekdays=weekdays, zone=zone
    )


def test_a_one_time_window_is_open_from_its_start_to_its_end() -> None:
    window = Window(kind=Window.Kind.ONCE, begins="2026-11-22T22:30", minutes=60, zone=BERLIN)

    assert not is_open(window, at("2026-11-22T22:30") - 1)
    assert is_open(window, at("2026-11-22T22:30"))
    assert is_open(window, at("2026-11-22T23:30") - 1)
    assert not is_open(window, at("2026-11-22T23:30"))
    assert next_span(window, at("2026-11-22T23:30")) is None


def test_the_zone_is_the_window_s() -> None:
    window = Window(
        kind=Window.Kind.ONCE, begins="2026-11-22T22:30", minutes=60, zone="Asia/Shanghai"
    )

    assert is_open(window, at("2026-11-22T15:45"))
    assert not is_open(window, at("2026-11-22T22:45"))


def test_a_weekly_window_crosses_midnight() -> None:
    window = weekly("23:00", 120, [6])  # Sunday

    assert is_open(window, at("2026-11-22T23:30"))
    assert is_open(window, at("2026-11-23T00:59"))
    assert not is_open(window, at("2026-11-23T01:00"))
    assert not is_open(window, at("2026-11-23T23:30"))


def test_a_window_of_days_is_open_on_each_of_them() -> None:
    window = weekly("18:00", 3 * 24 * 60, [4])  # Friday evening to Monday evening

    assert is_open(window, at("2026-11-23T17:59"))
    assert not is_open(window, at("2026-11-23T18:00"))


@pytest.mark.parametrize(
    ("begins", "inside", "after"),
    [
        # In spring 02:30 doesn't exist: the window begins an hour later by the clock.
        ("2027-03-28T02:30", at("2027-03-28T03:59"), at("2027-03-28T04:30")),
        # In autumn 02:30 occurs twice: the hour counts from the first one.
        ("2027-10-31T02:30", at("2027-10-31T02:10", fold=1), at("2027-10-31T02:30", fold=1)),
    ],
)
def test_an_hour_has_the_same_length_when_clocks_change(
    begins: str, inside: int, after: int
) -> None:
    once = Window(kind=Window.Kind.ONCE, begins=begins, minutes=60, zone=BERLIN)
    daily = weekly("02:30", 60, DAILY)

    for window in (once, daily):
        assert is_open(window, inside)
        assert not is_open(window, after)


def test_a_disabled_window_is_never_open() -> None:
    window = weekly("00:00", 24 * 60, DAILY)
    window.enabled = False

    assert not is_open(window, at("2026-11-22T12:00"))


@pytest.mark.parametrize(
    ("broker", "name", "meant"),
    [
        ("*", "*", True),
        ("broker-*", "billing", True),
        ("*", "Orders", True),
        ("*", "shop-*, bill*", True),
        ("*", "bill", False),
        ("broker-b", "*", False),
        ("", "*", False),
    ],
)
def test_patterns_match_subjects(broker: str, name: str, meant: bool) -> None:
    assert is_about(broker, name, "broker-a", "billing@Orders") is meant
