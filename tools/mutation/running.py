"""A run: which mutants to try, with which tests, and for how long."""

from __future__ import annotations

import random
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING

from tests.support.sources import ROOT
from tools.mutation import footprint, trials
from tools.mutation.mutants import Mutant, mutants_of
from tools.mutation.results import Result, equivalents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tools.mutation.children import Ended
    from tools.mutation.footprint import Footprint

TESTS_SECONDS_MAX = 10.0
"""Maximum CPU time of a mutant's tests under coverage; more distant tests are skipped."""


def chosen(
    places: Sequence[str], sample: int | None, seed: int, names: set[str] | None
) -> list[Mutant]:
    """Return the mutants below the given paths: all, a random sample, or the named ones."""
    found = [
        mutant
        for path in footprint.modules(places)
        for mutant in mutants_of(path, (ROOT / path).read_text())
    ]
    if names is not None:
        found = [mutant for mutant in found if mutant.name in names]
    if sample is not None and sample < len(found):
        found = random.Random(seed).sample(found, sample)
    return found


def run(
    mutants: Sequence[Mutant],
    prints: Mapping[str, Footprint],
    options: Sequence[str],
    together: int,
    on_result: Callable[[Result], None],
) -> None:
    """Try mutants; those without a covering test are skipped."""
    reviewed = equivalents()

    def tell(ended: Ended) -> None:
        outcome = ended.outcome
        if outcome == "survived" and ended.mutant.name in reviewed:
            outcome = "equivalent"
        on_result(Result(ended.mutant, outcome, ended.message, ended.seconds))

    plan = plan_of(mutants, prints)
    for mutant in mutants:
        if not plan.tests[mutant]:
            is_reviewed = mutant.name in reviewed
            on_result(Result(mutant, "equivalent" if is_reviewed else "uncovered"))
    tried = [mutant for mutant in mutants if plan.tests[mutant]]
    # First, because the tests of the others import the modules here.
    imported = [mutant for mutant in tried if not mutant.is_deferred]
    for ended in trials.run_imported(imported, plan, options, together):
        tell(ended)
    replaced = [mutant for mutant in tried if mutant.is_deferred]
    if replaced:
        code = trials.run_replaced(replaced, plan, options, together, tell)
        if code:
            sys.exit("couldn't load the tests; run them with pytest")


def plan_of(mutants: Iterable[Mutant], prints: Mapping[str, Footprint]) -> trials.Plan:
    """Choose the tests that execute each mutant's lines, nearest and fastest first."""
    seconds = {name: test.seconds for one in prints.values() for name, test in one.tests.items()}
    by_line: dict[tuple[str, int], list[str]] = {}
    by_module: dict[str, list[str]] = {}
    for one in prints.values():
        for name, test in one.tests.items():
            for path, lines in test.lines.items():
                by_module.setdefault(path, []).append(name)
                for line in lines:
                    by_line.setdefault((path, line), []).append(name)
    tests, needed = {}, {}
    for mutant in mutants:
        if mutant.is_deferred:
            places = ((mutant.path, line) for line in range(mutant.line, mutant.end_line + 1))
            through = {name for place in places for name in by_line.get(place, ())}
        else:
            # The import executes it, long before the tests that may notice.
            through = set(by_module.get(mutant.path, ()))
        tests[mutant] = _nearest(mutant, through, seconds)
        needed[mutant] = sum(seconds[name] for name in tests[mutant])
    return trials.Plan(tests, needed)


def _nearest(mutant: Mutant, through: Iterable[str], seconds: Mapping[str, float]) -> list[str]:
    folder = mutant.path.replace("broker_core", "tests/unit", 1).rpartition("/")[0]
    own = f"{folder}/test_{PurePath(mutant.path).name}"

    def distance(test: str) -> tuple[int, float, str]:
        file = test.split("::")[0]
        away = 0 if file == own else 1 if file.startswith(f"{folder}/") else 2
        return away, seconds[test], test

    near: list[str] = []
    total = 0.0
    for test in sorted(through, key=distance):
        total += seconds[test]
        if near and total > TESTS_SECONDS_MAX:
            break
        near.append(test)
    return near
