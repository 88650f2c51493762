"""A clock, an in-memory file system, and a started store on them."""

from __future__ import annotations

import pytest

from tests.support.builders import a_store, store_config
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def storage():
    return FaultyStorage()


@pytest.fixture
def arrived():
    """Notifications from the stores of the other fixtures: (topic, queue_id, max_offset)."""
    return []


@pytest.fixture
async def store(clock, storage, arrived):
    store = a_store(clock, storage, on_arrival=lambda *place: arrived.append(place))
    store.load()
    await store.start()
    yield store
    await store.shutdown()
    assert storage.unclosed_files() == []
    assert clock.waiting == 0


@pytest.fixture
async def sync_store(clock, storage, arrived):
    config = store_config(flush_disk_type="SYNC_FLUSH")
    store = a_store(clock, storage, config, on_arrival=lambda *place: arrived.append(place))
    store.load()
    await store.start()
    yield store
    await store.shutdown()
    assert storage.unclosed_files() == []
    assert clock.waiting == 0
