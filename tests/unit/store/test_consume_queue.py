"""Units of a queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.formats.cq_unit import UNIT
from broker_core.store.consume_queue import ConsumeQueue
from tests.support.faulty_storage import FaultyStorage

DIRECTORY = Path("/store/consumequeue/TopicTest/0")


def a_queue(storage: FaultyStorage, file_size: int) -> ConsumeQueue:
    return ConsumeQueue("TopicTest", 0, DIRECTORY, file_size, storage, lambda queue, start: None)


@pytest.mark.parametrize("file_size", [2_000, 60_000, 6_000_000])
@pytest.mark.parametrize("pieces", [[5000], [1, 818, 1, 3000], [819, 820, 821]])
def test_units_written_together_equal_those_written_one_by_one(
    file_size: int, pieces: list[int]
) -> None:
    together, single = FaultyStorage(), FaultyStorage()
    one, other = a_queue(together, file_size), a_queue(single, file_size)
    number = 0
    for piece in pieces:
        units = [(n * 100, 100, n) for n in range(number, number + piece)]
        one.append_units(b"".join(UNIT.pack(*unit) for unit in units))
        for unit in units:
            other.append(*unit)
        number += piece

    assert one.next_offset == other.next_offset == sum(pieces)
    assert {path: bytes(node.data) for path, node in together.files.items()} == {
        path: bytes(node.data) for path, node in single.files.items()
    }


def test_only_the_currently_written_file_reads_single_pages() -> None:
    storage = FaultyStorage()
    queue = a_queue(storage, 2_000)

    for number in range(250):
        queue.append(number * 100, 100, number)

    assert storage.faults_ahead == {
        DIRECTORY / "00000000000000000000": True,
        DIRECTORY / "00000000000000002000": True,
        DIRECTORY / "00000000000000004000": False,
    }


@pytest.mark.parametrize("units", [0, 1])
def test_a_queue_with_an_abandoned_file_continues_in_a_new_mapping(units: int) -> None:
    storage = FaultyStorage()
    queue = a_queue(storage, 2_000)
    queue.make_room()
    for number in range(units):
        queue.append(number * 100, 100, number)
    for file in queue.files_to_flush():
        file.fdatasync()

    assert queue.evict(0)
    queue.append(100, 100, 1)
    for file in queue.files_to_flush():
        file.fdatasync()

    assert queue.has_mapped(0)
    durable = storage.files[DIRECTORY / "00000000000000000000"].durable
    assert UNIT.unpack_from(durable, units * UNIT.size) == (100, 100, 1)
