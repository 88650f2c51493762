"""Reasons for a running broker to stop on its own."""

from __future__ import annotations

from broker_core.ha.shutdown import Shutdown


def record_requests(ending: Shutdown) -> list[str]:
    calls: list[str] = []
    ending.on_request(lambda: calls.append(ending.failure))
    return calls


def test_it_is_requested_once_and_the_first_reason_stays() -> None:
    ending = Shutdown()
    calls = record_requests(ending)

    ending.fail("first")
    ending.fail("second")
    ending.restart("third")

    assert (ending.is_requested, ending.failure, calls) == (True, "first", ["first"])


def test_a_restarting_broker_has_not_failed() -> None:
    ending = Shutdown()
    calls = record_requests(ending)

    ending.restart("because")
    ending.fail("too late")

    assert (ending.is_requested, ending.failure, calls) == (True, "", [""])


def test_a_late_listener_is_notified_immediately() -> None:
    ending = Shutdown()
    assert record_requests(ending) == []
    ending.fail("early")

    assert record_requests(ending) == ["early"]
