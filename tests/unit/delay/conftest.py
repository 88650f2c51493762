"""A store with a schedule on a manual clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.clock import ManualClock
from tests.support.delay_store import Delayed
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage()


@pytest.fixture
async def delayed(clock: ManualClock, storage: FaultyStorage) -> AsyncIterator[Delayed]:
    one = Delayed(clock, storage)
    await one.start()
    yield one
    await one.stop()
