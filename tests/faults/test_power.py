"""The power is cut while messages are put."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults import power

if TYPE_CHECKING:
    import random
    from pathlib import Path

CUTS = 10
CUTS_OF_A_BROKER = 4


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    if power.missing():
        pytest.skip(f"power cannot be cut here, that needs {power.missing()}")
    return tmp_path


@pytest.mark.fault
def test_sync_flush_loses_nothing_when_the_power_is_cut(
    directory: Path, rng: random.Random
) -> None:
    findings = power.run(directory, CUTS, rng)

    assert findings.wrong == []
    assert findings.cuts == CUTS
    assert findings.acknowledged > CUTS


@pytest.mark.fault
def test_a_topic_made_just_before_the_cut_answers_right_after_the_start(
    directory: Path, rng: random.Random
) -> None:
    findings = power.run_broker(directory, CUTS_OF_A_BROKER, rng)

    assert findings.wrong == []
    assert findings.cuts == CUTS_OF_A_BROKER
    assert findings.acknowledged > CUTS_OF_A_BROKER
