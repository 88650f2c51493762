"""A SYNC_MASTER's acknowledged messages are in the files of a slave killed under load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.faults import power, slave_kill
from tools.faults.operations import digest_of
from tools.faults.plain_store import Whole
from tools.faults.slave_kill import Acknowledged

if TYPE_CHECKING:
    import random
    from pathlib import Path

CYCLES = {slave_kill.RECEIVED: 3, slave_kill.POWER: 2}
TRIES = 20
"""A kill between two transfers finds all of them written."""
KEPT = Whole(b"head-body-tail", b"body")


@pytest.mark.fault
@pytest.mark.parametrize("kind", sorted(CYCLES))
def test_acknowledged_messages_are_in_the_files_of_a_dead_slave(
    tmp_path: Path, rng: random.Random, kind: str
) -> None:
    if kind == slave_kill.POWER and power.missing():
        pytest.skip(f"power cannot be cut here, that needs {power.missing()}")

    findings = slave_kill.run(tmp_path, kind, CYCLES[kind], rng)

    assert findings.wrong == []
    assert findings.cycles == CYCLES[kind]
    assert findings.copied >= CYCLES[kind] * slave_kill.ACKNOWLEDGED_MIN


@pytest.mark.fault
def test_a_slave_that_writes_later_than_it_reports_is_detected(
    tmp_path: Path, rng: random.Random
) -> None:
    module = ["tools.faults.late_slave"]

    findings = slave_kill.run(tmp_path, slave_kill.RECEIVED, TRIES, rng, module=module)

    assert any("is missing in the slave's files" in one for one in findings.wrong), findings


@pytest.mark.parametrize(
    ("master", "slave", "words"),
    [
        (KEPT, KEPT, ""),
        (KEPT, None, "is missing in the slave's files"),
        (KEPT, Whole(b"head-body-tai!", b"body"), "has a different record"),
        (Whole(b"head-none-tail", b"none"), Whole(b"head-none-tail", b"none"), "on the master"),
        (None, None, "on the master"),
    ],
)
def test_an_acknowledged_record_must_be_the_same_on_both(
    master: Whole | None, slave: Whole | None, words: str
) -> None:
    acknowledged = [Acknowledged("q0-1", digest_of(KEPT.body), 40)]
    there = {} if master is None else {40: master}
    here = {} if slave is None else {40: slave}

    found = slave_kill.lacking(acknowledged, there, here)

    assert len(found) == bool(words)
    assert all(words in one for one in found)
