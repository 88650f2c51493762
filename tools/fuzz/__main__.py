"""Feed mutated inputs to every decoder of the broker, guided by coverage if atheris is installed.

    python -m tools.fuzz [--runs 10000000] [--target NAME ...] [--seconds S] [--seed S] [--jobs 2]
    python -m tools.fuzz --list
    python -m tools.fuzz --repeat FILE          run one input again
    python -m tools.fuzz --merge                keep the needed inputs in tools/fuzz/corpus

A target may only raise errors that its decoder declares, and must keep its format's guarantees. A
run may take 100 ms of CPU time, and memory must stay level. Violating inputs are saved below
--corpus with the command that repeats them, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.sources import ROOT
from tools.fuzz import seeds
from tools.fuzz.child import is_guided, read_corpus
from tools.fuzz.coverage import minimized
from tools.fuzz.targets import TARGETS
from tools.fuzz.trial import STALL_S, save_input
from tools.results import documents, pages
from tools.results.documents import FuzzRun
from tools.results.machine import provenance

RUNS = 10_000_000
JOBS = 2
CORPUS = Path(__file__).resolve().parent / "corpus"
WORK = ROOT / "data" / "fuzz"
FOUND = "found"
ATTEMPTS = 3
"""A virtual machine is charged for its host's work; only a real stall repeats each time."""
GROWTH_BYTES_MAX = 96 << 20
"""Maximum memory growth from a tenth of the runs to the end: the fuzzer keeps its corpus."""
LOOK_S = 1.0
SHOWN_S = 10.0
INSTALL = ".venv/bin/python -m pip install --require-hashes -r deploy/requirements-fuzz.lock"
HOW = {
    True: "guided by coverage (atheris)",
    False: f"at random, because atheris isn't installed ({INSTALL})",
}


@dataclass(slots=True)
class Running:
    """A running child and its last report."""

    name: str
    process: subprocess.Popen[bytes]
    report: Path
    progress: dict[str, Any] = field(default_factory=dict)

    def look(self) -> bool:
        """Read its report; return whether it has ended."""
        is_over = self.process.poll() is not None
        if self.report.exists():
            self.progress = json.loads(self.report.read_text())
        return is_over


class Campaign:
    """Runs children, several at a time, until each target has had its runs."""

    def __init__(self, arguments: argparse.Namespace, reports: Path) -> None:
        self._arguments = arguments
        self._reports = reports
        self._names = arguments.target or list(TARGETS)
        self._is_guided = is_guided() and not arguments.at_random
        self._shares = sum(TARGETS[name].share for name in self._names)
        self._waiting = list(self._names)
        self._running: list[Running] = []
        self._ended: list[Running] = []
        self._began = time.monotonic()
        self._shown = self._began
        self.findings: list[str] = []

    def run(self) -> None:
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self._arguments.jobs:
                self._running.append(self._start(self._waiting.pop(0)))
            time.sleep(LOOK_S)
            for child in [child for child in self._running if child.look()]:
                self._running.remove(child)
                self._ended.append(child)
                self._judge(child)
            if time.monotonic() - self._shown > SHOWN_S:
                self._shown = time.monotonic()
                self._show_progress()

    def _start(self, name: str) -> Running:
        arguments = self._arguments
        own = arguments.corpus / name
        own.mkdir(parents=True, exist_ok=True)
        report = self._reports / f"{name}.json"
        share = TARGETS[name].share / self._shares
        command = [
            *(sys.executable, "-m", "tools.fuzz.child", name, f"--report={report}"),
            *(f"--found={arguments.corpus / FOUND}", f"--seed={arguments.seed}"),
            f"--corpus={own}",
        ]
        if (CORPUS / name).is_dir():
            command.append(f"--corpus={CORPUS / name}")
        if arguments.seconds is not None:
            command.append(f"--seconds={arguments.seconds * share * arguments.jobs}")
        else:
            command.append(f"--runs={max(1, round(arguments.runs * share))}")
        if arguments.at_random:
            command.append("--at-random")
        log = (self._reports / f"{name}.log").open("wb")
        return Running(name, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log), report)

    def _judge(self, child: Running) -> None:
        progress = child.progress
        if progress.get("wrong"):
            self._find(child.name, progress["wrong"].strip(), progress["wrong_input"])
        elif child.process.returncode != 0 or not progress.get("is_over"):
            log = (self._reports / f"{child.name}.log").read_text(errors="replace")
            self._find(child.name, f"the process ended: {log[-2000:]}", None)
        for took, path in progress.get("slow", []):
            if subprocess.run(repeating(path), cwd=ROOT, stdout=subprocess.DEVNULL).returncode:
                self._find(
                    child.name, f"a stall of {took * 1000:.0f} ms, measured when guided", path
                )
            else:
                Path(path).unlink(missing_ok=True)
        more = progress.get("bytes", 0) - progress.get("first_bytes", 0)
        is_judged = not (self._is_guided and TARGETS[child.name].compares_arrays)
        if more > GROWTH_BYTES_MAX and is_judged:
            self._find(
                child.name, f"{more >> 20} MiB more memory than after a tenth of the runs", None
            )

    def _find(self, name: str, what: str, path: str | None) -> None:
        again = "" if path is None else f"\n  again: {' '.join(repeating(path, 'python'))}"
        self.findings.append(f"{name}: {what}{again}")
        say(self.findings[-1])

    def _show_progress(self) -> None:
        done = sum(child.progress.get("done", 0) for child in (*self._ended, *self._running))
        seconds = time.monotonic() - self._began
        now = ", ".join(child.name for child in self._running)
        say(
            f"{seconds:.0f} s: {done:,} runs, {len(self._ended)} of {len(self._names)} targets, "
            f"{len(self.findings)} findings; now {now}"
        )

    @property
    def done(self) -> int:
        return sum(child.progress.get("done", 0) for child in self._ended)

    def row(self) -> FuzzRun:
        """Return the run in the form of docs/results/fuzz.json."""
        which = (
            f"targets {', '.join(self._arguments.target)}"
            if self._arguments.target
            else "all targets"
        )
        return FuzzRun(
            **provenance("tools.fuzz"),
            what=f"decoders: {which}",
            inputs=self.done,
            findings=len(self.findings),
            is_guided=self._is_guided,
            seed=self._arguments.seed,
        )

    def show_end(self) -> None:
        """Print each target's runs, longest run and memory; then the totals."""
        say(f"{'target':20}{'runs':>12}{'runs/s':>10}{'worst ms':>10}{'MiB':>6}{'MiB at end':>12}")
        for child in sorted(self._ended, key=lambda one: self._names.index(one.name)):
            progress = child.progress
            rate = progress.get("done", 0) / max(progress.get("seconds", 0), 0.001)
            say(
                f"{child.name:20}{progress.get('done', 0):12,}{rate:10,.0f}"
                f"{progress.get('worst_s', 0) * 1000:10.1f}{progress.get('first_bytes', 0) >> 20:6}"
                f"{progress.get('bytes', 0) >> 20:12}"
            )
        seconds = time.monotonic() - self._began
        say(f"{self.done:,} runs in {seconds:.0f} s, {len(self.findings)} findings")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def repeating(path: str, python: str = sys.executable) -> list[str]:
    """Return the command that runs an input again."""
    return [python, "-m", "tools.fuzz", "--repeat", path]


