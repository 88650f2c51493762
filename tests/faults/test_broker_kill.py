"""The broker is killed at random times under load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.faults import broker_kill

if TYPE_CHECKING:
    import random
    from pathlib import Path

CYCLES = 12
RECOVERY_SECONDS_MAX = 6.0
"""For the fastest cycle, because a busy machine delays some: about a second, with allowance."""


@pytest.mark.fault
@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_the_broker_may_be_killed_at_any_time(
    tmp_path: Path, rng: random.Random, flush_disk_type: str
) -> None:
    findings = broker_kill.run(tmp_path, flush_disk_type, CYCLES, rng)

    assert findings.wrong == []
    assert findings.cycles == CYCLES
    assert findings.delivered >= findings.acknowledged > CYCLES * 10
    assert min(findings.recovered) < RECOVERY_SECONDS_MAX
