from __future__ import annotations

from typing import Any, cast

import pytest

from broker_core.errors import AbortProcessError, RequestRefusedError
from broker_core.extensions.failures import Failures
from broker_core.extensions.loading import Loaded
from broker_core.processors.validators import FAILED, AccessValidators
from broker_core.protocol.command import RemotingCommand

REQUEST = RemotingCommand.request(34)


class Validator:
    """Does what it was made with; remembers whom it was asked about."""

    interface_version = 1

    def __init__(self, outcome: object = None) -> None:
        self._outcome = outcome
        self.asked: list[str] = []

    def validate(self, _: RemotingCommand, remote_address: str) -> Any:
        self.asked.append(remote_address)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class Plain:
    def __init__(self, *, lets_pass: bool) -> None:
        self._lets_pass = lets_pass

    def authorize(self, _: RemotingCommand, __: str) -> None:
        if not self._lets_pass:
            raise RequestRefusedError(1, "plain says no")


def asked(
    *validators: Validator | None, plain: Plain | None = None
) -> tuple[RequestRefusedError | None, Failures]:
    failures = Failures()
    loaded = tuple(Loaded(f"v{number}", one) for number, one in enumerate(validators))
    chain = AccessValidators(loaded, cast("Any", plain), failures)
    try:
        chain.authorize(REQUEST, "10.0.0.1:5")
    except RequestRefusedError as refusal:
        return refusal, failures
    return None, failures


def test_all_have_to_agree_in_their_order() -> None:
    first, last = Validator(), Validator(AbortProcessError(16, "no"))

    refusal, failures = asked(first, last)

    assert refusal is not None
    assert (refusal.code, refusal.remark) == (16, "no")
    assert first.asked == last.asked == ["10.0.0.1:5"]
    assert not failures.counts


def test_who_comes_after_a_refusal_is_not_asked() -> None:
    last = Validator()

    asked(Validator(AbortProcessError(16, "no")), last)

    assert last.asked == []


def test_plain_acl_is_asked_in_its_place() -> None:
    last = Validator()

    refusal, _ = asked(None, last, plain=Plain(lets_pass=False))

    assert refusal is not None
    assert refusal.remark == "plain says no"
    assert last.asked == []
    assert asked(None, last, plain=Plain(lets_pass=True))[0] is None
    assert last.asked == ["10.0.0.1:5"]


@pytest.mark.parametrize("outcome", [ValueError("broken"), False, True, "no"])
def test_whatever_goes_wrong_refuses(outcome: object) -> None:
    refusal, failures = asked(Validator(outcome))

    assert refusal is not None
    assert (refusal.code, refusal.remark) == (1, FAILED)
    assert failures.counts == {"v0": 1}


@pytest.mark.parametrize("code", [0, -5, 1 << 20, "16"])
def test_no_refusal_looks_like_a_success(code: Any) -> None:
    refusal, _ = asked(Validator(AbortProcessError(code, "no")))

    assert refusal is not None
    assert (refusal.code, refusal.remark) == (1, "no")
