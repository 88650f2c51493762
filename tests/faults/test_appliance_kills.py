"""Each process of an appliance may be killed at any time: it comes back, and nothing is lost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.faults import appliance_kills

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault

SEED = 18


def test_each_process_comes_back_no_report_is_missing_or_made_twice(tmp_path: Path) -> None:
    found = appliance_kills.run(tmp_path, 1, random.Random(SEED), say=print)

    assert found.wrong == []
    assert set(found.back_seconds) == set(appliance_kills.VICTIMS)
    assert found.acknowledged > 100
    assert found.done > 0
    assert found.run_again > 0
