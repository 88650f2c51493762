"""The life of an alert: durations, hysteresis, and unknown values."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from console.observe.alerts.life import (
    MINUTE_MS,
    PENDING_UNKNOWN_MS_MAX,
    UNKNOWN_MS_MAX,
    EndReason,
    Life,
    Sign,
    Stage,
    Terms,
    step,
)

TERMS = Terms(for_ms=2 * MINUTE_MS, clear_ms=3 * MINUTE_MS)
LETTERS = {"h": Sign.HOLDS, "b": Sign.BETWEEN, "c": Sign.CLEAR, "u": Sign.UNKNOWN}


def live(signs: str, terms: Terms = TERMS) -> list[str]:
    """Return the stage after each minute, "-" without an alert; a resolved one makes room."""
    life: Life | None = None
    stages = []
    for letter in signs:
        life = step(life, LETTERS[letter], MINUTE_MS, terms)
        stages.append("-" if life is None else life.stage.value[0])
        if life is not None and life.stage is Stage.RESOLVED:
            life = None
    return stages


@pytest.mark.parametrize(
    ("signs", "stages"),
    [
        ("hhh", "ppf"),
        ("hhc", "pp-"),
        ("hhb", "pp-"),
        ("b", "-"),
        ("hhhbbbbb", "ppffffff"),
        ("hhhcccc", "ppffffr"),
        ("hhhccbcccc", "ppfffffffr"),
        ("hhhcchcccc", "ppfffffffr"),
        ("huhh", "pppf"),
        ("hhhuuuu", "ppfffff"),
        ("hhhccucc", "ppfffffr"),
    ],
)
def test_an_alert_fires_and_resolves_after_its_delays(signs: str, stages: str) -> None:
    assert "".join(live(signs)) == stages


def test_without_durations_it_fires_and_resolves_immediately() -> None:
    assert live("hc", Terms(0, 0)) == ["f", "r"]


def test_a_long_unknown_value_resolves_the_alert_with_an_explanation() -> None:
    firing = Life(Stage.FIRING)

    soon = step(firing, Sign.UNKNOWN, UNKNOWN_MS_MAX - 1, TERMS)
    late = step(firing, Sign.UNKNOWN, UNKNOWN_MS_MAX, TERMS)

    assert soon is not None
    assert soon.stage is Stage.FIRING
    assert late is not None
    assert (late.stage, late.reason) == (Stage.RESOLVED, EndReason.UNKNOWN)
    assert step(Life(Stage.PENDING), Sign.UNKNOWN, PENDING_UNKNOWN_MS_MAX, TERMS) is None


@given(st.text("hbcu", max_size=200), st.integers(0, 6), st.integers(0, 6))
def test_no_alert_fires_or_resolves_before_its_time(
    signs: str, for_min: int, clear_min: int
) -> None:
    terms = Terms(for_min * MINUTE_MS, clear_min * MINUTE_MS)
    stages = live(signs, terms)

    for index, (before, now) in enumerate(pairwise(["-", *stages])):
        seen = [each for each in signs[: index + 1] if each != "u"]
        if now == "f" and before != "f":
            assert seen[-for_min - 1 :] == ["h"] * (for_min + 1)
        if now == "r" and signs[index] != "u":
            assert seen[-clear_min - 1 :] == ["c"] * (clear_min + 1)


@given(st.lists(st.integers(0, 200), max_size=300), st.integers(1, 5))
def test_a_value_between_the_levels_changes_nothing(values: list[int], clear_min: int) -> None:
    """Hysteresis: each end was below the lower level, each beginning above the upper one."""
    signs = "".join("h" if v > 150 else "b" if v > 50 else "c" for v in values)
    stages = live(signs, Terms(0, clear_min * MINUTE_MS))

    changes = [
        (index, now)
        for index, (before, now) in enumerate(pairwise(["-", *stages]))
        if now != before
    ]
    for index, now in changes:
        if now == "f":
            assert values[index] > 150
        if now == "r":
            assert values[index] <= 50
    assert all(now in "fr-" for _, now in changes)
