"""Compare a store with its expected contents, by queue, time and key."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from broker_core.formats import record
from broker_core.verify.verifier import verify
from tests.support.builders import read_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from broker_core.store.message_store import MessageStore
    from tests.support.faulty_storage import FaultyStorage

EVER = 1 << 60
KEY_ANSWERS_MAX = 32

Place = tuple[str, int]
Found = dict[tuple[str, int, int, int], bytes]


class Entry(NamedTuple):
    """A message that was put."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    size: int
    body: bytes
    keys: frozenset[str]
    store_timestamp: int

    @property
    def place(self) -> Place:
        return self.topic, self.queue_id

    @property
    def where(self) -> tuple[str, int, int, int]:
        return self.topic, self.queue_id, self.queue_offset, self.commit_log_offset

    @property
    def end(self) -> int:
        return self.commit_log_offset + self.size


def read_everything(store: MessageStore) -> Found:
    """Return the bodies of all readable messages, by `Entry.where`."""
    return {
        (m.topic, m.queue_id, m.queue_offset, m.commit_log_offset): m.body
        for topic in store.topics()
        for queue_id in store.queue_ids(topic)
        for m in read_all(store, topic, queue_id)
    }


def check_queue(
    store: MessageStore,
    place: Place,
    expected: list[Entry],
    *,
    holes: Set[int],
    next_offset: int | None,
) -> None:
    """Check that a queue has exactly the wanted messages; next_offset None leaves its end open."""
    messages = read_all(store, *place)
    assert [(m.queue_offset, m.commit_log_offset, m.body) for m in messages] == [
        (e.queue_offset, e.commit_log_offset, e.body) for e in expected
    ]
    low, high = store.min_offset_in_queue(*place), store.max_offset_in_queue(*place)
    assert low <= high
    if next_offset is not None:
        assert high == next_offset
    if not expected:
        return
    assert set(range(low, expected[0].queue_offset)) <= holes
    assert high > expected[-1].queue_offset
    times = [e.store_timestamp for e in expected]
    for time in {times[0], times[0] - 1, times[len(times) // 2], times[-1], times[-1] + 1}:
        found = store.offset_in_queue_by_time(*place, time)
        assert low <= found <= high
        assert all((e.store_timestamp < time) == (e.queue_offset < found) for e in expected)


def check_key(
    store: MessageStore, topic: str, key: str, live: Iterable[Entry], dead: Iterable[Entry]
) -> None:
    """Check that a key finds all its live messages and otherwise only its dead ones."""
    found = store.query_message(topic, key, 2 * KEY_ANSWERS_MAX, 0, EVER)
    places = [record.decode(one).commit_log_offset for one in found]
    assert places == sorted(set(places))
    expected, others = (
        {e.commit_log_offset for e in entries if e.topic == topic and key in e.keys}
        for entries in (live, dead)
    )
    assert set(places) <= expected | others
    if len(expected) + len(others) <= KEY_ANSWERS_MAX:
        assert set(places) >= expected


def check_files(storage: FaultyStorage, store_directory: str) -> None:
    """Check the files with the independent reader."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for path, inode in storage.files.items():
            copy = root / path.relative_to(store_directory)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(inode.data)
        problems = verify(root).problems
    assert problems == []
