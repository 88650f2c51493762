"""Some points at which system calls fail; `python -m tools.faults syscalls` tries them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.faults import syscalls

if TYPE_CHECKING:
    from pathlib import Path

POINTS_OF_A_FAULT = 4


@pytest.mark.fault
def test_a_store_survives_a_failure_or_kill_at_any_call(tmp_path: Path) -> None:
    if syscalls.missing():
        pytest.skip(f"system calls cannot be made to fail here, that needs {syscalls.missing()}")

    findings = syscalls.run(tmp_path, POINTS_OF_A_FAULT)

    assert findings.wrong == []
    assert findings.points >= POINTS_OF_A_FAULT * 7
