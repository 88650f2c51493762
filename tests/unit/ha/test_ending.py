"""Why a running broker ends by itself."""

from __future__ import annotations

from broker_core.ha.ending import Ending


def asked(ending: Ending) -> list[str]:
    calls: list[str] = []
    ending.when_asked(lambda: calls.append(ending.failure))
    return calls


def test_it_is_asked_for_once_and_the_first_reason_stays() -> None:
    ending = Ending()
    calls = asked(ending)

    ending.fail("first")
    ending.fail("second")
    ending.start_again("third")

    assert (ending.is_asked, ending.failure, calls) == (True, "first", ["first"])


def test_a_broker_that_starts_again_has_not_failed() -> None:
    ending = Ending()
    calls = asked(ending)

    ending.start_again("because")
    ending.fail("too late")

    assert (ending.is_asked, ending.failure, calls) == (True, "", [""])


def test_who_listens_late_hears_at_once() -> None:
    ending = Ending()
    assert asked(ending) == []
    ending.fail("early")

    assert asked(ending) == ["early"]
