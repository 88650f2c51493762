from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.access.account import build_account
from broker_core.access.freshness import Freshness, NotFreshError
from broker_core.config.limits import LimitsConfig
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.fresh_signature import FreshSigner
from broker_core.protocol.signature import Credentials
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "12345678"
WINDOW_MS = 60_000


def account(access_key: str = "console", **more: Any) -> Any:
    return build_account({"accessKey": access_key, "secretKey": SECRET, **more})


def a_request(
    clock: ManualClock,
    access_key: str = "console",
    *,
    nonce: Callable[[], str] | None = None,
    age_ms: int = 0,
) -> RemotingCommand:
    request = RemotingCommand.request(28, {"topic": "T"})
    credentials = Credentials(access_key, SECRET)

    def now_ms() -> int:
        return clock.now_ms() - age_ms

    signer = FreshSigner(credentials, now_ms, nonce) if nonce else FreshSigner(credentials, now_ms)
    signer.sign(request)
    return request


def refusal(freshness: Freshness, request: RemotingCommand, access_key: str = "console") -> str:
    try:
        freshness.check(request, account(access_key))
    except NotFreshError as error:
        return str(error)
    return ""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def freshness(clock: ManualClock) -> Freshness:
    made = Freshness(clock)
    # Otherwise everything before now was signed before the start.
    clock.advance_ms(10 * WINDOW_MS)
    return made


def test_a_request_passes_once(clock: ManualClock, freshness: Freshness) -> None:
    request = a_request(clock)

    assert refusal(freshness, request) == ""
    for _ in range(3):
        assert (
            refusal(freshness, request)
            == "the request was received before; sign each attempt again"
        )
        clock.advance_ms(25_000)
    assert "75 s before the broker's clock" in refusal(freshness, request)


def test_two_accounts_may_use_the_same_nonce(clock: ManualClock, freshness: Freshness) -> None:
    for access_key in ("console", "another"):
        request = a_request(clock, access_key, nonce=lambda: "n" * 32)
        assert refusal(freshness, request, access_key) == ""


def test_a_nonce_cannot_be_reused_at_another_time(clock: ManualClock, freshness: Freshness) -> None:
    assert refusal(freshness, a_request(clock, nonce=lambda: "n" * 32)) == ""
    clock.advance_ms(5_000)

    again = a_request(clock, nonce=lambda: "n" * 32)

    assert refusal(freshness, again) == "the request was received before; sign each attempt again"


@pytest.mark.parametrize("sign", [1, -1])
def test_the_time_is_near_the_brokers_clock(
    clock: ManualClock, freshness: Freshness, sign: int
) -> None:
    assert refusal(freshness, a_request(clock, age_ms=sign * WINDOW_MS)) == ""
    wrong = refusal(freshness, a_request(clock, age_ms=sign * (WINDOW_MS + 1_000)))
    assert wrong == (
        f"the request's time is 61 s {'before' if sign > 0 else 'after'} the broker's clock, more "
        "than the 60 s allowed; synchronize the clocks of both machines"
    )


@pytest.mark.parametrize("text", ["", "now", "-1", "1e3", "١٢٣", "1" * 16])
def test_an_invalid_time_is_rejected(clock: ManualClock, freshness: Freshness, text: str) -> None:
    class Odd(int):
        def __str__(self) -> str:
            return text

    request = RemotingCommand.request(28, {})
    FreshSigner(Credentials("console", SECRET), lambda: Odd(clock.now_ms())).sign(request)

    assert "trebuchetTime is not a time" in refusal(freshness, request)


@pytest.mark.parametrize("nonce", ["", "n" * 31, "n" * 65])
def test_a_nonce_has_enough_characters_and_not_too_many(
    clock: ManualClock, freshness: Freshness, nonce: str
) -> None:
    request = a_request(clock, nonce=lambda: nonce)

    assert refusal(freshness, request) == "trebuchetNonce must have 32 to 64 characters"


def test_a_signature_from_before_the_start_is_rejected(clock: ManualClock) -> None:
    recorded = a_request(clock)
    clock.advance_ms(1_000)

    started = Freshness(clock)

    assert "before the broker started" in refusal(started, recorded)
    assert refusal(started, a_request(clock)) == ""


def test_a_full_account_is_rejected_and_drops_nothing_early(clock: ManualClock) -> None:
    freshness = Freshness(clock, LimitsConfig(account_nonce_nums_max=3))
    requests = [a_request(clock) for _ in range(4)]

    answers = [refusal(freshness, request) for request in requests]

    assert answers[:3] == ["", "", ""]
    assert "accountNonceNumsMax=3" in answers[3]
    assert refusal(freshness, a_request(clock, "another"), "another") == ""
    clock.advance_ms(WINDOW_MS - 1)
    assert (
        refusal(freshness, requests[0])
        == "the request was received before; sign each attempt again"
    )
    assert "accountNonceNumsMax=3" in refusal(freshness, a_request(clock))


def test_expired_nonces_are_forgotten(clock: ManualClock, freshness: Freshness) -> None:
    requests = [a_request(clock, age_ms=-WINDOW_MS) for _ in range(100)]
    for request in requests:
        assert refusal(freshness, request) == ""
    clock.advance_ms(2 * WINDOW_MS - 1_000)
    assert (
        refusal(freshness, requests[0])
        == "the request was received before; sign each attempt again"
    )
    clock.advance_ms(12_000)

    assert refusal(freshness, a_request(clock, "another"), "another") == ""

    assert len(freshness) == 1


def test_a_clock_that_steps_back_readmits_no_replay(
    clock: ManualClock, freshness: Freshness
) -> None:
    recorded = a_request(clock)
    assert refusal(freshness, recorded) == ""
    clock.advance_ms(3 * WINDOW_MS)
    assert refusal(freshness, a_request(clock)) == ""
    assert len(freshness) == 1

    clock.step_wall_clock_ms(-3 * WINDOW_MS)

    assert "the broker's clock went back" in refusal(freshness, recorded)


def test_a_wrong_signature_leaves_no_nonce(clock: ManualClock, freshness: Freshness) -> None:
    request = a_request(clock)
    request.code += 1

    assert refusal(freshness, request) == "the signature doesn't match the request"

    assert len(freshness) == 0
