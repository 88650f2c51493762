"""Results of mutants: stored as JSON, printed as a table, survivors as diffs."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.support.sources import ROOT
from tools.results.documents import MutationSample
from tools.results.machine import provenance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tools.mutation.mutants import Mutant

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
CAUGHT = {"killed", "timeout"}
COLUMNS = ("killed", "timeout", "equivalent", "survived", "uncovered")


class Result(NamedTuple):
    """The result of a mutant.

    `outcome`: killed and timeout mean a test noticed it; survived means none did; equivalent
    survived and was reviewed as changing nothing; uncovered: no test executes its line.
    """

    mutant: Mutant
    outcome: str
    message: str = ""
    seconds: float = 0.0

    @property
    def is_wrong(self) -> bool:
        return self.outcome not in CAUGHT | {"equivalent"}


def equivalents() -> dict[str, str]:
    """Return the reviewed mutants that change nothing a test should see: reasons by name."""
    tables = tomllib.loads(EQUIVALENT.read_text())
    return {name: reason for table in tables.values() for name, reason in table.items()}


def write(path: Path, results: Sequence[Result]) -> None:
    rows = [
        {
            "mutant": result.mutant.name,
            "line": result.mutant.line,
            "outcome": result.outcome,
            "message": result.message,
            "seconds": round(result.seconds, 3),
        }
        for result in results
    ]
    path.write_text(json.dumps(rows, indent=1) + "\n")


def survivors_of(path: Path) -> set[str]:
    """Return the names of the uncaught mutants of a stored run."""
    rows = json.loads(path.read_text())
    return {row["mutant"] for row in rows if row["outcome"] not in CAUGHT}


def table(results: Iterable[Result]) -> str:
    """Return lines for modules, packages and the total, with the caught share."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        path = result.mutant.path
        for name in (path, f"{path.rpartition('/')[0]}/", "all"):
            counts.setdefault(name, Counter())[result.outcome] += 1
    order = sorted(counts, key=lambda name: (name == "all", name.endswith("/"), name))
    rows: list[tuple[str, ...]] = [("module", "mutants", *COLUMNS, "caught")]
    rows += [_row(name, counts[name]) for name in order]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        )
        for row in rows
    )


def _row(name: str, counts: Mapping[str, int]) -> tuple[str, ...]:
    share = caught_share(counts)
    percent = "-" if share is None else f"{share:.1%}"
    columns = [str(counts.get(column, 0)) for column in COLUMNS]
    return (name, str(sum(counts.values())), *columns, percent)


def caught_share(counts: Mapping[str, int]) -> float | None:
    """Return the caught share of the effective mutants; None without any."""
    real = sum(number for outcome, number in counts.items() if outcome != "equivalent")
    return sum(counts.get(outcome, 0) for outcome in CAUGHT) / real if real else None


def sample_of(place: str, tests: str, seed: int, results: Iterable[Result]) -> MutationSample:
    """Return a sample of one package in the form of docs/results/mutation.json."""
    counts = Counter(result.outcome for result in results)
    return MutationSample(
        **provenance("tools.mutation"),
        place=place,
        tests=tests,
        sample=counts.total(),
        seed=seed,
        caught=sum(counts[outcome] for outcome in CAUGHT),
        survived=counts["survived"] + counts["uncovered"],
        equivalent=counts["equivalent"],
    )


def diffs(results: Iterable[Result]) -> str:
    """Return uncaught mutants as diffs."""
    return "\n".join(
        f"\n# {result.outcome}: {result.mutant.name}\n"
        + result.mutant.diff((ROOT / result.mutant.path).read_text())
        for result in results
        if result.is_wrong
    )
