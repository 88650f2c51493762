"""Simulated brokers lose no acknowledged messages, and a seed is reproducible."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest

from tools.faults.kill import ROOT
from tools.faults.simulation import plan, runner, world
from tools.faults.simulation.mutants import MUTANTS

SEEDS = range(300)
REPEATED = range(3)
MIXED_SEEDS = range(30)
POOLED_STOP_SEED = 107_400
LOST_WHILE_STOPPING_SEED = 168_621
SEEDS_OF_A_MUTANT = range(2_000)
TRIES_OF_A_MUTANT = 30
TIMES_A_PROCESSOR_MIN = 50.0
"""Two processors run a hundred times faster than real time; an idle machine is twice as fast."""
PRINTED = "from tools.faults.simulation import world; print(world.run({}).digest)"


@pytest.mark.fault
@pytest.mark.parametrize("seed", REPEATED)
def test_a_seed_gives_the_same_trace_twice(seed: int) -> None:
    first = world.run(seed, keeps_trace=True)
    again = world.run(seed, keeps_trace=True)

    assert again.trace == first.trace
    assert again.digest == first.digest
    assert len(first.trace) > 100


@pytest.mark.fault
def test_a_seed_gives_the_same_trace_in_any_process() -> None:
    """Independent of the hash seed and memory addresses."""
    seed = REPEATED[1]
    digests = {
        subprocess.run(
            [sys.executable, "-c", PRINTED.format(seed)],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hashes in ("1", "2")
    }

    assert digests == {world.run(seed).digest}


@pytest.mark.fault
def test_no_seed_finds_anything_wrong() -> None:
    findings = runner.run(SEEDS)

    assert findings.wrong == []
    assert findings.seeds == len(SEEDS)
    assert findings.acknowledged > len(SEEDS) * 20
    assert findings.delivered > len(SEEDS) * 20
    assert findings.crashes > len(SEEDS) // 3
    assert findings.times_a_processor > TIMES_A_PROCESSOR_MIN


@pytest.mark.fault
def test_data_uncommitted_by_a_pool_at_a_stop_counts_as_lost_in_a_crash() -> None:
    """The disk fails, then the broker is stopped: acknowledged means in memory there."""
    outcome = world.run(POOLED_STOP_SEED)

    assert outcome.wrong == []
    assert outcome.crashes == 2


@pytest.mark.fault
def test_if_a_stopping_master_is_lost_no_slave_gets_the_rest() -> None:
    outcome = world.run(LOST_WHILE_STOPPING_SEED)

    assert outcome.crashes == 0
    assert outcome.wrong == []


@pytest.mark.fault
def test_no_seed_finds_anything_wrong_with_groups_filters_retries_and_transactions() -> None:
    findings = runner.run(MIXED_SEEDS, is_mixed=True)

    assert findings.wrong == []
    assert findings.acknowledged > len(MIXED_SEEDS) * 20


@pytest.mark.fault
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_wrong_broker_is_detected(name: str) -> None:
    """Failures are matched by their invariant; a broker that breaks down doesn't count as found."""
    mutant = MUTANTS[name]
    draw = plan.mixed if mutant.is_mixed else plan.drawn
    seeds = (seed for seed in SEEDS_OF_A_MUTANT if mutant.needs(draw(plan.dice_of(seed))))

    with mutant.patch():
        found = next(
            (
                outcome.wrong
                for seed in itertools.islice(seeds, TRIES_OF_A_MUTANT)
                if (outcome := world.run(seed, is_mixed=mutant.is_mixed)).wrong
            ),
            [],
        )

    assert any(one.startswith("I") and not one.startswith("I32") for one in found), found


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) >= 20


@pytest.mark.fault
def test_a_failing_seed_prints_the_command_that_repeats_it() -> None:
    with MUTANTS["delivers early"].patch():
        findings = runner.run(range(10))

    assert findings.wrong
    assert findings.wrong[0].startswith("python -m tools.faults simulate --seeds ")


def test_plans_draw_every_mode_and_fault() -> None:
    drawn = [plan.drawn(plan.dice_of(seed)) for seed in SEEDS]

    switches = ("is_sync", "is_pooled", "is_extended", "is_guarded", "is_native", "delays")
    for name in (*switches, "has_liar"):
        assert {getattr(one, name) for one in drawn} == {True, False}, name
    assert {one.role for one in drawn} == {"ALONE", "ASYNC_MASTER", "SYNC_MASTER"}
    assert {one.ack_mode for one in drawn} == {"received", "flushed"}
    assert {event.fault for one in drawn for event in one.events} == set(plan.Fault)
