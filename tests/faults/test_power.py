"""The power is cut while messages are put."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tools.faults import power

if TYPE_CHECKING:
    import random
    from pathlib import Path

CUTS = 6
CUTS_OF_A_BROKER = 4


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    if power.missing():
        pytest.skip(f"power cannot be cut here, that needs {power.missing()}")
    return tmp_path


@pytest.mark.fault
def test_sync_flush_loses_no_message_in_a_power_cut(directory: Path, rng: random.Random) -> None:
    findings = power.run(directory, CUTS, rng)

    assert findings.wrong == []
    assert findings.cycles == CUTS
    assert findings.acknowledged > CUTS


@pytest.mark.fault
def test_a_topic_created_just_before_a_power_cut_answers_right_after_the_start(
    directory: Path, rng: random.Random
) -> None:
    findings = power.run_broker(directory, CUTS_OF_A_BROKER, rng)

    assert findings.wrong == []
    assert findings.cycles == CUTS_OF_A_BROKER
    assert findings.acknowledged > CUTS_OF_A_BROKER


@pytest.mark.fault
def test_a_cut_file_system_remounts_beside_a_namespace_that_copied_its_mount(
    directory: Path,
) -> None:
    with power.file_system(directory) as (image, place):
        with power.mounted(image, place):
            copying = ["unshare", "--mount", "--propagation", "slave", "cat"]
            with subprocess.Popen(
                copying, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as elsewhere:
                assert elsewhere.stdin is not None
                assert elsewhere.stdout is not None
                elsewhere.stdin.write(b".")
                elsewhere.stdin.flush()
                assert elsewhere.stdout.read(1) == b"."
                power.cut_power(place)
                subprocess.run(["umount", str(place)], check=True)
                subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
                (place / "written").write_bytes(b"after the cut")
                elsewhere.stdin.close()
