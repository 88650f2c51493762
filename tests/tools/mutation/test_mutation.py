"""The mutator's changes and exceptions, and the correctness of its verdicts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.long_timeouts import PATIENCE_S
from tests.support.sources import ROOT
from tools.mutation import children, footprint, results
from tools.mutation.children import Trial
from tools.mutation.mutants import mutants_of

if TYPE_CHECKING:
    from pathlib import Path

PLACE = "broker_core/store/example.py"
STRONG, WEAK = (f"{footprint.EXAMPLE}/{name}_tested.py" for name in ("strongly", "weakly"))


def changes(body: str) -> set[tuple[str, str]]:
    source = "def f(self, a, b):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    return {(mutant.before, mutant.after) for mutant in mutants_of(PLACE, source)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return a < b", {("a < b", "None"), ("a < b", "(a <= b)")}),
        ("a += 1", {("a += 1", "a -= 1"), ("1", "2")}),
        ("if a: b()", {("a", "(not a)"), ("b()", "pass")}),
        ("if not a: raise b", {("not a", "(a)"), ("raise b", "pass")}),
        ("self.x = a and b", {("a and b", "None"), ("a and b", "(a or b)")}),
        ("await a()", {("await a()", "pass")}),
        ("return min(a, b)", {("min(a, b)", "None"), ("min", "max")}),
        ("a.b = 'c'", {("'c'", "'cX'")}),
        ("return [c for c in a if c]", {("[c for c in a if c]", "None"), ("c", "(not c)")}),
        ("return cast('A', -a)", {("cast('A', -a)", "None"), ("-a", "(a)")}),
    ],
)
def test_a_line_can_be_changed_in_each_of_these_ways(line, expected):
    assert changes(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        '"""A docstring of 3 lines."""',
        "assert a < b",
        'logger.warning("a=%s", a + 1)',
        "a: dict[str, int]",
    ],
)
def test_code_that_tests_should_not_cover_is_left_alone(line):
    assert changes(line) == set()


def test_an_exceptions_text_is_not_mutated_but_its_condition_is():
    assert changes("if a > b: raise ValueError('too large', a)") == {
        ("a > b", "(a >= b)"),
        ("raise ValueError('too large', a)", "pass"),
    }


def test_a_mutant_keeps_its_name_when_lines_are_added_above():
    source = "def f(a):\n    return a + 1\n"

    before, after = (
        [mutant.name for mutant in mutants_of(PLACE, text)] for text in (source, f"\n\n{source}")
    )

    assert before == after
    assert len(set(before)) == len(before) == 3


def test_a_change_of_several_lines_leaves_the_rest_of_the_source():
    source = "x = 'ä', f(\n    1 +\n    2)  # why\ny = 3\n"
    (mutant,) = (mutant for mutant in mutants_of(PLACE, source) if mutant.after == "(1 - 2)")

    assert mutant.apply(source) == "x = 'ä', f(\n    (1 - 2))  # why\ny = 3\n"


def test_an_endless_call_times_out():
    (mutant, *_) = mutants_of(PLACE, "x = 1\n")

    def wait() -> None:
        time.sleep(PATIENCE_S)

    ended = children.run_all([Trial(mutant, wait, 0.5, 60), Trial(mutant, lambda: None, 60, 60)], 2)

    assert {one.outcome for one in ended} == {"timeout", "survived"}


def test_each_reviewed_mutant_still_exists_and_has_its_reason():
    reviewed = results.equivalents()

    existing = {
        mutant.name
        for path in {name.split("::")[0] for name in reviewed}
        for mutant in mutants_of(path, (ROOT / path).read_text())
    }

    assert reviewed.keys() - existing == set()
    assert all(reviewed.values())


def test_strong_tests_kill_every_mutant_and_weak_ones_do_not(tmp_path: Path):
    found = tmp_path / "found.json"
    command = [sys.executable, "-m", "tools.mutation", STRONG, WEAK, "--seed", "1"]
    before = (ROOT / STRONG).read_bytes()

    done = subprocess.run(
        [*command, "--tests", footprint.EXAMPLE, "--json", found],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = {row["mutant"]: row["outcome"] for row in json.loads(found.read_text())}
    strong = {outcome for name, outcome in outcomes.items() if name.startswith(STRONG)}
    assert strong == {"killed"}
    # A number of the module, a property and a method.
    assert outcomes[f"{WEAK}::: 10 -> 11"] == "survived"
    assert outcomes[f"{WEAK}::Room.left: LIMIT - self._used -> (LIMIT + self._used)"] == "survived"
    assert outcomes[f"{WEAK}::Room.has: target <= self.left -> (target < self.left)"] == "survived"
    assert outcomes[f"{WEAK}::Room.__init__: super().__init__() -> pass"] == "survived"
    assert outcomes[f"{WEAK}::Room.has: target <= self.left -> None"] == "killed"
    assert (ROOT / STRONG).read_bytes() == before
