"""A message costs no more instructions than it did; see tools/bench/instructions."""

from __future__ import annotations

import json

import pytest

from tests.support.twins import is_compiled
from tools.bench.instructions import __main__ as instructions

pytestmark = pytest.mark.callgrind

DEARER_MAX = 1.03


@pytest.mark.parametrize("twin", [instructions.NATIVE, instructions.PYTHON])
def test_no_request_costs_three_percent_more_instructions_than_the_stored_figure(
    twin: str,
) -> None:
    if reason := instructions.missing():
        pytest.skip(reason)
    if twin == instructions.NATIVE and not is_compiled():
        pytest.skip("no compiled turn: python -m broker_core.native.build")
    stored = json.loads(instructions.STORED.read_text()).get(instructions.build_name())
    if stored is None:
        pytest.skip(f"no figures are stored for Python {instructions.build_name()}")

    found = instructions.measure(twin)

    assert found.keys() == stored[twin].keys()
    dearer = {
        name: (was, found[name])
        for name, was in stored[twin].items()
        if found[name] > was * DEARER_MAX
    }
    assert not dearer, (
        f"{dearer}: python -m tools.bench.instructions --store, in a commit that says why"
    )
