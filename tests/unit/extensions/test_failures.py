from __future__ import annotations

import sys

import pytest

from broker_core.errors import AbortProcessError
from broker_core.extensions.failures import ExtensionFailedError, Failures


def broken(*_: object) -> None:
    raise ValueError("broken")


def refusing(*_: object) -> None:
    raise AbortProcessError(13, "no")


def test_the_first_failure_is_logged_and_all_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures()

    for name in ("a", "a", "b"):
        with pytest.raises(ExtensionFailedError):
            failures.call(name, broken)
    failures.note("a", "returned nothing")

    assert failures.counts == {"a": 3, "b": 1}
    assert [record.getMessage() for record in caplog.records] == [
        "extension failed, later failures are only counted extension=a method=broken",
        "extension failed, later failures are only counted extension=b method=broken",
    ]
    assert "ValueError: broken" in caplog.text


def test_a_rejection_is_not_a_failure() -> None:
    failures = Failures()

    with pytest.raises(AbortProcessError):
        failures.call("a", refusing)

    assert not failures.counts


def test_exiting_the_program_is_a_failure() -> None:
    with pytest.raises(ExtensionFailedError):
        Failures().call("a", sys.exit, 1)


@pytest.mark.parametrize("method", [broken, refusing])
def test_an_attempt_raises_nothing(method: object) -> None:
    failures = Failures()

    failures.attempt("a", method)  # type: ignore[arg-type]

    assert failures.counts == {"a": 1}
