from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from broker_core.metadata.document import Document
from broker_core.metadata.document_writer import DocumentWriter
from broker_core.storage import FileStorage


class WatchedStorage(FileStorage):
    """Records the thread and the text of each write; fails writes named by the test."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, bytes]] = []
        self.failures = 0

    def write_atomically(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("no space")
        self.writes.append((threading.get_ident(), data))


class Written:
    """A table and its writer."""

    def __init__(self) -> None:
        self.storage = WatchedStorage()
        self.table: dict[str, int] = {}
        self.document = Document(self.storage, Path("/config/t.json"))
        self.writer = DocumentWriter(self.document, self.snapshot)

    def snapshot(self) -> Any:
        table = dict(self.table)
        return lambda: table

    def put(self, name: str, value: int = 1) -> None:
        self.table[name] = value
        self.writer.changed(name)


def test_a_change_is_not_written_until_requested() -> None:
    written = Written()

    written.put("a")

    assert written.storage.writes == []
    assert set(written.writer.unwritten) == {"a"}


async def test_a_change_is_in_the_file_for_waiters_without_blocking_the_loop() -> None:
    written = Written()
    written.put("a")

    await written.writer.until_written("a")

    [(thread, text)] = written.storage.writes
    assert text == b'{\n\t"a":1\n}'
    assert thread != threading.get_ident()
    assert not written.writer.unwritten


async def test_one_write_serves_all_waiters() -> None:
    written = Written()
    for number in range(400):
        written.put(f"g{number}")

    await asyncio.gather(*(written.writer.until_written(name) for name in written.table))

    assert len(written.storage.writes) == 1


async def test_a_change_during_a_write_is_in_the_next_one() -> None:
    written = Written()
    written.put("a", 1)
    first = asyncio.get_running_loop().create_task(written.writer.until_written("a"))
    await asyncio.sleep(0)
    written.put("a", 2)

    await written.writer.until_written("a")

    assert first.done()
    assert [text for _, text in written.storage.writes][-1] == b'{\n\t"a":2\n}'


async def test_waiters_are_notified_of_a_failed_write_and_the_next_write_includes_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    written = Written()
    written.put("a")
    written.storage.failures = 2

    with pytest.raises(OSError, match="no space"):
        await written.writer.until_written("a")
    await written.writer.write()
    assert "metadata file not written, will retry" in caplog.text
    await written.writer.write()

    assert len(written.storage.writes) == 1


async def test_nothing_is_written_without_a_change() -> None:
    written = Written()

    await written.writer.until_written("a")
    await written.writer.write()
    written.writer.write_now()

    assert written.storage.writes == []


def test_an_older_snapshot_never_replaces_a_newer_one() -> None:
    written = Written()
    old = written.document.writing(lambda: {"a": 1})
    new = written.document.writing(lambda: {"a": 2})

    new()
    old()

    assert [text for _, text in written.storage.writes] == [b'{\n\t"a":2\n}']
