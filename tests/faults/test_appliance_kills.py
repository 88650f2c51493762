"""Each process of an appliance can be killed at any time: it restarts, and no data is lost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.faults.conftest import skip_without
from tools.faults import appliance_kills

if TYPE_CHECKING:
    from pathlib import Path

    from tools.faults.real_clients import Programs

pytestmark = pytest.mark.fault

SEED = 18


@pytest.mark.interop
def test_each_process_restarts_and_no_report_is_missing_or_repeated(
    tmp_path: Path, programs: Programs | None
) -> None:
    found = appliance_kills.run(tmp_path, 1, random.Random(SEED), programs=programs, say=print)

    assert found.wrong == []
    assert set(found.back_seconds) == set(appliance_kills.VICTIMS)
    assert found.history.acknowledged > 100
    assert found.done > 0
    assert found.run_again > 0
    if programs is not None:
        # The Java and the Go client return some messages, which raw ones never do.
        assert found.history.explained["returned"] > 0
    skip_without(programs)
