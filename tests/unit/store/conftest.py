"""A clock, a file system in memory, a started store on them."""

from __future__ import annotations

import pytest

from tests.support.builders import a_store
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def storage():
    return FaultyStorage()


@pytest.fixture
async def store(clock, storage):
    store = a_store(clock, storage)
    store.load()
    await store.start()
    yield store
    await store.shutdown()
