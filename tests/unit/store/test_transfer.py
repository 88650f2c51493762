"""The limits of a get, and its plan: pure functions of units and offsets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from broker_core.formats.cq_unit import FILLER, UNIT
from broker_core.store.transfer import (
    LogWindow,
    Plan,
    TransferLimits,
    plan_transfer,
    transfer_limits,
)
from tests.support.builders import store_config

FILE_SIZE = 1000
NO_LIMIT = 1 << 62


class LogFile:
    """A file of the log whose records contain only their size."""

    def __init__(self, file_from_offset: int) -> None:
        self.file_from_offset = file_from_offset
        self.size = FILE_SIZE
        self.buffer = bytearray(FILE_SIZE)
        self.view = memoryview(self.buffer)

    def __repr__(self) -> str:
        return f"file {self.file_from_offset}"


FILES = [LogFile(0), LogFile(FILE_SIZE), LogFile(2 * FILE_SIZE)]


def file_at(offset: int) -> Any:
    number = offset // FILE_SIZE
    return FILES[number] if number < len(FILES) else None


def units_of(*places: tuple[int, int] | bytes) -> memoryview:
    """Return units of (offset, size), with the records' sizes written at these offsets."""
    data = b""
    for place in places:
        if isinstance(place, bytes):
            data += place
            continue
        offset, size = place
        data += UNIT.pack(offset, size, offset)
        file = file_at(offset)
        start = offset % FILE_SIZE
        if file is not None and start + 4 <= FILE_SIZE:
            file.buffer[start : start + 4] = size.to_bytes(4, "big")
    return memoryview(data)


def limits(**changes: int) -> TransferLimits:
    fields = {
        "count_in_memory": 32,
        "bytes_in_memory": 10_000,
        "count_on_disk": 8,
        "bytes_on_disk": 5_000,
        **changes,
    }
    return TransferLimits(**fields)


def window(**changes: int) -> LogWindow:
    fields = {
        "min_offset": 0,
        "max_offset": 3 * FILE_SIZE,
        "read_limit": NO_LIMIT,
        "disk_before": 0,
        **changes,
    }
    return LogWindow(**fields)


def plan(units: memoryview, **more: Any) -> Plan:
    return plan_transfer(units, more.pop("limits", limits()), window(), file_at, **more)


def places(found: Plan) -> list[tuple[int, int]]:
    return [(file.file_from_offset + start, size) for file, start, size in found.runs]


def test_a_get_is_limited_by_its_request_and_by_the_configuration():
    config = store_config(
        max_transfer_count_on_message_in_memory=32,
        max_transfer_bytes_on_message_in_memory=1000,
        max_transfer_count_on_message_in_disk=8,
        max_transfer_bytes_on_message_in_disk=500,
    )

    assert transfer_limits(config, 64) == TransferLimits(32, 1000, 8, 500)
    assert transfer_limits(config, 10) == TransferLimits(10, 1000, 8, 500)
    assert transfer_limits(config, 2) == TransferLimits(2, 1000, 2, 500)


def test_adjacent_records_are_one_run():
    found = plan(units_of((0, 100), (100, 50), (200, 100), (300, 10)))

    assert places(found) == [(0, 150), (200, 110)]
    assert (found.scanned, found.message_count, found.byte_count) == (4, 4, 260)
    assert (found.last_offset, found.is_cold, found.is_removing) == (300, False, False)


def test_a_run_ends_with_its_file():
    found = plan(units_of((900, 100), (1000, 100)))

    assert places(found) == [(900, 100), (1000, 100)]
    assert [file.file_from_offset for file, _, _ in found.runs] == [0, FILE_SIZE]


@pytest.mark.parametrize(
    ("bound", "count"),
    [
        ({"count_in_memory": 2}, 2),
        ({"bytes_in_memory": 300}, 3),
        ({"bytes_in_memory": 299}, 2),
        ({"bytes_in_memory": 1}, 1),
        ({"count_on_disk": 1, "bytes_on_disk": 1}, 4),
    ],
)
def test_data_in_memory_is_limited_and_the_first_message_always_fits(bound, count):
    units = units_of((0, 100), (100, 100), (200, 100), (300, 100))

    found = plan(units, limits=limits(**bound))

    assert found.message_count == found.scanned == count


def test_data_on_disk_has_its_own_limits():
    units = units_of((0, 100), (100, 100), (200, 100), (300, 100))
    bounds = limits(count_on_disk=2)

    assert plan_transfer(units, bounds, window(disk_before=400), file_at).message_count == 2
    mixed = plan_transfer(units, bounds, window(disk_before=100), file_at)
    assert (mixed.message_count, mixed.is_cold) == (4, True)


