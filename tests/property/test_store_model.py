"""A store behaves like a list of messages, whatever happens to it.

The examples are the same each time; `python -m tools.faults model` finds others.
"""

from __future__ import annotations

from hypothesis import Phase, settings

from tools.faults.store_machine import StoreMachine

TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    derandomize=True,
    # Without shrinking, which can take minutes.
    phases=[Phase.generate],
)
