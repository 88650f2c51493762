from __future__ import annotations

import pytest

from broker_core.formats.cq_ext_unit import (
    ADDRESS_BASE,
    ADDRESS_MAX,
    EXT_OFFSET_MAX,
    CqExtUnit,
    decode,
    encode,
)
from broker_core.message.tags import tags_code

UNIT = CqExtUnit(tags_code("TagA"), 1_795_252_759_675, bytes(range(14)))


@pytest.mark.parametrize("unit", [UNIT, CqExtUnit(-1, 1, b"")])
def test_encoded_data_is_decoded(unit: CqExtUnit) -> None:
    data = b"xx" + encode(unit) + b"yy"

    assert decode(data, 2) == unit
    assert unit.size == len(data) - 4


@pytest.mark.parametrize(
    "data",
    [b"", bytes(40), b"\xff\xff" + bytes(40), encode(UNIT)[:-1], b"\0\x15" + encode(UNIT)[2:]],
)
def test_bytes_without_a_unit_decode_to_none(data: bytes) -> None:
    assert decode(data, 0) is None


def test_no_tags_code_is_an_address() -> None:
    assert ADDRESS_MAX < -(1 << 31)
    assert ADDRESS_BASE + EXT_OFFSET_MAX == ADDRESS_MAX
