"""What a master does about a place that its slave cannot read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.ha.damage import DamageCheck
from tests.support.builders import put

if TYPE_CHECKING:
    from broker_core.store.message_store import MessageStore


class Damaged:
    """A master's log of five records, of which the third was damaged after its start."""

    def __init__(self, master: MessageStore) -> None:
        self.files = master.files
        self.records = [put(master, body=b"%d" % number * 50) for number in range(5)]
        self.place = self.records[2].commit_log_offset
        self.end = self.records[3].commit_log_offset
        file = self.files.log.file_at(self.place)
        assert file is not None
        file.view[self.place - file.file_from_offset + 100] ^= 1
        self.check = DamageCheck(self.files, is_guarded=False)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return [(one.offset_from, one.offset_to) for one in self.files.quarantine.ranges]


@pytest.fixture
def damaged(master: MessageStore) -> Damaged:
    return Damaged(master)


async def test_a_damaged_record_is_stepped_over_up_to_the_next(damaged: Damaged) -> None:
    await damaged.check.look(damaged.place)

    assert damaged.ranges == [(damaged.place, damaged.end)]
    (found,) = damaged.files.quarantine.ranges
    assert "commitlog" in found.reason


async def test_it_is_written_down_durably(damaged: Damaged, master: MessageStore) -> None:
    await damaged.check.look(damaged.place)
    damaged.files.quarantine.ranges = []

    damaged.files.quarantine.load()

    assert damaged.ranges == [(damaged.place, damaged.end)]


@pytest.mark.parametrize("where", ["whole", "within", "before", "behind"])
async def test_a_slave_that_is_wrong_changes_nothing(damaged: Damaged, where: str) -> None:
    offset = {
        "whole": damaged.records[1].commit_log_offset,
        "within": damaged.place + 4,
        "before": -1,
        "behind": damaged.files.log.committed_where,
    }[where]

    await damaged.check.look(offset)

    assert damaged.ranges == []


async def test_the_first_record_of_a_file_is_looked_at_without_a_queue(
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


async def test_one_place_is_looked_at_at_a_time(damaged: Damaged) -> None:
    file = damaged.files.log.file_at(damaged.end)
    assert file is not None
    file.view[damaged.end - file.file_from_offset + 100] ^= 1

    await asyncio.gather(damaged.check.look(damaged.place), damaged.check.look(damaged.end))
    assert len(damaged.ranges) == 1

    await damaged.check.look(damaged.end)
    assert damaged.files.quarantine.contains(damaged.end)
