"""Points: sums and maxima are the same on every time scale, in any order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, strategies as st

from console.observe.history import codec, metrics, points
from console.observe.history.metrics import Column
from console.observe.history.points import MAX, MISSING, SUM, WEIGHT

if TYPE_CHECKING:
    from console.observe.history.points import Points

PUT, LAG = Column(metrics.PUT.code), Column(metrics.LAG.code, 3)
COLUMNS = (PUT, LAG)
EARLIEST = 179_000_000

values = st.one_of(st.just(MISSING), st.integers(0, 1 << 40))
rows = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 3).map(lambda n: n * 10_000), values, values),
    min_size=1,
    max_size=60,
)


def points_of(samples: list[tuple[int, int, int, int]]) -> Points:
    made = points.of_samples(
        COLUMNS,
        np.array([[put, lag] for _, _, put, lag in samples], dtype=np.int64),
        np.array([covered for _, covered, _, _ in samples], dtype=np.int64),
        np.array([EARLIEST + slot for slot, _, _, _ in samples], dtype=np.int64),
    )
    assert made is not None
    return made


def total(found: Points, which: int, column: Column) -> int:
    row = found.table[which, found.columns.index(column)]
    return int(row.max() if which == MAX else row.sum())


@given(rows)
def test_a_coarser_scale_keeps_sums_and_maxima(samples) -> None:
    fine = points_of(samples)
    for factor in (6, 60):
        coarse = points.coarser(fine, factor)
        for column in COLUMNS:
            for which in (WEIGHT, SUM, MAX):
                assert total(coarse, which, column) == total(fine, which, column)


@given(rows)
def test_sums_match_the_samples(samples) -> None:
    made = points_of(samples)

    counted = [put for _, covered, put, _ in samples if put != MISSING and covered]
    assert total(made, SUM, PUT) == sum(counted)
    assert total(made, WEIGHT, PUT) == sum(
        covered for _, covered, put, _ in samples if put != MISSING
    )
    known = [lag for *_, lag in samples if lag != MISSING]
    assert total(made, MAX, LAG) == max(known, default=MISSING)
    assert total(made, WEIGHT, LAG) == len(known)


@given(rows, rows)
def test_the_order_of_added_points_does_not_matter(some, more) -> None:
    first, slots = EARLIEST, 401

    one = points.together([points_of(some), points_of(more)], first, slots)
    other = points.together([points_of(more), points_of(some)], first, slots)
    at_once = points.together([points_of(some + more)], first, slots)

    assert (one.table == other.table).all()
    assert (one.table == at_once.table).all()


@given(rows)
def test_bytes_restore_the_points(samples) -> None:
    made = points_of(samples)

    back = codec.decode(codec.encode(made))

    assert back.columns == made.columns
    widened = points.together([back], made.first, made.slots)
    assert (widened.table == points.together([made], made.first, made.slots).table).all()


def test_a_counters_maximum_covers_at_most_ten_seconds() -> None:
    made = points_of([(0, 20_000, 50, MISSING)])

    assert total(made, MAX, PUT) == 25


@pytest.mark.parametrize("cut", [0, 1, 5, 20, 40])
def test_truncated_bytes_are_rejected(cut) -> None:
    data = codec.encode(points_of([(n, 10_000, n * n, n) for n in range(50)]))

    with pytest.raises(codec.CodecError):
        codec.decode(data[:cut])


@given(st.binary(max_size=200))
def test_other_bytes_are_only_rejected(data) -> None:
    with pytest.raises(codec.CodecError):
        codec.decode(b"\x00" + data)


@given(st.integers(0, 300), st.integers(0, 255))
def test_a_changed_byte_is_rejected_or_decoded_as_numbers(place, byte) -> None:
    data = bytearray(codec.encode(points_of([(n, 10_000, n * n, n) for n in range(50)])))
    data[place % len(data)] = byte
    try:
        codec.decode(bytes(data))
    except codec.CodecError:
        return


def test_noise_uses_little_more_than_a_byte_and_silence_nothing() -> None:
    noise = np.random.default_rng(1).poisson(100, 360).tolist()
    busy = codec.encode(points_of([(n, 10_000, noise[n], MISSING) for n in range(360)]))
    idle = codec.encode(points_of([(n, 10_000, 0, 0) for n in range(360)]))

    assert len(busy) < 1.5 * 360
    assert len(idle) < 80
