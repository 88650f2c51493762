from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_core.formats.bloom_filter import BloomFilter, murmur3_128

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "sql92" / "table-4.9.7.json"
ROWS = json.loads(GOLDEN.read_text())["bloom"]


@pytest.mark.parametrize(("error_rate", "consumers", "bits", "positions"), ROWS)
def test_size_and_positions_are_rocketmqs(
    error_rate: int, consumers: int, bits: int, positions: dict[str, list[int]]
) -> None:
    bloom = BloomFilter(error_rate, consumers)

    assert bloom.bit_num == bits
    for name, expected in positions.items():
        if "#" in name:
            group, _, topic = name.partition("#")
            assert bloom.positions(group, topic) == expected


def test_the_brokers_defaults_make_112_bits() -> None:
    bloom = BloomFilter(20, 32)

    assert (bloom.bit_num, bloom.hash_num) == (112, 3)


def test_the_hash_is_murmur3() -> None:
    assert murmur3_128(b"") == 0
    assert murmur3_128(b"hello") & (1 << 64) - 1 == 0xCBD8A7B341BD9B02
