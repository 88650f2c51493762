"""Where the log ends for one who has read a part of it: what a stream asks again and again."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from analytics.store.reader import StoreReader
from tests.analytics.store_builder import FILE_BYTES, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path


def ends(builder: StoreBuilder) -> set[int]:
    """Where a batch may end: behind a record, or where a file does."""
    return {one.commit_log_offset + one.size for one in builder.stored} | set(builder.files)


def test_the_end_is_followed_from_file_to_file(tmp_path: Path, queues: bool) -> None:
    builder = StoreBuilder(tmp_path).put_many(400).add_zero_file()
    reader = StoreReader(builder.write(queues=queues))

    assert reader.extent() == (0, max(builder.files) + FILE_BYTES)
    assert reader.end_from(0) == builder.position
    assert reader.end_from(builder.stored[77].commit_log_offset) == builder.position
    assert reader.end_from(builder.position) == builder.position


@pytest.mark.parametrize("most", [1, 300, 5000, FILE_BYTES, 10**9])
def test_steps_of_bounded_size_come_to_the_end(tmp_path: Path, most: int, queues: bool) -> None:
    builder = StoreBuilder(tmp_path).put_many(300)
    builder.put(body=bytes(4000))
    builder.put_many(20)
    reader = StoreReader(builder.write(queues=queues))
    steps = [0]

    while (end := reader.end_from(steps[-1], most)) > steps[-1]:
        steps.append(end)

    assert steps[-1] == builder.position
    assert set(steps[1:]) <= ends(builder)
    largest = max(one.size for one in builder.stored)
    # A file may end with some bytes that hold no record.
    assert all(b - a <= max(most, largest) + 200 for a, b in pairwise(steps))


def test_what_is_appended_is_found(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(10)
    reader = StoreReader(builder.write())
    first = reader.end_from(0)

    builder.put_many(200).write()

    assert reader.end_from(first) == builder.position > first


@pytest.mark.parametrize("most", [None, 2000])
def test_damage_does_not_stop_it_where_queues_know_what_follows(
    tmp_path: Path, most: int | None
) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    builder.overwrite(builder.stored[20].commit_log_offset, bytes(8))
    reader = StoreReader(builder.write())
    steps = [0]

    while (end := reader.end_from(steps[-1], most)) > steps[-1]:
        steps.append(end)

    assert steps[-1] == builder.position
    assert builder.stored[20].commit_log_offset in steps


def test_an_empty_store_ends_at_its_start(tmp_path: Path) -> None:
    assert StoreReader(tmp_path).extent() == (0, 0)
    assert StoreReader(tmp_path).end_from(0) == 0
