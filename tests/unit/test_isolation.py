from __future__ import annotations

import asyncio
import logging

import pytest

from broker_core.isolation import QUIET_S, FailureLog, isolated
from tests.support.clock import ManualClock


def test_an_error_raised_by_one_of_many_is_logged_and_the_others_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served = []
    for item in (1, 0, 2):
        with isolated("a division", item) as one:
            served.append(1 / item)
        assert (one.error is not None) == (item == 0)

    assert served == [1.0, 0.5]
    assert "step failed, continuing with the next step=a division item=0" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("error", [MemoryError(), asyncio.CancelledError(), KeyboardInterrupt()])
def test_fatal_errors_are_not_isolated(error: BaseException) -> None:
    with pytest.raises(type(error)), isolated("a step"):
        raise error


def test_a_repeated_failure_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    failures = FailureLog(clock)
    with caplog.at_level(logging.ERROR):
        for number in range(1_000):
            failures.report("a step", number, ValueError("no"))
        failures.report("another step", "x" * 10_000, ValueError("no"))
        clock.advance_ms(int(QUIET_S * 1000))
        failures.report("a step", "last", ValueError("no"))

    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert len(lines[1]) < 1_000
    assert lines[2].endswith("item=last failures_not_logged=999")
