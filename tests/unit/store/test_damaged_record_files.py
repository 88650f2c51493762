"""Damaged files next to the log: a start logs them and continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.store.deleted_topics import DeletedTopics
from broker_core.store.quarantine import Quarantine
from tests.support.faulty_storage import FaultyStorage

PATH = Path("/store/record.json")
DAMAGED = [
    b"",
    b"[]",
    b"\xff",
    b"{}",
    b'{"deletedBefore":[],"ranges":[7]}',
    b'{"deletedBefore":{"a":Infinity},"ranges":[{"from":Infinity,"to":1,"reason":""}]}',
    b'{"deletedBefore":{"a":"x"},"ranges":[{"from":0}]}',
    b'{"deletedBefore":' + b"[" * 100_000,
]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_of_deleted_topics_is_logged_and_started_over(
    text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FaultyStorage()
    storage.write_atomically(PATH, text)
    deleted = DeletedTopics(PATH, storage)

    deleted.load()

    assert deleted.all() == {}
    assert "deleted topics not read" in caplog.text


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_of_damaged_ranges_is_logged_and_started_over(
    text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FaultyStorage()
    storage.write_atomically(PATH, text)
    quarantine = Quarantine(PATH, storage)

    quarantine.load()

    assert quarantine.ranges == []
    assert "damaged ranges not read" in caplog.text
