"""The delivery time that a message requests."""

from __future__ import annotations

import pytest

from broker_core.timers.delivery_time import DeliveryTime, delivery_time_of

NOW = 1_795_810_000_000


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, None),
        ({"TAGS": "a"}, None),
        ({"TIMER_DELAY_SEC": "3"}, DeliveryTime(NOW + 3_000, is_delay=True)),
        ({"TIMER_DELAY_MS": "15"}, DeliveryTime(NOW + 15, is_delay=True)),
        ({"TIMER_DELAY_MS": "+15"}, DeliveryTime(NOW + 15, is_delay=True)),
        ({"TIMER_DELIVER_MS": str(NOW + 7)}, DeliveryTime(NOW + 7, is_delay=False)),
        ({"TIMER_DELIVER_MS": "-5"}, DeliveryTime(-5, is_delay=False)),
        (
            {"TIMER_DELIVER_MS": "7", "TIMER_DELAY_MS": "15", "TIMER_DELAY_SEC": "3"},
            DeliveryTime(NOW + 3_000, is_delay=True),
        ),
        (
            {"TIMER_DELIVER_MS": "7", "TIMER_DELAY_MS": "15"},
            DeliveryTime(NOW + 15, is_delay=True),
        ),
        ({"TIMER_DELAY_MS": "15", "TIMER_OUT_MS": str(NOW)}, None),
    ],
)
def test_the_first_of_the_three_properties_decides(properties, expected) -> None:
    assert delivery_time_of(properties, NOW) == expected


@pytest.mark.parametrize("value", ["", "x", "1.5", " 1", "1_000", "\u0661", "0x1", "9" * 20])
@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_a_value_that_java_cannot_parse_is_rejected(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        delivery_time_of({name: value}, NOW)


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS"])
def test_a_delay_that_overflows_a_java_int_is_rejected(name: str) -> None:
    largest = delivery_time_of({name: str((1 << 31) - 1)}, NOW)

    assert largest is not None
    assert largest.due_ms > NOW
    with pytest.raises(ValueError, match=name):
        delivery_time_of({name: str(1 << 31)}, NOW)
