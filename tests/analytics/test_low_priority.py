"""Spark on a broker's machine: the resources that a report uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from analytics import low_priority, session
from analytics.errors import ReportError
from tests.analytics.run_report import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# The scheduling that a child process, such as Java, inherits.
CHILD = """
import json, os
print(json.dumps([os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))]))
"""
PROGRAM = f"""
import subprocess, sys
from analytics import low_priority
low_priority.lower_priority()
sys.exit(subprocess.run([sys.executable, "-c", {CHILD!r}]).returncode)
"""


def test_low_priority_work_runs_on_idle_time_of_the_last_processors() -> None:
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
    assert processors == usable[-max(1, len(usable) // low_priority.PROCESSORS_A_SHARE) :]


@pytest.mark.parametrize(("leads", "niceness"), [(True, "19"), (False, "0")])
def test_a_private_session_also_gets_the_lowest_priority(leads: bool, niceness: str) -> None:
    shown = f"{PROGRAM}\nprint(low_priority.AUTOGROUP.read_text())"
    program = shown.replace("sys.exit(", "(")
    # A session of the test's, whose leader waits.
    command = ["setsid", "--wait", sys.executable, "-c", program]
    if not leads:
        command = ["setsid", "--wait", "sh", "-c", '"$@"; true', "sh", *command[2:]]

    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600)

    assert ran.stdout.split()[-2:] == ["nice", niceness]


def test_java_compiles_and_collects_with_one_thread_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(low_priority.VARIABLE, raising=False)
    as_guest = session.settings(tmp_path)["spark.driver.extraJavaOptions"]
    monkeypatch.setenv(low_priority.VARIABLE, "false")
    alone = session.settings(tmp_path)["spark.driver.extraJavaOptions"]

    assert "-XX:TieredStopAtLevel=1" in as_guest
    assert "-XX:+UseSerialGC" in as_guest
    assert as_guest == f"{alone} {low_priority.JAVA_OPTIONS}"


@pytest.mark.parametrize(
    ("word", "expected"), [(None, True), ("", True), ("TRUE", True), ("no", False), ("0", False)]
)
def test_the_environment_may_lift_it(word: str | None, expected: bool) -> None:
    environment = {} if word is None else {low_priority.VARIABLE: word}

    assert low_priority.is_low_priority(environment) is expected


def test_a_meaningless_word_is_rejected() -> None:
    with pytest.raises(ReportError, match="TREBUCHET_SPARK_GUEST is 'maybe'; it must be true or"):
        low_priority.is_low_priority({low_priority.VARIABLE: "maybe"})
