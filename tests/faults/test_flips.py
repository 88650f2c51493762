"""Single bits of a log are flipped."""

from __future__ import annotations

import random

import pytest

from tools.faults import flips

FLIPS = 200
SEED = 20_261_121


@pytest.mark.fault
@pytest.mark.parametrize("seed", [SEED, 2_342_878_378])
def test_a_flipped_bit_costs_one_message_at_most_and_is_told_of(seed: int) -> None:
    findings = flips.run(FLIPS, random.Random(seed))

    assert findings.wrong == []
    assert findings.lost > FLIPS // 2


@pytest.mark.fault
def test_of_guarded_records_every_flipped_bit_is_told() -> None:
    findings = flips.run(FLIPS, random.Random(SEED), is_guarded=True)

    assert findings.wrong == []
    assert findings.altered == 0
    assert findings.lost == FLIPS
