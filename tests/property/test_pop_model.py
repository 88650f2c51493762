"""No message is lost or leased to two consumers under random operations.

Each run has the same examples.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings

from tests.support.pop_machine import PopMachine

TestPop = PopMachine.TestCase
TestPop.settings = settings(
    max_examples=40, stateful_step_count=50, derandomize=True, phases=[Phase.generate]
)
"""2,000 steps."""


class Thorough(PopMachine):
    """A longer run of the same machine."""


TestPopThoroughly = pytest.mark.fuzz(Thorough.TestCase)
TestPopThoroughly.settings = settings(TestPop.settings, max_examples=500, stateful_step_count=200)
"""100,000 steps."""
