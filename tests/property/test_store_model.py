"""The store does what a list of messages would do, whatever happens to it.

The same examples each time; `python -m tests.faults model` looks for others.
"""

from __future__ import annotations

from hypothesis import Phase, settings

from tests.faults.store_machine import StoreMachine

TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    derandomize=True,
    # A failure is told as it is: to make it smaller can take minutes.
    phases=[Phase.generate],
)
