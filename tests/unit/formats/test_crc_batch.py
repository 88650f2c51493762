from __future__ import annotations

import random
from zlib import crc32

import numpy as np
import pytest

from broker_core.formats.crc_batch import BODY_SIZE_MAX, WIDTHS, are_whole, count_whole
from broker_core.formats.record import CRC_MASK


class Bodies:
    """Bodies of one width, one after another, with other bytes between them."""

    def __init__(self, dice: random.Random, width: int, count: int) -> None:
        self.width = width
        self.data = bytearray(dice.randbytes(width))
        places = []
        for _ in range(count):
            body = dice.randbytes(dice.randrange(width * 3 // 4, width + 1))
            places.append((len(self.data), len(self.data) + len(body)))
            self.data += body + dice.randbytes(dice.randrange(90))
        self.starts, self.ends = np.array(places, np.int64).reshape(-1, 2).T
        self.crcs = np.array(
            [crc32(self.data[start:end]) & CRC_MASK for start, end in places], np.int64
        )

    @property
    def are_whole(self) -> bool:
        return are_whole(self.data, self.starts, self.ends, self.width, self.crcs)


@pytest.mark.parametrize("width", WIDTHS.tolist())
@pytest.mark.parametrize("count", [1, 2, 3, 64, 101])
def test_whole_bodies_are_whole(width: int, count: int) -> None:
    assert Bodies(random.Random(width * count), width, count).are_whole


@pytest.mark.parametrize("seed", range(30))
def test_a_flipped_bit_is_found_wherever_it_is(seed: int) -> None:
    dice = random.Random(seed)
    bodies = Bodies(dice, dice.choice(WIDTHS.tolist()), 70)
    for _ in range(20):
        row = dice.randrange(70)
        place = dice.randrange(int(bodies.starts[row]), int(bodies.ends[row]))
        bit = 1 << dice.randrange(8)
        bodies.data[place] ^= bit
        assert not bodies.are_whole
        bodies.data[place] ^= bit
    assert bodies.are_whole


@pytest.mark.parametrize("bit", range(31))
def test_a_flipped_bit_of_a_checksum_is_found(bit: int) -> None:
    bodies = Bodies(random.Random(bit), int(WIDTHS[5]), 70)

    bodies.crcs[bit] ^= 1 << bit

    assert not bodies.are_whole


def test_two_swapped_bodies_are_detected() -> None:
    bodies = Bodies(random.Random(1), int(WIDTHS[5]), 70)

    bodies.crcs[[3, 4]] = bodies.crcs[[4, 3]]

    assert not bodies.are_whole


def test_data_between_bodies_does_not_count() -> None:
    bodies = Bodies(random.Random(1), int(WIDTHS[5]), 70)

    bodies.data[: int(bodies.starts[0])] = bytes(int(bodies.starts[0]))
    bodies.data[int(bodies.ends[0]) : int(bodies.starts[1])] = bytes(
        int(bodies.starts[1] - bodies.ends[0])
    )

    assert bodies.are_whole


@pytest.mark.parametrize("seed", range(20))
def test_the_first_damaged_body_is_reported_for_any_sizes(seed: int) -> None:
    dice = random.Random(seed)
    sizes = dice.choice([[0, 1, 7, 8, 9], [300], [300, 310, 340], [90, 1000, BODY_SIZE_MAX + 1]])
    data = bytearray(84)
    places = []
    for _ in range(300):
        body = dice.randbytes(dice.choice(sizes))
        places.append((len(data), len(data) + len(body)))
        data += body + dice.randbytes(100)
    starts, ends = np.array(places, np.int64).T
    crcs = np.array([crc32(data[start:end]) & CRC_MASK for start, end in places], np.int64)
    # The checksum of an empty body is never used.
    crcs[starts == ends] = 1
    assert count_whole(data, starts, ends, crcs) == 300

    damaged = sorted(dice.sample([row for row in range(300) if places[row][0] < places[row][1]], 3))
    for row in damaged:
        data[dice.randrange(*places[row])] ^= 1 << dice.randrange(8)
    assert count_whole(data, starts, ends, crcs) == damaged[0]


def test_without_bodies_all_are_whole() -> None:
    none = np.zeros(0, np.int64)

    assert count_whole(bytearray(100), none, none, none) == 0


def test_widths_are_an_eighth_apart_and_reach_as_far_as_needed() -> None:
    assert all(width % 8 == 0 for width in WIDTHS.tolist())
    assert WIDTHS[-1] >= BODY_SIZE_MAX
    assert (WIDTHS[1:] <= WIDTHS[:-1] * 9 / 8 + 8).all()
