from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_core.formats.bloom_filter import bit_positions, murmur3_128

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "sql92" / "table-4.9.7.json"
NAMES = json.loads(GOLDEN.read_text())["bloom"]


@pytest.mark.parametrize("name", [name for name in NAMES if "#" in name])
def test_positions_are_rocketmqs(name: str) -> None:
    group, _, topic = name.partition("#")

    assert bit_positions(group, topic) == NAMES[name]


def test_the_hash_is_murmur3() -> None:
    assert murmur3_128(b"") == 0
    assert murmur3_128(b"hello") & (1 << 64) - 1 == 0xCBD8A7B341BD9B02
