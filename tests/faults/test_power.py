"""The power is cut while messages are put."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults import power

if TYPE_CHECKING:
    import random
    from pathlib import Path

CUTS = 10


@pytest.mark.fault
def test_sync_flush_loses_nothing_when_the_power_is_cut(tmp_path: Path, rng: random.Random) -> None:
    if power.missing():
        pytest.skip(f"power cannot be cut here without {power.missing()}")

    findings = power.run(tmp_path, CUTS, rng)

    assert findings.wrong == []
    assert findings.cuts == CUTS
    assert findings.acknowledged > CUTS
