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
def test_units_written_together_are_those_written_one_by_one(
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


def test_only_the_file_that_is_written_brings_in_single_pages() -> None:
    storage = FaultyStorage()
    queue = a_queue(storage, 2_000)

    for number in range(250):
        queue.append(number * 100, 100, number)

    assert storage.faults_ahead == {
        DIRECTORY / "00000000000000000000": True,
        DIRECTORY / "00000000000000002000": True,
        DIRECTORY / "00000000000000004000": False,
    }
