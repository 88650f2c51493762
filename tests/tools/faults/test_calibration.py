"""The harness finds RocketMQ's known failures, and none in ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_java
from tools.faults import flush_errors, tested_brokers

if TYPE_CHECKING:
    import random
    from pathlib import Path


@pytest.mark.fault
@pytest.mark.interop
def test_the_original_acknowledges_unflushed_messages_but_ours_does_not(
    tmp_path: Path, rng: random.Random
) -> None:
    missing = flush_errors.missing()
    if missing:
        pytest.skip(f"NOT TESTED: flushes that fail, which needs {missing}")
    require_java()

    original = flush_errors.run(tmp_path / "original", 1, rng, kind="5.3.3")
    ours = flush_errors.run(tmp_path / "ours", 1, rng, kind=tested_brokers.OURS)

    assert original.acknowledged_after == flush_errors.SENDS
    assert original.lost > 0
    assert ours.wrong == []
    assert ours.acknowledged_after == ours.lost == 0
    assert ours.acknowledged > 0
