"""The model of the store, with new examples each time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tools.faults.store_machine import StoreMachine

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 50
EXAMPLES_AT_A_TIME = 100


def run(
    examples: int,
    first_seed: int,
    *,
    shrink: bool,
    say: Callable[[str], None] = lambda text: None,
) -> str:
    """Run examples in portions, each with a seed; return the failure, or an empty text."""
    logging.disable(logging.CRITICAL)
    phases = [Phase.generate, *([Phase.shrink] if shrink else [])]
    for number, done in enumerate(range(0, examples, EXAMPLES_AT_A_TIME)):
        options = settings(
            max_examples=min(EXAMPLES_AT_A_TIME, examples - done),
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        )
        try:
            run_state_machine_as_test(seed(first_seed + number)(StoreMachine), settings=options)
        except AssertionError as error:
            steps = "\n".join(getattr(error, "__notes__", []))
            return f"seed {first_seed + number}: {error}\n{steps}"
        say(f"{done + options.max_examples} examples, no failures")
    return ""
