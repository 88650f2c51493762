"""The master of a set is killed under load, its slave promoted, and the old one restarted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.faults import promotion

if TYPE_CHECKING:
    import random
    from pathlib import Path

ROUNDS = {"SYNC_FLUSH": 3, "flushed": 2}


@pytest.mark.fault
@pytest.mark.parametrize("kind", sorted(ROUNDS))
def test_no_promotion_loses_acknowledged_messages(
    tmp_path: Path, rng: random.Random, kind: str
) -> None:
    findings = promotion.run(tmp_path, kind, ROUNDS[kind], rng)

    assert findings.wrong == []
    assert findings.cycles == ROUNDS[kind]
    assert findings.acknowledged > ROUNDS[kind] * 10
    assert findings.delivered_late > 0
