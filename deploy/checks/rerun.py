"""Runs failed tests once more, alone.

A busy machine can stall for seconds, whereas a real defect fails twice. Tests that kill processes
or use random examples find rare defects, so they aren't repeated.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from typing import TYPE_CHECKING

from deploy.checks.steps import Step
from deploy.install.virtualenv import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAME = "again"
TESTS_MAX = 5
"""More failures than this aren't caused by a stall."""
NEVER_REPEATED = ("tests/faults/", "tests/property/", "tests/tools/")
TESTS_FAILED = 1
"""pytest's exit code if tests failed without other errors."""
SECONDS_MAX = 900


def tests_to_repeat(codes: Iterable[int], reports: Iterable[Path]) -> list[str]:
    """Return the failed tests of steps with these exit codes, if it makes sense to repeat them."""
    if any(code != TESTS_FAILED for code in codes):
        return []
    failed = [test for report in reports for test in failed_tests(report)]
    if len(failed) > TESTS_MAX or any(test.startswith(NEVER_REPEATED) for test in failed):
        return []
    return failed


def failed_tests(report: Path) -> list[str]:
    """Return the node IDs of failed tests."""
    if not report.exists():
        return []
    cases = ElementTree.parse(report).iter("testcase")
    failed = [
        case for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    # A test has two entries if both it and its teardown fail.
    return list(dict.fromkeys(map(_node_id, failed)))


def step_of(tests: Iterable[str], options: Iterable[str], report: Path) -> Step:
    """Return a step that runs only some tests."""
    command = [sys.executable, "-m", "pytest", *options, f"--junit-xml={report}", *tests]
    return Step(NAME, command, report, SECONDS_MAX)


def _node_id(case: ElementTree.Element) -> str:
    """Return a test's path and name, such as `tests/unit/test_clock.py::test_time[1]`."""
    parts = case.get("classname", "").split(".")
    classes: list[str] = []
    while parts and not (ROOT / "/".join(parts)).with_suffix(".py").exists():
        classes.insert(0, parts.pop())
    return "::".join(["/".join(parts) + ".py", *classes, case.get("name", "")])
