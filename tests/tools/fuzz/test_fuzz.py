"""Every decoder of the broker handles its corpus and generated inputs.

`python -m tools.fuzz` runs for as long as you like.
"""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.sources import ROOT
from tools.fuzz import child, seeds, trial
from tools.fuzz.__main__ import CORPUS, repeat
from tools.fuzz.coverage import minimized, steps_of
from tools.fuzz.mutation import grown, mutated
from tools.fuzz.target import INPUT_BYTES_MAX, Target
from tools.fuzz.targets import TARGETS
from tools.fuzz.trial import Trial, TrialOverError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FRESH_RUNS = 2_000
"""New inputs of a target with a share of 1."""
FRESH_RUNS_MIN = 50
CORPUS_BYTES_MAX = 1_500_000
CHILD_SECONDS_MAX = 300


@pytest.fixture(autouse=True)
def no_logs() -> Iterator[None]:
    """Suppress the logs about thousands of damaged files."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def real() -> dict[str, list[bytes]]:
    """Inputs written by real clients and brokers, by target, and inputs that once failed."""
    found: dict[str, list[bytes]] = {}
    for name, data in seeds.seeds():
        found.setdefault(name, []).append(data[:INPUT_BYTES_MAX])
    return found


@pytest.fixture
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target that fails in the way that the test names, if its input begins with `!`."""
    run = request.param
    made = Target("sql92", "goes wrong", run)
    monkeypatch.setitem(TARGETS, made.name, made)
    return made


@pytest.mark.fuzz
@pytest.mark.parametrize("name", TARGETS)
def test_a_target_accepts_its_corpus_and_mutations_of_it(
    name: str, real: dict[str, list[bytes]], rng: random.Random, tmp_path: Path
) -> None:
    target = TARGETS[name]
    inputs = [*child.read_corpus([CORPUS / name]), *real.get(name, [])]
    fresh = max(FRESH_RUNS_MIN, round(FRESH_RUNS * target.share))
    runs = Trial(target, tmp_path, runs=len(inputs) + fresh)

    child.run_at_random(runs, inputs, rng.randrange(1 << 32))

    assert inputs
    assert runs.wrong is None, f"{runs.wrong}\n{again(runs)}"
    slow = [path for _, path in runs.slow if repeat(path)]
    assert not slow


def again(runs: Trial) -> str:
    assert runs.wrong_input is not None
    return f"the input: {runs.wrong_input.read_bytes()!r}"


def test_the_corpus_belongs_to_the_targets_and_is_small() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]

    assert {path.parent.name for path in files} == set(TARGETS)
    assert {path.parent.parent for path in files} == {CORPUS}
    assert sum(path.stat().st_size for path in files) <= CORPUS_BYTES_MAX
    assert all(path.stat().st_size <= INPUT_BYTES_MAX for path in files)


def broken(data: bytes) -> None:
    if data.startswith(b"!"):
        raise KeyError("a key that was never written")


def endless(data: bytes) -> None:
    while data.startswith(b"!"):
        pass


@pytest.mark.parametrize("target", [broken], indirect=True)
def test_an_error_ends_the_trial_and_its_input_is_saved(target: Target, tmp_path: Path) -> None:
    runs = Trial(target, tmp_path)
    runs.give(b"right")

    with pytest.raises(TrialOverError):
        runs.give(b"!wrong")

    assert runs.wrong is not None
    assert "a key that was never written" in runs.wrong
    assert runs.wrong_input is not None
    assert runs.wrong_input.read_bytes() == b"!wrong"
    assert runs.wrong_input.parent.name == target.name
    assert repeat(runs.wrong_input) == 1


@pytest.mark.parametrize("target", [endless], indirect=True)
def test_a_run_without_an_end_is_interrupted(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "ENDLESS_S", 0.2)
    monkeypatch.setattr(trial, "TICK_S", 0.05)
    runs = Trial(target, tmp_path)

    with runs.watched(), pytest.raises(TrialOverError):
        runs.give(b"!")

    assert runs.wrong is not None
    assert "was still running" in runs.wrong


def test_a_slow_run_is_recorded_with_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "STALL_S", -1.0)
    runs = Trial(Target("sql92", "takes its time", lambda _: None), tmp_path)

    for number in range(2 * trial.SLOW_KEPT):
        runs.give(b"%d" % number)

    assert len(runs.slow) == trial.SLOW_KEPT
    assert sorted(path.name for _, path in runs.slow) == sorted(
        path.name for path in (tmp_path / "sql92").iterdir()
    )


def test_some_inputs_repeat_a_piece_to_reveal_quadratic_time(tmp_path: Path) -> None:
    sizes: list[int] = []
    one = Target("sql92", "counts", lambda data: sizes.append(len(data)), grown_bytes=10_000)
    runs = Trial(one, tmp_path)

    for _ in range(2 * trial.GROWN_EVERY):
        runs.give(b"a || b")

    assert {size for size in sizes if size > 6} == {len(grown(b"a || b", 10_000))}
    assert 9_000 < max(sizes) <= 10_000
    assert 2 <= sizes.count(max(sizes)) <= 3


def test_mutated_inputs_are_short_and_the_same_for_the_same_seed() -> None:
    corpus = [b"a" * INPUT_BYTES_MAX, b"b", b""]

    first, second = (
        [mutated(rng, corpus) for _ in range(2_000)] for rng in map(random.Random, (7, 7))
    )

    assert first == second
    assert max(map(len, first)) == INPUT_BYTES_MAX
    assert len(set(first)) > 1_000


def test_the_shortest_of_equivalent_inputs_is_kept() -> None:
    target = TARGETS["proxy_header"]
    short, long = b"PROXY UNKNOWN\r\n", b"PROXY UNKNOWN and so on\r\n"
    other = b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 10911\r\n"

    assert steps_of(target.run, short) == steps_of(target.run, long)
    assert minimized(target, [long, other, short]) == [short, other]


@pytest.mark.fuzz
def test_the_command_gives_each_target_its_share_and_names_errors(tmp_path: Path) -> None:
    names = ("tag_expression", "checkpoint")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tools.fuzz", "--runs=2000", "--seed=7", "--at-random"),
            *(f"--target={name}" for name in names),
            f"--corpus={tmp_path}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=CHILD_SECONDS_MAX,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("seed 7, at random")
    assert last.endswith(" 0 findings")
    output = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()}
    shares = [TARGETS[name].share for name in names]
    for name, share in zip(names, shares, strict=True):
        runs = int(output[name].replace(",", ""))
        assert runs == pytest.approx(2_000 * share / sum(shares), abs=len(names))


def test_a_child_reports_the_failing_input(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    runs = Trial(Target("sql92", "goes wrong", broken), tmp_path, report, runs=10)

    child.run_at_random(runs, [b"right", b"!"], 7)

    document = json.loads(report.read_text())
    assert document["done"] == 2
    assert document["is_over"]
    assert document["wrong_input"] == str(runs.wrong_input)