def test_nothing_beyond_the_read_limit_is_planned_or_skipped():
    units = units_of((0, 100), (100, 100), (200, 100))

    found = plan_transfer(units, limits(), window(read_limit=200), file_at)

    assert (found.scanned, found.message_count) == (2, 2)
    assert plan_transfer(units, limits(), window(read_limit=99), file_at).scanned == 0


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param({"units": (FILLER, (200, 100))}, id="a filler"),
        pytest.param({"units": ((5000, 100), (200, 100))}, id="a missing file"),
        pytest.param({"units": ((950, 100), (200, 100))}, id="an end behind its file"),
        pytest.param({"lost": 0, "units": ((0, 100), (200, 100))}, id="a damaged range"),
        pytest.param({"min_offset": 100, "units": ((0, 100), (200, 100))}, id="an expired file"),
        pytest.param({"max_offset": 400, "units": ((350, 100), (200, 100))}, id="a cut log"),
    ],
)
def test_missing_messages_are_skipped(gone):
    bounds = {key: gone[key] for key in ("min_offset", "max_offset") if key in gone}
    is_lost = (lambda offset: offset == gone["lost"]) if "lost" in gone else None

    found = plan_transfer(units_of(*gone["units"]), limits(), window(**bounds), file_at, is_lost)

    assert (found.scanned, places(found)) == (2, [(200, 100)])
    assert found.is_removing


def test_a_unit_that_leads_to_another_record_is_skipped():
    units = units_of((0, 100), (100, 100))
    FILES[0].buffer[0:4] = (60).to_bytes(4, "big")

    found = plan(units)

    assert places(found) == [(100, 100)]
    assert found.is_removing


def test_data_missing_after_a_message_is_not_a_removal():
    assert not plan(units_of((200, 100), FILLER)).is_removing


def test_a_mismatched_unit_is_skipped_and_breaks_a_run():
    units = units_of((0, 100), (100, 100), (200, 100))

    found = plan(units, by_unit=lambda code: code != 100)

    assert (found.scanned, places(found)) == (3, [(0, 100), (200, 100)])
    assert not found.is_removing


def test_a_record_in_memory_may_decide():
    units = units_of((0, 100), (100, 60), (200, 100))

    found = plan(units, by_record=lambda record: len(record) == 60)

    assert places(found) == [(100, 60)]


def test_a_record_on_disk_is_decided_when_it_is_read():
    units = units_of((0, 100))
    expected = plan_transfer(
        units, limits(), window(disk_before=100), file_at, by_record=lambda record: False
    )

    assert (places(expected), expected.is_cold) == ([(0, 100)], True)


def test_a_partial_unit_at_the_end_of_its_file_is_skipped():
    short = UNIT.pack(FILE_SIZE - 2, 2, 0)

    found = plan(memoryview(short + bytes(units_of((0, 100)))))

    assert places(found) == [(0, 100)]


small = st.integers(1, 400)
unit_places = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 3 * FILE_SIZE + 50), small),
        st.just(FILLER),
        st.just(UNIT.pack(10, 0, 0)),
        st.just(UNIT.pack(10, -50, 0)),
    ),
    max_size=12,
)


@given(
    unit_places,
    st.builds(TransferLimits, st.integers(1, 8), small, st.integers(1, 8), small),
    st.builds(
        LogWindow,
        st.integers(0, 500),
        st.integers(500, 3 * FILE_SIZE),
        st.integers(0, 4 * FILE_SIZE),
        st.integers(-1, 1500),
    ),
    st.booleans(),
)
def test_ordinary_records_are_planned_like_unusual_ones(drawn, bounds, between, in_order):
    if in_order:
        start = 0
        placed = []
        for place in drawn:
            placed.append(place if isinstance(place, bytes) else (start, place[1]))
            start += 0 if isinstance(place, bytes) else place[1]
        drawn = placed
    units = units_of(*drawn)

    usual = plan_transfer(units, bounds, between, file_at)
    unusual = plan_transfer(units, bounds, between, file_at, is_lost=lambda _: False)

    assert usual == unusual


@pytest.mark.parametrize("is_lost", [None, lambda _: False])
def test_a_unit_that_fits_in_its_file_is_planned(is_lost):
    assert places(plan(units_of((0, 4)), is_lost=is_lost)) == [(0, 4)]
