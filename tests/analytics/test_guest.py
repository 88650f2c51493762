"""Spark beside a broker: what a report takes of the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from analytics import guest, session
from analytics.errors import ReportError
from tests.analytics.run_report import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# What a child of the process sees: Java is one.
CHILD = """
import json, os
print(json.dumps([os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))]))
"""
PROGRAM = f"""
import subprocess, sys
from analytics import guest
guest.step_back()
sys.exit(subprocess.run([sys.executable, "-c", {CHILD!r}]).returncode)
"""


def test_what_a_guest_starts_runs_when_nobody_else_wants_to_on_the_last_processors() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )

    policy, processors = json.loads(ran.stdout)
    usable = sorted(os.sched_getaffinity(0))
    assert policy == os.SCHED_IDLE
    assert processors == usable[-max(1, len(usable) // guest.PROCESSORS_A_SHARE) :]


def test_java_compiles_and_collects_with_one_thread_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(guest.VARIABLE, raising=False)
    as_guest = session.settings(tmp_path)["spark.driver.extraJavaOptions"]
    monkeypatch.setenv(guest.VARIABLE, "false")
    alone = session.settings(tmp_path)["spark.driver.extraJavaOptions"]

    assert "-XX:TieredStopAtLevel=1" in as_guest
    assert "-XX:+UseSerialGC" in as_guest
    assert as_guest == f"{alone} {guest.JAVA_OPTIONS}"


@pytest.mark.parametrize(
    ("word", "expected"), [(None, True), ("", True), ("TRUE", True), ("no", False), ("0", False)]
)
def test_the_environment_may_lift_it(word: str | None, expected: bool) -> None:
    environment = {} if word is None else {guest.VARIABLE: word}

    assert guest.is_guest(environment) is expected


def test_a_word_that_means_nothing_is_refused() -> None:
    with pytest.raises(ReportError, match="TREBUCHET_SPARK_GUEST is 'maybe'; it must be true or"):
        guest.is_guest({guest.VARIABLE: "maybe"})
