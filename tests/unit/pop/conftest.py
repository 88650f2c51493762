"""A store with the POP engine on a manual clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tests.support.lease_store import Leased

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage()


@pytest.fixture
async def leased(clock: ManualClock, storage: FaultyStorage) -> AsyncIterator[Leased]:
    one = Leased(clock, storage)
    await one.start()
    yield one
    await one.stop()
