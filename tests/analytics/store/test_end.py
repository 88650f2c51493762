"""The end of the log for a reader in the middle of it, which a stream queries repeatedly."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from analytics.store.consume_queues import ConsumeQueues
from analytics.store.log_files import FIRST_SEARCH_BYTES
from analytics.store.reader import StoreReader
from broker_core.formats import cq_unit
from tests.analytics.store_builder import FILE_BYTES, StoreBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def ends(builder: StoreBuilder) -> set[int]:
    """Possible ends of a batch: after a record, or at the end of a file."""
    return {one.commit_log_offset + one.size for one in builder.stored} | set(builder.files)


def test_the_end_is_followed_from_file_to_file(tmp_path: Path, queues: bool) -> None:
    builder = StoreBuilder(tmp_path).put_many(400).add_zero_file()
    reader = StoreReader(builder.write(queues=queues))

    assert reader.extent() == (0, max(builder.files) + FILE_BYTES)
    assert reader.end_from(0) == builder.position
    assert reader.end_from(builder.stored[77].commit_log_offset) == builder.position
    assert reader.end_from(builder.position) == builder.position


@pytest.mark.parametrize("most", [1, 300, 5000, FILE_BYTES, 10**9])
def test_steps_of_limited_size_reach_the_end(tmp_path: Path, most: int, queues: bool) -> None:
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
    # A file may end with some bytes without a record.
    assert all(b - a <= max(most, largest) + 200 for a, b in pairwise(steps))


def test_appended_data_is_found(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(10)
    reader = StoreReader(builder.write())
    first = reader.end_from(0)

    builder.put_many(200).write()

    assert reader.end_from(first) == builder.position > first


@pytest.mark.parametrize("most", [None, 2000])
def test_damage_does_not_stop_it_if_queues_know_what_follows(
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


def test_a_body_with_a_wrong_checksum_is_not_accepted_before_more_data_follows(
    tmp_path: Path,
) -> None:
    builder = StoreBuilder(tmp_path).put_many(30)
    torn = builder.stored[-1]
    builder.overwrite(torn.commit_log_offset + 88, b"?")
    reader = StoreReader(builder.write())

    torn_end = reader.end_from(0)
    builder.put_many(1).write()

    assert torn_end == torn.commit_log_offset
    assert reader.end_from(torn_end) == builder.position


def test_an_empty_look_costs_no_more_than_the_new_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StoreBuilder(tmp_path, file_bytes=1 << 20).put_many(3000)
    reader = StoreReader(builder.write(queues=False))
    end = reader.end_from(0)
    read: list[int] = []
    real = os.preadv

    def counted(descriptor: int, buffers: list[memoryview], position: int) -> int:
        got = real(descriptor, buffers, position)
        read.append(got)
        return got

    monkeypatch.setattr(os, "preadv", counted)

    assert reader.end_from(end) == end == builder.position
    assert sum(read) <= 4 * FIRST_SEARCH_BYTES


def test_previously_queried_queues_are_queried_again(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(30)
    reader = StoreReader(builder.write())
    end = reader.end_from(builder.position)
    assert end == reader.end_from(end) == builder.position

    # New data starts with damage: only the queues show the end of it.
    at = builder.position
    builder.put_many(30)
    builder.overwrite(at, bytes(8))
    builder.write()

    assert reader.end_from(end) == builder.position


def test_queues_that_lost_their_end_are_queried_again(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(30)
    queues = ConsumeQueues(tmp_path / "consumequeue")
    reader = StoreReader(builder.write())
    assert queues.last_record_from(reader.files(), -1) == builder.stored[-1].commit_log_offset

    for units in builder.units.values():
        del units[2 * cq_unit.UNIT_SIZE :]
    builder.write()

    known = {
        unit[0] for units in builder.units.values() for unit in cq_unit.UNIT.iter_unpack(units)
    }
    assert queues.last_record_from(reader.files(), -1) == max(known)


def listings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count from now on how often each directory is listed."""
    counted: Counter[str] = Counter()

    def scandir(directory: Path) -> Iterator[os.DirEntry[str]]:
        counted[str(directory)] += 1
        return found(directory)

    found = os.scandir
    monkeypatch.setattr("analytics.store.consume_queues.os.scandir", scandir)
    return counted


def age(store: Path) -> None:
    """Make every directory of the queues look unchanged for a long time."""
    for path in (store / "consumequeue").rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    os.utime(store / "consumequeue", (1_700_000_000, 1_700_000_000))


def test_plans_list_each_queue_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StoreBuilder(tmp_path).put_many(400).put_many(5, ("rare",)).write()
    age(store)
    queues = {str(path) for path in (store / "consumequeue").rglob("*") if path.is_dir()}
    reader = StoreReader(store, split_bytes=4096)
    counted = listings(monkeypatch)

    for _ in range(3):
        assert reader.plan().log_to
        assert reader.plan(topics=frozenset({"rare"})).slices

    assert {name: counted[name] for name in queues} == dict.fromkeys(queues, 1)


def test_a_later_queue_is_in_the_next_plan_and_others_are_not_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    reader = StoreReader(builder.write())
    age(builder.root)
    late = frozenset({"late"})
    assert not reader.plan(topics=late).slices
    builder.put_many(5, ("late",))
    for path in builder.write().joinpath("consumequeue").iterdir():
        if path.name != "late":
            for each in (path, *path.iterdir()):
                os.utime(each, (1_700_000_000, 1_700_000_000))
    counted = listings(monkeypatch)

    slices = reader.plan(topics=late).slices

    assert {each.topic for each in slices} == {"late"}
    assert not any("/orders" in name for name in counted)
