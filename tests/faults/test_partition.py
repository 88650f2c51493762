"""Partitions and bad links between a master, its slave and their clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import network
from tools.faults import partition
from tools.faults.clients import STORED_CODES

if TYPE_CHECKING:
    import random
    from pathlib import Path

ROUNDS = 10


@pytest.mark.fault
def test_no_partition_loses_acknowledged_messages(tmp_path: Path, rng: random.Random) -> None:
    missing = network.missing()
    if missing:
        pytest.skip(f"NOT TESTED: partitions between brokers, which need {missing}")

    findings = partition.run(tmp_path, ROUNDS, rng)

    assert findings.wrong == []
    assert findings.cycles == ROUNDS
    assert findings.acknowledged > ROUNDS * 10
    # The faults had an effect: some messages were stored, and not acknowledged.
    assert sum(count for code, count in findings.codes.items() if code in STORED_CODES) > 0
