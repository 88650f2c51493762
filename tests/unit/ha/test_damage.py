"""How a master handles an offset that its slave can't read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.ha.damage import DamageCheck
from tests.support.builders import LOG_FILE_SIZE, put

if TYPE_CHECKING:
    from broker_core.store.message_store import MessageStore


class Damaged:
    """A master's log of five records; the third was damaged after its start."""

    def __init__(self, master: MessageStore) -> None:
        self.files = master.files
        self.records = [put(master, body=b"%d" % number * 50) for number in range(5)]
        self.place = self.records[2].commit_log_offset
        self.end = self.records[3].commit_log_offset
        self.break_record(self.place)
        self.check = DamageCheck(self.files, is_guarded=False)

    def break_record(self, offset: int) -> None:
        """Flip a bit of a record's body."""
        file = self.files.log.file_at(offset)
        assert file is not None
        file.view[offset - file.file_from_offset + 100] ^= 1

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return [(one.offset_from, one.offset_to) for one in self.files.quarantine.ranges]


@pytest.fixture
def damaged(master: MessageStore) -> Damaged:
    return Damaged(master)


async def test_a_damaged_record_is_skipped(damaged: Damaged) -> None:
    await damaged.check.look(damaged.place)

    assert damaged.ranges == [(damaged.place, damaged.end)]
    (found,) = damaged.files.quarantine.ranges
    assert "commitlog" in found.reason


async def test_it_is_recorded_durably(damaged: Damaged, master: MessageStore) -> None:
    await damaged.check.look(damaged.place)
    damaged.files.quarantine.ranges = []

    damaged.files.quarantine.load()

    assert damaged.ranges == [(damaged.place, damaged.end)]


@pytest.mark.parametrize("where", ["whole", "within", "before", "behind"])
async def test_a_wrong_slave_changes_nothing(damaged: Damaged, where: str) -> None:
    offset = {
        "whole": damaged.records[1].commit_log_offset,
        "within": damaged.place + 4,
        "before": -1,
        "behind": damaged.files.log.committed_where,
    }[where]

    await damaged.check.look(offset)

    assert damaged.ranges == []


async def test_a_files_first_record_is_read_without_a_queue(
    master: MessageStore,
) -> None:
    first = put(master, body=b"first" * 20)
    second = put(master)
    file = master.files.log.file_at(first.commit_log_offset)
    assert file is not None
    file.view[4] ^= 1

    await DamageCheck(master.files, is_guarded=False).look(first.commit_log_offset)

    (found,) = master.files.quarantine.ranges
    assert (found.offset_from, found.offset_to) == (0, second.commit_log_offset)


async def test_one_place_is_examined_at_a_time(damaged: Damaged) -> None:
    first, *_ = damaged.records
    damaged.break_record(first.commit_log_offset)

    await asyncio.gather(
        damaged.check.look(damaged.place), damaged.check.look(first.commit_log_offset)
    )
    assert damaged.ranges == [(damaged.place, damaged.end)]

    await damaged.check.look(first.commit_log_offset)
    assert damaged.files.quarantine.contains(first.commit_log_offset)


async def test_a_record_with_a_wrong_checksum_ends_no_range(damaged: Damaged) -> None:
    damaged.break_record(damaged.end)

    await damaged.check.look(damaged.place)

    assert damaged.ranges == [(damaged.place, damaged.records[4].commit_log_offset)]


async def test_an_offset_in_a_later_file_is_also_found(master: MessageStore) -> None:
    for _ in range(10):
        put(master, body=b"x" * 9_000)
    damaged = Damaged(master)
    assert damaged.place > LOG_FILE_SIZE

    await damaged.check.look(damaged.place)

    assert damaged.ranges == [(damaged.place, damaged.end)]


async def test_data_after_the_last_unit_also_belongs_to_a_record(master: MessageStore) -> None:
    put(master, queue_id=1)
    last = put(master, body=b"last" * 20)
    begin = master.max_commit_log_offset
    master.files.log.append_data(memoryview(b"\1" * 100))

    await DamageCheck(master.files, is_guarded=False).look(begin)

    (found,) = master.files.quarantine.ranges
    assert (found.offset_from, found.offset_to) == (begin, begin + 100)
    assert last.commit_log_offset < begin


async def test_a_part_of_the_log_skipped_at_the_start_is_not_read(damaged: Damaged) -> None:
    end = damaged.files.log.committed_where

    await damaged.check.look(end)
    await damaged.check.look(end + LOG_FILE_SIZE)

    assert damaged.ranges == []


async def test_examining_many_queues_yields_to_others(
    master: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_core.ha.damage.QUEUES_A_TURN", 2)
    for queue_id in range(7):
        put(master, queue_id=queue_id)
    damaged = Damaged(master)
    turns = 0

    async def run_meanwhile() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    # No record begins there, so all queues are searched.
    looking = asyncio.create_task(damaged.check.look(damaged.place + 4))
    meanwhile = asyncio.create_task(run_meanwhile())
    await looking
    meanwhile.cancel()

    assert damaged.ranges == []
    # One more runs before this test is woken.
    assert turns == 7 // 2 + 1
