from __future__ import annotations

import logging

import pytest

from broker_core.counted_log import SUBJECTS_MAX, CountedLog
from tests.support.clock import ManualClock

MINUTE = 60_000
logger = logging.getLogger("counted")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def counted_log(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> CountedLog:
    caplog.set_level(logging.INFO)
    return CountedLog(clock)


def report(counted_log: CountedLog, subject: str, number: int) -> None:
    counted_log.report(logger, logging.INFO, "messages are dead", subject, "key=%d", number)


def test_the_first_event_of_a_subject_is_logged_immediately(
    counted_log: CountedLog, caplog: pytest.LogCaptureFixture
) -> None:
    report(counted_log, "group=a", 1)
    report(counted_log, "group=b", 2)

    assert caplog.messages == [
        "messages are dead group=a count=1 key=1",
        "messages are dead group=b count=1 key=2",
    ]


def test_the_following_ones_are_counted_in_one_line_a_minute(
    counted_log: CountedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        report(counted_log, "group=a", number)
    clock.advance_ms(MINUTE - 1)
    assert len(caplog.messages) == 1

    clock.advance_ms(1)
    report(counted_log, "group=a", 1000)
    clock.advance_ms(MINUTE)

    assert caplog.messages[1:] == [
        "messages are dead group=a count=999 key=999",
        "messages are dead group=a count=1 key=1000",
    ]


def test_a_minute_without_an_event_ends_the_counting(
    counted_log: CountedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    report(counted_log, "group=a", 1)
    clock.advance_ms(MINUTE)

    assert clock.waiting == 0
    assert len(caplog.messages) == 1
    report(counted_log, "group=a", 2)
    assert caplog.messages[1:] == ["messages are dead group=a count=1 key=2"]


def test_the_counts_are_logged_at_the_end(
    counted_log: CountedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        report(counted_log, "group=a", number)

    counted_log.shutdown()

    assert caplog.messages[1:] == ["messages are dead group=a count=2 key=2"]
    assert clock.waiting == 0


def test_names_made_up_by_clients_share_a_line(
    counted_log: CountedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(SUBJECTS_MAX + 500):
        report(counted_log, f"group={number}", number)
    assert len(caplog.messages) == SUBJECTS_MAX + 1

    clock.advance_ms(MINUTE)

    assert caplog.messages[SUBJECTS_MAX:] == [
        f"messages are dead others count=1 key={SUBJECTS_MAX}",
        f"messages are dead others count=499 key={SUBJECTS_MAX + 499}",
    ]


def test_an_event_without_detail_is_its_subject_and_count(
    counted_log: CountedLog, caplog: pytest.LogCaptureFixture
) -> None:
    counted_log.report(logger, logging.WARNING, "odd", "topic=100%s")

    assert caplog.messages == ["odd topic=100%s count=1"]
    assert caplog.records[0].levelno == logging.WARNING