def repeat(path: Path) -> int:
    """Run an input in the target that its directory is named after."""
    target, data = TARGETS[path.resolve().parent.name], path.read_bytes()
    least = 1e9
    for _ in range(ATTEMPTS):
        began = time.process_time()
        try:
            target.run(data)
        except Exception:  # noqa: BLE001  any error is a finding
            say(f"{target.name}, {len(data)} bytes:\n{traceback.format_exc()}")
            return 1
        least = min(least, time.process_time() - began)
    say(f"{target.name}, {len(data)} bytes: {least * 1000:.1f} ms of CPU time")
    return 1 if least > STALL_S else 0


def merge(names: list[str], work: Path) -> None:
    """Reduce the kept corpus and new inputs to the needed ones."""
    for name in names:
        inputs = read_corpus([CORPUS / name, work / name, work / FOUND / name])
        chosen = minimized(TARGETS[name], inputs)
        shutil.rmtree(CORPUS / name, ignore_errors=True)
        for data in chosen:
            save_input(CORPUS / name, data)
        say(f"{name}: {len(chosen)} of {len(inputs)} inputs, {sum(map(len, chosen)):,} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="list the targets")
    parser.add_argument("--target", action="append", choices=list(TARGETS))
    parser.add_argument("--runs", type=int, default=RUNS, help="total runs over all targets")
    parser.add_argument("--seconds", type=float, help="run for this long, instead of --runs")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--corpus", type=Path, default=WORK, help="directory for findings")
    parser.add_argument(
        "--jobs", type=int, default=JOBS, help="number of targets that run at the same time"
    )
    parser.add_argument(
        "--at-random", action="store_true", help="ignore atheris even if it's installed"
    )
    parser.add_argument("--repeat", type=Path, metavar="FILE")
    parser.add_argument("--merge", action="store_true")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="DOCS",
        help="write the results to DOCS/results and update its pages",
    )
    arguments = parser.parse_args()
    arguments.corpus = arguments.corpus.resolve()
    logging.disable()
    if arguments.list:
        for target in TARGETS.values():
            say(f"{target.name:20}{target.says}")
        return 0
    if arguments.repeat is not None:
        return repeat(arguments.repeat)
    if arguments.merge:
        merge(arguments.target or list(TARGETS), arguments.corpus)
        return 0
    seeds.write(arguments.corpus)
    say(f"seed {arguments.seed}, {HOW[is_guided() and not arguments.at_random]}")
    with tempfile.TemporaryDirectory() as reports:
        campaign = Campaign(arguments, Path(reports))
        campaign.run()
        campaign.show_end()
    if arguments.write:
        documents.record(arguments.write, "fuzz", [campaign.row()])
        pages.render(arguments.write)
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    sys.exit(main())
