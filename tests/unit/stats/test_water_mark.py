from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.stats.water_mark import WaterMark
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    import pytest


def test_an_unhurried_loop_logs_nothing_in_a_quiet_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    water_mark = WaterMark(ManualClock(), lambda: 0, lambda: 0)

    water_mark.print_water_mark(3.0)

    assert caplog.text == ""
    assert water_mark.late_ms == 3.0


def test_a_late_loop_reports_its_delay_and_waiting_work(caplog: pytest.LogCaptureFixture) -> None:
    water_mark = WaterMark(ManualClock(), lambda: 17, lambda: 0, lambda: {"parked_pulls": 5})

    water_mark.print_water_mark(1_500.0)

    assert "[WATERMARK] slow_time_ms=1500.0 parked_pulls=5" in caplog.text


def test_frames_left_to_python_are_reported_once_and_only_if_there_are_any(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    left = {"header": 3, "store": 0}
    water_mark = WaterMark(ManualClock(), lambda: 0, lambda: 0, fallbacks=left.copy)

    water_mark.print_fallbacks()
    water_mark.print_fallbacks()
    left["store"] = 2
    water_mark.print_fallbacks()

    assert [record.message for record in caplog.records] == [
        "requests served by Python counts=header=3",
        "requests served by Python counts=store=2",
    ]


def test_the_dispatch_backlog_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    WaterMark(ManualClock(), lambda: 17, lambda: 0).print_dispatch_behind()

    assert "dispatch behind the log bytes=17" in caplog.text


def test_the_slaves_delay_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    WaterMark(ManualClock(), lambda: 0, lambda: 19).print_master_and_slave_diff()

    assert "slave behind the master bytes=19" in caplog.text
