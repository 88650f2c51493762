"""Work for the flush thread, and when the loop is notified."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from broker_core.service import NO_THREAD
from broker_core.store.flush_thread import FlushThread
from tests.support.faulty_storage import FaultyStorage
from tests.support.gate import Gate

if TYPE_CHECKING:
    from broker_core.storage import StorageFile


class Notices:
    """Receives the loop's notifications, with their thread."""

    def __init__(self) -> None:
        self.errors: list[Exception | None] = []
        self.threads: list[threading.Thread] = []
        self._more = asyncio.Event()

    def __call__(self, error: Exception | None) -> None:
        self.errors.append(error)
        self.threads.append(threading.current_thread())
        self._more.set()

    async def until(self, count: int) -> None:
        while len(self.errors) < count:
            self._more.clear()
            await self._more.wait()


@pytest.fixture
def storage():
    return FaultyStorage()


@pytest.fixture
def thread():
    thread = FlushThread()
    yield thread
    thread.shutdown()


def a_file(storage: FaultyStorage, name: str = "a") -> StorageFile:
    return storage.open(Path(f"/{name}"), create=True)


async def test_files_are_flushed_in_a_thread_and_the_loop_is_notified_on_its_own(storage, thread):
    report, flushed_in = Notices(), []
    storage.on_call = lambda call: flushed_in.append((call, threading.current_thread().name))

    thread.submit([a_file(storage), a_file(storage, "b")], report)
    await report.until(1)

    assert [one for one in flushed_in if one[0] == "fdatasync"] == [("fdatasync", "flush")] * 2
    assert report.errors == [None]
    assert report.threads == [threading.current_thread()]


async def test_the_loop_learns_about_the_error_and_nothing_after_it_is_flushed(storage, thread):
    report = Notices()
    storage.fail("fdatasync")

    thread.submit([a_file(storage), a_file(storage, "b")], report)
    await report.until(1)

    assert isinstance(report.errors[0], OSError)
    assert storage.calls["fdatasync"] == 1


async def test_work_queued_meanwhile_comes_next(storage, thread):
    report = Notices()
    gate = Gate(storage, "fdatasync")
    thread.submit([a_file(storage)], report)
    await gate.until_entered()
    storage.fail("fdatasync")
    thread.submit([a_file(storage, "b")], report)
    gate.open.set()
    await report.until(2)

    assert report.errors[0] is None
    assert isinstance(report.errors[1], OSError)


async def test_a_shutdown_waits_for_queued_work(storage):
    thread, report = FlushThread(), Notices()
    gate = Gate(storage, "fdatasync")
    thread.submit([a_file(storage)], report)
    await gate.until_entered()
    asyncio.get_running_loop().run_in_executor(None, gate.open.set)

    thread.shutdown()

    assert "flush" not in [each.name for each in threading.enumerate()]
    await report.until(1)


def test_a_closed_loop_receives_nothing_and_the_thread_ends(storage):
    thread = FlushThread()
    gate = Gate(storage, "fdatasync")

    async def hand() -> None:
        thread.submit([a_file(storage)], lambda error: None)
        await gate.until_entered()

    asyncio.run(hand())
    gate.open.set()
    thread.shutdown()

    assert "flush" not in [each.name for each in threading.enumerate()]


async def test_without_a_thread_nothing_is_handed_over_until_there_is_one(storage, thread):
    report = Notices()
    with (
        mock.patch.object(threading.Thread, "start", side_effect=RuntimeError(NO_THREAD)),
        pytest.raises(RuntimeError),
    ):
        thread.submit([a_file(storage)], report)
    assert storage.calls["fdatasync"] == 0

    thread.submit([a_file(storage)], report)
    await report.until(1)
    assert report.errors == [None]


async def test_a_loop_without_memory_is_notified_later(storage, thread):
    report, loop = Notices(), asyncio.get_running_loop()
    call, lacks = loop.call_soon_threadsafe, [MemoryError(), MemoryError()]

    def call_soon_threadsafe(*arguments: Any) -> object:
        if lacks:
            raise lacks.pop()
        return call(*arguments)

    with mock.patch.object(loop, "call_soon_threadsafe", call_soon_threadsafe):
        thread.submit([a_file(storage)], report)
        await report.until(1)

    assert report.errors == [None]
    assert not lacks
