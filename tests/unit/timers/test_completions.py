"""Completion records: encoding, decoding and batches."""

from __future__ import annotations

import pytest

from broker_core.timers import completions
from broker_core.timers.completions import Completion, FinishedTimer

TIMER = FinishedTimer(7, 4_711)


@pytest.mark.parametrize(
    "timers", [(), (TIMER,), (TIMER, FinishedTimer(3), FinishedTimer(1 << 40, 0))]
)
def test_a_decoded_record_equals_the_encoded_one(timers: tuple[FinishedTimer, ...]) -> None:
    one = Completion(3, 12, timers)

    assert completions.decode(completions.encode(one)) == one


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x01" * 16,
        b"\x02" + bytes(16),
        completions.encode(Completion(3, 12, (TIMER,)))[:-1],
        completions.encode(Completion(13, 12, ())),
    ],
)
def test_a_malformed_body_is_rejected(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"record|buffer"):
        completions.decode(body)


def test_batches_fit_into_one_record_each() -> None:
    portions = completions.batches([TIMER] * (completions.TIMERS_MAX * 2 + 1))

    assert [len(each) for each in portions] == [completions.TIMERS_MAX, completions.TIMERS_MAX, 1]
