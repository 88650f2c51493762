"""Known damaged ranges of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.store.quarantine import Quarantine
from broker_core.store.results import DamagedRange
from tests.support.faulty_storage import FaultyStorage

PATH = Path("/store/quarantine.json")


def known(storage: FaultyStorage, *ranges: tuple[int, int]) -> Quarantine:
    quarantine = Quarantine(PATH, storage)
    for offset_from, offset_to in ranges:
        quarantine.add(DamagedRange(offset_from, offset_to, "bad"))
    return quarantine


def ends(quarantine: Quarantine) -> list[tuple[int, int]]:
    return [(one.offset_from, one.offset_to) for one in quarantine.ranges]


@pytest.mark.parametrize(
    ("found", "is_new", "ranges"),
    [
        ((10, 20), False, [(10, 20), (40, 50)]),
        ((12, 18), False, [(10, 20), (40, 50)]),
        ((0, 10), True, [(0, 10), (10, 20), (40, 50)]),
        ((20, 40), True, [(10, 20), (20, 40), (40, 50)]),
        ((5, 25), True, [(5, 25), (40, 50)]),
        ((15, 45), True, [(10, 50)]),
        ((15, 30), True, [(10, 30), (40, 50)]),
        ((5, 11), True, [(5, 20), (40, 50)]),
    ],
)
def test_a_range_adds_to_the_known_values_and_removes_none(
    found: tuple[int, int], is_new: bool, ranges: list[tuple[int, int]]
) -> None:
    quarantine = known(FaultyStorage(), (40, 50), (10, 20))

    assert quarantine.add(DamagedRange(*found, "bad")) is is_new

    assert ends(quarantine) == ranges


def test_a_range_ends_before_its_second_offset() -> None:
    quarantine = known(FaultyStorage(), (10, 20))

    found = [offset for offset in (9, 10, 19, 20) if quarantine.contains(offset)]
    assert found == [10, 19]


def test_saved_data_is_durable_and_unchanged_after_a_restart() -> None:
    storage = FaultyStorage()
    known(storage, (40, 50), (10, 20)).save()

    again = Quarantine(PATH, storage.cut_power())
    again.load()

    assert again.ranges == [DamagedRange(10, 20, "bad"), DamagedRange(40, 50, "bad")]


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"ranges":[{"from":1}]}', b'{"ranges":7}'])
def test_an_unreadable_record_file_is_recreated(
    text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FaultyStorage()
    storage.make_directory(PATH.parent)
    storage.write_atomically(PATH, text)
    quarantine = Quarantine(PATH, storage)

    quarantine.load()

    assert quarantine.ranges == []
    assert len(caplog.messages) == 1


def test_damage_beyond_the_logs_end_is_forgotten() -> None:
    quarantine = known(FaultyStorage(), (10, 20), (30, 40), (50, 60))

    quarantine.cut_at(35)
    assert ends(quarantine) == [(10, 20), (30, 35)]
    quarantine.cut_at(30)
    assert ends(quarantine) == [(10, 20)]


def test_damage_of_deleted_files_is_forgotten_durably() -> None:
    storage = FaultyStorage()
    quarantine = known(storage, (10, 20), (30, 40))
    quarantine.save()

    quarantine.forget_before(10)
    assert ends(quarantine) == [(10, 20), (30, 40)]
    quarantine.forget_before(20)

    again = Quarantine(PATH, storage.cut_power())
    again.load()
    assert ends(again) == [(30, 40)]
