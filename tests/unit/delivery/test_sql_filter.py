from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from broker_core.delivery.sql92.parser import compile_expression
from broker_core.delivery.sql_filter import (
    UNITS_MIN,
    FilterBits,
    RecordProperties,
    RetryFilter,
    SqlFilter,
    compile_filter,
)
from broker_core.delivery.tag_filter import TagFilter
from broker_core.formats import record
from broker_core.formats.cq_ext_unit import ADDRESS_BASE, CqExtUnit
from broker_core.message import properties as message_properties
from broker_core.store.results import FILTERED_UNITS_MAX
from tests.support.builders import HOST

LOG_OFFSET = 0


def a_record(properties: bytes, body: bytes = b"body") -> memoryview:
    buffer = bytearray(len(properties) + len(body) + 200)
    record.encode_into(
        buffer,
        0,
        topic=b"T",
        queue_id=0,
        queue_offset=0,
        commit_log_offset=LOG_OFFSET,
        body=body,
        properties=properties,
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=HOST,
        store_timestamp=1,
        store_host=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )
    return memoryview(buffer)[: int.from_bytes(buffer[:4], "big")]


def encoded(**properties: str) -> bytes:
    return message_properties.encode(properties).encode()


names = st.sampled_from(["a", "b", "ab", "TAGS"])
parts = st.sampled_from(["a", "b", "ab", "\x01", "\x02", "x", "订", "a\x01", "\x02a\x01"])


@given(st.lists(parts, max_size=12).map("".join), names)
def test_a_property_lookup_equals_a_full_parse(text: str, name: str) -> None:
    expected = message_properties.decode(text).get(name)

    assert RecordProperties(a_record(text.encode())).get(name) == expected


def test_records_are_matched_by_their_properties() -> None:
    sql = SqlFilter(compile_expression("region = 'eu' AND price BETWEEN 10 AND 20"))

    assert sql.by_tags_code(0)
    assert sql.by_record(a_record(encoded(region="eu", price="15")))
    assert not sql.by_record(a_record(encoded(region="eu", price="25")))
    assert not sql.by_record(a_record(encoded(price="15")))
    assert not sql.by_record(a_record(encoded(region="eu", price="cheap")))


def test_a_bitmap_shows_which_records_can_be_skipped() -> None:
    sql = SqlFilter(compile_expression("a = 1"), FilterBits(b"\x00\x81", born_time=10))

    assert sql.by_ext_unit(CqExtUnit(0, 11, b"\x00\x81"))
    assert sql.by_ext_unit(CqExtUnit(0, 11, b"\xff\xff"))
    assert not sql.by_ext_unit(CqExtUnit(0, 11, b"\xff\x80"))
    assert not sql.by_ext_unit(CqExtUnit(0, 11, b"\x00\x00"))


@pytest.mark.parametrize(
    "unit", [CqExtUnit(0, 10, b"\0\0"), CqExtUnit(0, 11, b""), CqExtUnit(0, 11, b"\0")]
)
def test_bitmaps_from_before_the_filter_or_of_another_size_are_ignored(unit: CqExtUnit) -> None:
    sql = SqlFilter(compile_expression("a = 1"), FilterBits(b"\x00\x81", born_time=10))

    assert sql.by_ext_unit(unit)
    assert SqlFilter(compile_expression("a = 1")).by_ext_unit(unit)


def test_a_retry_topic_is_matched_by_its_own_tags() -> None:
    tags = TagFilter(frozenset({1}))
    retry = RetryFilter(tags, lambda topic: None)

    assert tags.by_ext_unit(CqExtUnit(1, 1, b""))
    assert not tags.by_ext_unit(CqExtUnit(2, 1, b""))
    assert not retry.by_ext_unit(CqExtUnit(2, 1, b""))
    assert RetryFilter(None, lambda topic: None).by_ext_unit(CqExtUnit(2, 1, b""))


def test_an_address_that_leads_nowhere_matches_all_tags() -> None:
    assert TagFilter(frozenset({1})).by_tags_code(ADDRESS_BASE)
    assert not TagFilter(frozenset({1})).by_tags_code(-(1 << 31))


def test_a_damaged_record_does_not_match() -> None:
    sql = SqlFilter(compile_expression("a IS NULL"))

    assert not sql.by_record(a_record(b"")[:40])


def test_costly_expressions_examine_fewer_messages() -> None:
    cheap = SqlFilter(compile_expression("a = 1 AND b = 2"))
    costly = SqlFilter(compile_expression(" OR ".join(["a = 1"] * 250)))

    assert cheap.units_max == FILTERED_UNITS_MAX
    assert costly.units_max == UNITS_MIN


def test_a_retried_message_is_matched_by_its_real_topics_filter() -> None:
    filters = {"T": compile_expression("a = 1")}
    retry = RetryFilter(None, filters.get)

    assert retry.by_tags_code(7)
    assert retry.by_record(a_record(encoded(RETRY_TOPIC="T", a="1")))
    assert not retry.by_record(a_record(encoded(RETRY_TOPIC="T", a="2")))
    assert retry.by_record(a_record(encoded(RETRY_TOPIC="other", a="2")))
    assert retry.by_record(a_record(encoded(a="2")))
    assert not RetryFilter(TagFilter(frozenset({1})), filters.get).by_tags_code(2)


def test_only_sql92_is_supported() -> None:
    assert compile_filter("SQL92", "a = 1").text == "a = 1"

    with pytest.raises(ValueError, match="type 'GROOVY' is unknown"):
        compile_filter("GROOVY", "a = 1")
