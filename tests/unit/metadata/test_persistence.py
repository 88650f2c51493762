"""Writes not yet begun by a thread are done before the broker's stop completes."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.config.limits import LIMITS
from broker_core.delay.delay_offsets import DelayOffsets
from broker_core.delivery.sql_filter import compile_filter
from broker_core.formats.bloom_filter import BloomFilter
from broker_core.metadata.consumer_filters import ConsumerFilters
from broker_core.metadata.consumer_offsets import ConsumerOffsets
from broker_core.metadata.document import Document
from broker_core.metadata.persistence import MetadataPersistence
from broker_core.storage import FileStorage
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path


@pytest.fixture
def offsets(tmp_path: Path) -> ConsumerOffsets:
    return ConsumerOffsets(Document(FileStorage(), tmp_path / "consumerOffset.json"))


@pytest.fixture
def filters(tmp_path: Path) -> ConsumerFilters[Any]:
    document = Document(FileStorage(), tmp_path / "consumerFilter.json")
    bloom = BloomFilter(20, 32)
    clock = ManualClock()
    return ConsumerFilters(
        compile_filter, bloom, lambda: 86_400_000, clock, document, lambda: 0, LIMITS
    )


async def stop_early(writing: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Cancel a write that waits for a thread."""
    pool, is_over = ThreadPoolExecutor(1), threading.Event()
    asyncio.get_running_loop().set_default_executor(pool)
    try:
        pool.submit(is_over.wait)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await writing()
    finally:
        is_over.set()


async def test_offsets_and_filters_are_written_when_the_broker_ends(tmp_path, offsets, filters):
    persistence = MetadataPersistence([], offsets, filters, lambda: 5.0, ManualClock())
    offsets.commit("g", "T", 0, 25)
    filters.put("g", "T", "SQL92", "a > 1", None)
    await stop_early(offsets.persist_in_thread)
    await stop_early(filters.persist_in_thread)

    await persistence.shutdown()

    assert '"T@g":{0:25' in (tmp_path / "consumerOffset.json").read_text()
    assert "a > 1" in (tmp_path / "consumerFilter.json").read_text()


async def test_unwritten_delay_offsets_stay_pending(tmp_path):
    offsets = DelayOffsets(Document(FileStorage(), tmp_path / "delayOffset.json"))
    offsets.move(3, 50)

    await stop_early(lambda: offsets.write(offsets.writing()))

    assert offsets.is_dirty
