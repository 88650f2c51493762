from __future__ import annotations

import pytest

from broker_core.delay.levels import DelayLevels, requested_level

LEVELS = DelayLevels.of("1s 5s 1m 2h 1d")


def test_levels_are_read_in_rocketmqs_units() -> None:
    assert LEVELS.delays_ms == (1_000, 5_000, 60_000, 7_200_000, 86_400_000)


def test_a_deferred_message_remembers_its_target() -> None:
    properties = {"DELAY": "2", "TAGS": "A"}

    place = LEVELS.defer(properties, "T", 3)

    assert place == ("SCHEDULE_TOPIC_XXXX", 1)
    assert properties == {"DELAY": "2", "TAGS": "A", "REAL_TOPIC": "T", "REAL_QID": "3"}


def test_a_level_above_the_last_is_the_last() -> None:
    properties = {"DELAY": "99"}

    assert LEVELS.defer(properties, "T", 0) == ("SCHEDULE_TOPIC_XXXX", 4)
    assert properties["DELAY"] == "5"


@pytest.mark.parametrize("properties", [{}, {"DELAY": "0"}, {"DELAY": "-1"}])
def test_no_level_keeps_nothing(properties: dict[str, str]) -> None:
    before = dict(properties)

    assert LEVELS.defer(properties, "T", 0) is None
    assert properties == before


@pytest.mark.parametrize("text", ["x", "1.5", "", " 1", "1_0", "99999999999"])
def test_a_non_numeric_level_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="DELAY is not a number"):
        requested_level({"DELAY": text})


def test_a_level_of_an_older_configuration_waits_like_the_last_one() -> None:
    assert LEVELS.delay_ms(18) == 86_400_000
