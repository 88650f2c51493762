"""A clock, and in-memory stores: a master's and a slave's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.builders import a_store, store_config
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tests.support.memory_transport import MemoryTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from broker_core.store.message_store import MessageStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def master(clock: ManualClock) -> AsyncIterator[MessageStore]:
    store = a_store(clock, FaultyStorage())
    store.load()
    await store.start()
    yield store
    await store.shutdown()


@pytest.fixture
def slave_disk() -> FaultyStorage:
    return FaultyStorage()


@pytest.fixture
async def slave(clock: ManualClock, slave_disk: FaultyStorage) -> AsyncIterator[MessageStore]:
    store = a_store(clock, slave_disk, store_config(broker_role="SLAVE"))
    store.take_role(is_slave=True)
    store.load()
    await store.start()
    yield store
    await store.shutdown()


@pytest.fixture(autouse=True)
def _close_sockets() -> Iterator[None]:
    yield
    MemoryTransport.close_all()
