"""Measure how much the tests of store, replication and transactions notice.

Each mutant is one small change of a module. The tests that execute the changed line run against
it, the nearest first, in a forked child; the checkout stays unchanged. A mutant is killed by the
first test that fails, and survives if all pass. The Python twin is tested (TREBUCHET_NATIVE=0),
with tests that run these packages in their own process.

`coverage` instead of modules prints the statements and branches covered by the same tests. They
are measured once, in some minutes, and again for changed test files.

Neither mutmut (3.8.1) nor cosmic-ray (8.7.0) does this, according to their sources. mutmut skips
decorated functions, including properties and context managers, selects tests by function instead
of by line, and adds a trampoline to every call. cosmic-ray writes each mutant into the checkout
and starts pytest with all tests each time, which takes seconds; a child that has already loaded
the tests needs milliseconds.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools.mutation import coverage_map, footprint, results, running
from tools.results import documents, pages

if TYPE_CHECKING:
    from tools.mutation.results import Result

COVERAGE = "coverage"
SEED_VARIABLE = "TREBUCHET_TEST_SEED"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "places",
        nargs="*",
        metavar="MODULE",
        help=f"module or package; default: {', '.join(footprint.PACKAGES)}; or {COVERAGE} first",
    )
    parser.add_argument(
        "--tests", nargs="+", metavar="PLACE", help=f"default: {' '.join(footprint.TESTS)}"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="test this many random mutants")
    parser.add_argument("--seed", type=int, help="seed of the sample and of random tests")
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="run only the mutants that another run, saved as JSON, didn't catch",
    )
    parser.add_argument(
        "--together",
        type=int,
        default=os.cpu_count(),
        help="number of processes that run at the same time",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every mutant to this file")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="DOCS",
        help="write the results to DOCS/results and update its pages",
    )
    arguments = parser.parse_args()
    if arguments.write and (len(arguments.places) != 1 or not arguments.sample or arguments.again):
        parser.error("--write publishes a sample of one package; name the package, add --sample N")
    return arguments


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    arguments = parse()
    os.environ["TREBUCHET_NATIVE"] = "0"
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    os.environ[SEED_VARIABLE] = str(seed)
    options = [f"--hypothesis-seed={seed}"]
    wants_coverage = arguments.places[:1] == [COVERAGE]
    places = arguments.places[wants_coverage:] or list(footprint.PACKAGES)
    prints = footprint.footprints(arguments.tests or footprint.TESTS, options, say)
    left_out = [name for one in prints.values() for name in one.failed]
    if left_out:
        say(f"left out because they failed: {', '.join(left_out)}")
    if wants_coverage:
        _, output = coverage_map.report(prints.values(), places)
        print(output)
        return 0
    names = results.survivors_of(arguments.again) if arguments.again else None
    mutants = running.chosen(places, arguments.sample, seed, names)
    say(f"{len(mutants)} mutants, seed {seed}")
    ended: list[Result] = []

    def tell(result: Result) -> None:
        ended.append(result)
        say(f"{len(ended)}/{len(mutants)} {result.outcome}: {result.mutant.name}")
        if arguments.json:
            results.write(arguments.json, ended)

    running.run(mutants, prints, options, arguments.together, tell)
    print(results.diffs(ended))
    print(results.table(ended))
    if arguments.write:
        tests = " ".join(arguments.tests or footprint.TESTS)
        row = results.sample_of(places[0], tests, seed, ended)
        documents.record(arguments.write, "mutation", [row])
        pages.render(arguments.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
