"""Fixtures of the tests of plan and read."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[True, False], ids=["queues", "no queues"])
def queues(request: pytest.FixtureRequest) -> bool:
    """Whether the store has its ConsumeQueues, or is only a copy of the log."""
    return bool(request.param)
