from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker_core.delivery.filter_bit_maps import COMPARISONS_MAX, FilterBitMaps
from broker_core.delivery.sql92.parser import compile_expression
from broker_core.message import properties as message_properties

if TYPE_CHECKING:
    from broker_core.delivery.sql92.expression import Expression


class Filter(NamedTuple):
    expression: Expression
    bit_map: bytes


FILTERS = {
    "T": [
        Filter(compile_expression("a > 1"), b"\x01\x80"),
        Filter(compile_expression("b = 'x'"), b"\x03\x00"),
        Filter(compile_expression("c > 1"), b"\xff\xff"),
    ]
}


def bit_maps(*, is_enabled: bool = True) -> FilterBitMaps:
    return FilterBitMaps(lambda topic: FILTERS.get(topic, ()), lambda: is_enabled)


def of(**properties: str) -> bytes:
    return bit_maps().bit_map("T", message_properties.encode(properties))


def test_a_bitmap_has_the_bits_of_the_filters_that_match() -> None:
    assert of(a="2") == b"\x01\x80"
    assert of(b="x") == b"\x03\x00"
    assert of(a="2", b="x") == b"\x03\x80"
    assert of(a="1", b="y") == b"\0\0"
    assert of(a="1", c="no number") == b"\0\0"


def test_without_filters_there_is_no_bitmap() -> None:
    assert bit_maps().bit_map("other", "a\x012") == b""
    assert bit_maps(is_enabled=False).bit_map("T", "a\x012") == b""


def test_too_many_filters_create_no_bitmap() -> None:
    costly = compile_expression(" OR ".join(["a = 1"] * 200))
    few = [Filter(costly, b"\x01")] * (COMPARISONS_MAX // costly.comparisons)

    assert FilterBitMaps(lambda topic: few, lambda: True).bit_map("T", "") == b"\0"
    assert FilterBitMaps(lambda topic: [*few, few[0]], lambda: True).bit_map("T", "") == b""
