"""Each tool publishes its figures with date, commit, machine and command."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from typing import TYPE_CHECKING

from tools.bench.growth.__main__ import Grown, publish as publish_growth
from tools.bench.sustained.__main__ import Slice, row_of
from tools.faults.publishing import publish as publish_faults
from tools.faults.tally import Tally
from tools.fuzz.native import publish as publish_native
from tools.mutation.mutants import mutants_of
from tools.mutation.results import Result, sample_of
from tools.results import documents
from tools.results.documents import FaultRun, FuzzRun, Growth
from tools.results.machine import provenance
from tools.soak.levels import MEMORY, MIB, TASKS, Verdict
from tools.soak.pages import soak_of
from tools.soak.segment import Checked
from tools.soak.soak import Figures

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SOURCE = {"date": "2026-11-28", "commit": "abc", "machine": "2 cores", "command": "python -m x"}


def test_a_shown_command_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/a/checkout/__main__.py", "--brokers", "ours,kafka batched"])

    found = provenance("tools.bench")

    assert found["command"] == "python -m tools.bench --brokers 'ours,kafka batched'"
    assert found["commit"]
    assert "cores" in found["machine"]


def test_growth_is_published_as_a_change_of_its_ratio(tmp_path: Path) -> None:
    pairs = [(2.0, 2.2), (2.0, 2.4), (2.0, 2.6)]
    grown = Grown.of("queues", "1 to 100", pairs, "µs a message", lambda ratio: ratio <= 1.1)

    publish_growth(tmp_path, "ours", [grown])

    (row,) = documents.read_rows(tmp_path, "growth", Growth)
    assert (row.small, row.grown, row.change, row.is_reached) == (2.0, 2.4, 0.2, False)
    assert row.command.startswith("python -m tools.bench.growth")


def test_a_steady_load_is_published_without_the_warm_up_slices() -> None:
    warming = [Slice(100.0, 9.0, 9.0, 9.0, 9.0, 99.0, 0.0)] * 6
    settled = [
        Slice(100.0, 0.1, float(p99), 8.0, roll, 36.0, 0.0)
        for p99, roll in ((1, 0.0), (2, 3.0), (6, 5.0))
    ]

    row = row_of(warming + settled, "ours", 100.4, 10.0, SOURCE)

    assert row.roll_ms == (3.0, 4.0, 5.0)
    assert (row.rate, row.p50_ms, row.p99_ms, row.memory_mb) == (100, 0.1, (1, 2, 6), (36.0, 36.0))


def test_a_fault_run_is_published_with_its_counts_and_quantiles(tmp_path: Path) -> None:
    arguments = Namespace(write=tmp_path, command="kill", seed=7, clients="all")
    tally = Tally(cycles=3, acknowledged=50, lost=1, explained=Counter(crash=2), recovered=[1, 3])

    publish_faults(arguments, tally, "SYNC_FLUSH")

    (row,) = documents.read_rows(tmp_path, "faults", FaultRun)
    assert (row.fault, row.variant) == ("kill", "SYNC_FLUSH, Java, Go and raw clients")
    assert (row.cycles, row.acknowledged, row.lost, row.explained, row.seed) == (3, 50, 1, 2, 7)
    assert row.recovered_max_s == 3


def test_a_fault_run_that_publishes_nothing_writes_nothing(tmp_path: Path) -> None:
    publish_faults(Namespace(write=None), Tally())

    assert not list(tmp_path.iterdir())


def test_the_compiled_turns_fuzzing_is_published_by_its_build(tmp_path: Path) -> None:
    publish_native(tmp_path, 1_000, 5, is_sanitized=False)
    publish_native(tmp_path, 2_000, 5, is_sanitized=True)

    rows = documents.read_rows(tmp_path, "fuzz", FuzzRun)
    assert [(row.inputs, row.findings) for row in rows] == [(1_000, 0), (2_000, 0)]


def test_a_mutant_that_no_test_executes_counts_as_a_survivor() -> None:
    mutant = mutants_of("a.py", "def f(a):\n    return a < 1\n")[0]
    outcomes = ("killed", "timeout", "survived", "uncovered", "equivalent")

    row = sample_of("broker_core/ha", "tests/unit/ha", 3, [Result(mutant, one) for one in outcomes])

    assert (row.sample, row.caught, row.survived, row.equivalent) == (5, 2, 2, 1)


def test_a_soak_is_published_in_readable_units() -> None:
    figures = Figures(rate=665.0, seconds=7200.0, pages=4, members=5)
    figures.checked = [Checked(10, 20, {"a": 1}, {"crash": 3}, 0, [])] * 2
    figures.verdicts = [
        Verdict("web", MEMORY, 100.0 * MIB, 101.0 * MIB, 600.0, is_level=True),
        Verdict("broker", TASKS, 39.0, 60.0, 600.0, is_level=False),
    ]

    found = soak_of(figures, "python -m tools.soak", {"commit": "abc"})

    assert (found.acknowledged, found.delivered, found.lost, found.explained) == (20, 40, 2, 6)
    web, tasks = found.quantities
    assert (web.second, web.unit, web.minutes) == (100.0, "MiB", 10)
    assert (tasks.last, tasks.unit, tasks.is_level) == (60.0, "", False)
