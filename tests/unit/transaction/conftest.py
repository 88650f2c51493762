"""A store with transactions on a manual clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tests.support.transaction_store import Transacted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage()


@pytest.fixture
async def transacted(clock: ManualClock, storage: FaultyStorage) -> AsyncIterator[Transacted]:
    one = Transacted(clock, storage)
    await one.start()
    yield one
    await one.stop()
