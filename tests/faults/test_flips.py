"""Single bits of a log are flipped."""

from __future__ import annotations

import random

import pytest

from tools.faults import flips

FLIPS = 200
SEED = 20_261_121


@pytest.mark.fault
@pytest.mark.parametrize("seed", [SEED, 2_342_878_378])
def test_a_flipped_bit_loses_at_most_one_message_and_is_reported(seed: int) -> None:
    findings = flips.run(FLIPS, random.Random(seed))

    assert findings.wrong == []
    assert findings.lost > FLIPS // 2


@pytest.mark.fault
def test_every_flipped_bit_of_guarded_records_is_reported() -> None:
    findings = flips.run(FLIPS, random.Random(SEED), is_guarded=True)

    assert findings.wrong == []
    assert findings.altered == 0
    assert findings.lost == FLIPS
