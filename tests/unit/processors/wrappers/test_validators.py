from __future__ import annotations

from typing import Any, cast

import pytest

from broker_core.access.account import Permission
from broker_core.access.rules import Need
from broker_core.errors import AbortProcessError, RequestRefusedError
from broker_core.extensions.access_validator import Resource
from broker_core.extensions.failures import Failures
from broker_core.extensions.loading import ActiveExtension
from broker_core.processors.wrappers.validators import FAILED, AccessValidators
from broker_core.protocol.command import RemotingCommand

REQUEST = RemotingCommand.request(34)


class Validator:
    """Returns or raises its outcome; records the callers."""

    interface_version = 1

    def __init__(self, outcome: object = None) -> None:
        self._outcome = outcome
        self.requests: list[str] = []

    def validate(self, _: RemotingCommand, remote_address: str) -> Any:
        self.requests.append(remote_address)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class FoundValidator(Validator):
    """Accepts every request, and applies its outcome to the request's result."""

    def __init__(self, outcome: object = None) -> None:
        super().__init__()
        self._found_outcome = outcome
        self.found: list[tuple[Resource, ...]] = []

    def validate_found(
        self, _: RemotingCommand, remote_address: str, found: tuple[Resource, ...]
    ) -> Any:
        self.requests.append(remote_address)
        self.found.append(found)
        if isinstance(self._found_outcome, Exception):
            raise self._found_outcome
        return self._found_outcome


class Plain:
    def __init__(self, *, lets_pass: bool) -> None:
        self._lets_pass = lets_pass

    def authorize(self, _: RemotingCommand, __: str) -> None:
        if not self._lets_pass:
            raise RequestRefusedError(1, "plain says no")

    def require(self, request: RemotingCommand, peer: str, _: object) -> None:
        self.authorize(request, peer)


def validate(
    *validators: Validator | None, plain: Plain | None = None, needs: list[Need] | None = None
) -> tuple[RequestRefusedError | None, Failures]:
    failures = Failures()
    loaded = tuple(ActiveExtension(f"v{number}", one) for number, one in enumerate(validators))
    chain = AccessValidators(loaded, cast("Any", plain), failures)
    try:
        if needs is None:
            chain.authorize(REQUEST, "10.0.0.1:5")
        else:
            chain.require(REQUEST, "10.0.0.1:5", needs)
    except RequestRefusedError as refusal:
        return refusal, failures
    return None, failures


def test_all_must_agree_on_their_order() -> None:
    first, last = Validator(), Validator(AbortProcessError(16, "no"))

    refusal, failures = validate(first, last)

    assert refusal is not None
    assert (refusal.code, refusal.remark) == (16, "no")
    assert first.requests == last.requests == ["10.0.0.1:5"]
    assert not failures.counts


def test_later_hooks_are_skipped_after_a_rejection() -> None:
    last = Validator()

    validate(Validator(AbortProcessError(16, "no")), last)

    assert last.requests == []


def test_plain_acl_is_consulted_in_its_place() -> None:
    last = Validator()

    refusal, _ = validate(None, last, plain=Plain(lets_pass=False))

    assert refusal is not None
    assert refusal.remark == "plain says no"
    assert last.requests == []
    assert validate(None, last, plain=Plain(lets_pass=True))[0] is None
    assert last.requests == ["10.0.0.1:5"]


@pytest.mark.parametrize("outcome", [ValueError("broken"), False, True, "no"])
def test_any_validator_error_rejects_the_request(outcome: object) -> None:
    refusal, failures = validate(Validator(outcome))

    assert refusal is not None
    assert (refusal.code, refusal.remark) == (1, FAILED)
    assert failures.counts == {"v0": 1}


@pytest.mark.parametrize("code", [0, -5, 1 << 20, "16"])
def test_no_rejection_looks_like_a_success(code: Any) -> None:
    refusal, _ = validate(Validator(AbortProcessError(code, "no")))

    assert refusal is not None
    assert (refusal.code, refusal.remark) == (1, "no")


def test_validators_see_what_a_request_has_led_to() -> None:
    validator = FoundValidator()
    needs = [Need("T", Permission.PUB), Need("%RETRY%g", Permission.SUB)]

    refusal, _ = validate(Validator(), validator, needs=needs)

    assert refusal is None
    assert validator.found == [(Resource("topic", "T", "PUB"), Resource("group", "g", "SUB"))]


@pytest.mark.parametrize(
    ("outcome", "remark"), [(AbortProcessError(16, "not yours"), "not yours"), (False, FAILED)]
)
def test_a_validator_rejects_what_a_request_has_led_to(outcome: object, remark: str) -> None:
    needs = [Need("T", Permission.SUB)]

    refusal, _ = validate(FoundValidator(outcome), needs=needs)
    of_plain, _ = validate(FoundValidator(), None, plain=Plain(lets_pass=False), needs=needs)

    assert refusal is not None
    assert refusal.remark == remark
    assert of_plain is not None
    assert of_plain.remark == "plain says no"
