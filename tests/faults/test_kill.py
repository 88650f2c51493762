"""A store process is killed at random times."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tools.faults import kill
from tools.faults.writer import EXTENDED, POOLED

if TYPE_CHECKING:
    from pathlib import Path

CYCLES = 8
CYCLES_WITH_BUFFERS = 6
SEED = 20_261_121


@pytest.mark.fault
@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_acknowledged_messages_survive_every_kill(tmp_path: Path, flush_disk_type: str) -> None:
    findings = kill.run(tmp_path, flush_disk_type, CYCLES, random.Random(SEED))

    assert findings.wrong == []
    assert findings.cycles == CYCLES
    assert findings.stored >= findings.acknowledged > CYCLES


@pytest.mark.fault
def test_readable_data_survives_a_kill_of_a_store_with_buffers(tmp_path: Path) -> None:
    findings = kill.run(tmp_path, POOLED, CYCLES_WITH_BUFFERS, random.Random(SEED))

    assert findings.wrong == []
    assert findings.cycles == CYCLES_WITH_BUFFERS
    assert findings.stored >= findings.acknowledged > CYCLES_WITH_BUFFERS


@pytest.mark.fault
def test_extensions_are_correct_after_every_kill(tmp_path: Path) -> None:
    findings = kill.run(tmp_path, EXTENDED, CYCLES_WITH_BUFFERS, random.Random(SEED))

    assert findings.wrong == []
    assert findings.cycles == CYCLES_WITH_BUFFERS
    assert findings.stored >= findings.acknowledged > CYCLES_WITH_BUFFERS
