"""Bodies as columns: each message once, in the table of matching or of non-matching ones."""

from __future__ import annotations

import json
import zlib
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from analytics.errors import LakeError
from analytics.lake import derived
from analytics.lake.bodies import BodyRules
from analytics.lake.body_columns import columns_of
from analytics.lake.jobs import LakeJobs
from analytics.lake.maintenance import maintain
from analytics.lake.masks import Mask
from analytics.lake.repair import forget, rebuild, rebuild_gold, verify
from analytics.lake.silver_tables import silver_in
from analytics.lake.status import tables_of
from analytics.lake.writer import ArrowWriter
from analytics.query.engine import Engine
from analytics.query.views import views_of
from broker_core.message.sys_flag import COMPRESSED_FLAG
from tests.analytics.lake.lakes import Lake, SmallBatches
from tests.analytics.store_builder import START_MS, StoreBuilder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY_MS = 86_400_000
FIRST_DAY = datetime.fromtimestamp(START_MS / 1000, UTC).date()
RULES = """
[bodies.orders.columns]
order_id = "string not null"
total = "decimal(12,2)"
order = "long"
"""


class StopError(Exception):
    """A kill."""


def rules_in(directory: Path, text: str = RULES) -> BodyRules:
    file = directory / "bodies.toml"
    file.write_text(text)
    return BodyRules.read(file)


def put_orders(builder: StoreBuilder, count: int = 20) -> None:
    """Put orders on two days; every fifth has no ID."""
    for number in range(count):
        body = {"order_id": f"o{number}", "total": f"{number}.50", "order": number}
        if number % 5 == 4:
            del body["order_id"]
        builder.put(
            "orders",
            body=json.dumps(body).encode(),
            properties=b"KEYS\x01k%d\x02UNIQ_KEY\x01U%d" % (number, number),
            store_timestamp=START_MS + DAY_MS * (number % 2) + number,
        )
        builder.put("bills", body=b"{}", store_timestamp=START_MS + number)


def ingest(lake: Lake, observer: Callable[[str], None] | None = None) -> None:
    writer = SmallBatches(ArrowWriter(), 2_000)
    LakeJobs(lake.place, lambda: writer, seconds=60, observer=observer).ingest(lake.source)


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    made = StoreBuilder(tmp_path / "store")
    put_orders(made)
    made.write()
    return made


@pytest.fixture
def lake(builder: StoreBuilder, tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "lake", builder.root, rules=rules_in(tmp_path))
    ingest(made)
    return made


def orders(lake: Lake) -> list[tuple[Any, ...]]:
    return lake.query('SELECT uniq_key, order_id, total, "order" FROM silver.orders ORDER BY ALL')


def rejected(lake: Lake) -> list[tuple[Any, ...]]:
    return lake.query("SELECT uniq_key, reason FROM silver.orders_rejected ORDER BY ALL")


def all_orders(numbers: range = range(20)) -> list[tuple[Any, ...]]:
    fit = [number for number in numbers if number % 5 != 4]
    return sorted((f"U{n}", f"o{n}", Decimal(f"{n}.50"), n) for n in fit)


def all_rejected(numbers: range = range(20)) -> list[tuple[str, str]]:
    why = "order_id: required, but missing or null"
    return sorted((f"U{number}", why) for number in numbers if number % 5 == 4)


def test_each_message_is_in_exactly_one_of_two_tables(lake: Lake) -> None:
    assert orders(lake) == all_orders()
    assert rejected(lake) == all_rejected()
    assert verify(lake.place, lake.source).in_gold == []
    rows = {each["table"]: each["rows"] for each in tables_of(lake.place)}
    assert (rows["silver.orders"], rows["silver.orders_rejected"]) == (16, 4)
    assert not [name for name in rows if "bills" in name]


@pytest.mark.parametrize(
    ("kind", "fits", "misfits"),
    [
        ("string", {"☂": "☂", "": ""}, [1, True, [], "\ud800"]),
        ("int", {2147483647: 2147483647, 5.0: 5}, [1 << 31, 1.5, "1", True]),
        ("long", {-(1 << 63): -(1 << 63)}, [1 << 63, 1e300, {}]),
        ("double", {1: 1.0, 1.25: 1.25}, ["1", False]),
        ("boolean", {True: True}, [1, "true"]),
        ("date", {"2026-11-28": date(2026, 11, 28)}, ["20261128", "2026-13-01", 10**9, 1.5]),
        (
            "timestamp",
            {
                "2026-11-28T10:00:00.5+02:00": datetime(2026, 11, 28, 8, 0, 0, 500_000, UTC),
                "2026-11-28T10:00:00Z": datetime(2026, 11, 28, 10, tzinfo=UTC),
            },
            ["yesterday", 1, "9999-12-31T23:59:59-10:00"],
        ),
        ("timestamp_ms", {1500: datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)}, [1 << 62, "1"]),
        ("timestamp_us", {1: datetime(1970, 1, 1, 0, 0, 0, 1, UTC)}, [1 << 62]),
        ("decimal(5,2)", {"123.40": Decimal("123.40"), 7: Decimal("7.00")}, [1.234, 1000, "1e2"]),
        ("json", {"a": '"a"'}, []),
        ("string[]", {}, ["a", [1], {"a": 1}]),
    ],
)
def test_a_value_is_read_exactly_or_the_body_is_rejected(
    kind: str, fits: dict[Any, Any], misfits: list[Any]
) -> None:
    columns = columns_of("here", {"value": kind}, is_short=True)
    bodies = [json.dumps({"value": each}).encode() for each in (*fits, *misfits)]

    (values,), reasons = columns.read(bodies)

    assert values.to_pylist() == [*fits.values(), *[None] * len(misfits)]
    assert reasons[: len(fits)] == [None] * len(fits)
    expected = "array" if kind == "string[]" else kind
    for reason in reasons[len(fits) :]:
        assert reason is not None
        assert reason.startswith(f"value: expected {expected}, found") or kind == "string[]"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body isn't JSON"),
        (b"\xff", "the body isn't JSON"),
        (b'{"value": NaN}', "the body isn't JSON"),
        (b"[" * 100_000, "the body isn't JSON"),
        (b'{"value": 1e999999999}', "value: expected long, found a number"),
        (b"[1]", "the body is an array, not an object"),
        (b'{"value": {"secret": 1}}', "value: expected long, found an object"),
    ],
)
def test_no_body_stops_the_read_and_no_reason_quotes_it(body: bytes, reason: str) -> None:
    columns = columns_of("here", {"value": "long"}, is_short=True)

    (values,), reasons = columns.read([body, b'{"value": 1}'])

    assert (values.to_pylist(), reasons) == ([None, 1], [reason, None])


JSON_SCHEMA = {
    "properties": {
        "id": {"type": "string", "description": "the order's number"},
        "count": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "to": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]},
        "codes": {"type": "array", "items": {"type": "integer"}},
        "more": {},
    },
    "required": ["id", "to"],
    "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string", "doc": "the order's number"},
        {"name": "count", "type": ["null", "long"], "default": None},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {
            "name": "to",
            "type": [
                "null",
                {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]},
            ],
        },
        {"name": "codes", "type": {"type": "array", "items": "long"}, "default": []},
        {"name": "more", "type": {"type": "map", "values": "string"}, "default": {}},
    ],
}


@pytest.mark.parametrize(
    ("file", "schema", "at"),
    [
        ("orders.schema.json", JSON_SCHEMA, "2026-11-28T10:00:00Z"),
        ("orders.avsc", AVRO_SCHEMA, 1795860000000),
    ],
)
def test_a_schema_file_declares_the_columns(
    tmp_path: Path, file: str, schema: dict[str, Any], at: Any
) -> None:
    (tmp_path / file).write_text(json.dumps(schema))
    builder = StoreBuilder(tmp_path / "store")
    body = {"id": "a", "count": 2, "at": at, "to": {"city": "Ulm"}, "codes": [1], "more": {"b": 1}}
    builder.put("orders", body=zlib.compress(json.dumps(body).encode()), sys_flag=COMPRESSED_FLAG)
    builder.put("orders", body=b'{"id": "b"}')
    builder.put("orders", body=b'{"count": 1}')
    builder.write()
    rules = rules_in(tmp_path, f'[bodies.orders]\nschema = "{file}"')
    lake = Lake(tmp_path / "lake", builder.root, rules=rules)

    ingest(lake)

    rows = lake.query('SELECT id, "count", "at", "to".city, codes, more FROM silver.orders')
    moment = datetime(2026, 11, 28, 10, tzinfo=UTC)
    assert sorted(rows) == [
        ("a", 2, moment, "Ulm", [1], '{"b": 1}'),
        ("b", None, None, None, None, None),
    ]
    assert rejected(lake)[0][1] == "id: required, but missing or null"
    (topic,) = silver_in(lake.place)
    fields = topic.accepted.existing(lake.place).schema().fields
    comments = {each.name: each.metadata for each in fields}
    assert comments["id"] == {"comment": "the order's number"}


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ('[bodies.orders]\nschema = "gone.json"', "can't be read"),
        ("[bodies.orders.columns]", "there are no fields"),
        ('[bodies.orders.columns]\nid = "text"', "has the unknown type 'text'"),
        ('[bodies.orders.columns]\nid = "decimal(40,2)"', "more than 38 digits"),
        ('[bodies.orders.columns]\na-b = "long"\na_b = "long"', "have the same column"),
        ('[bodies.orders]\nschema = "a"\ncolumns = {a = "long"}', "not both"),
        ('[bodies."%DLQ%g".columns]\nid = "long"', "can't have columns"),
        (
            '[bodies.orders.columns]\nid = "long"\n[bodies.ORDERS.columns]\nid = "long"',
            "the same table",
        ),
    ],
)
def test_an_invalid_declaration_is_rejected(tmp_path: Path, rule: str, sentence: str) -> None:
    with pytest.raises(LakeError, match=sentence):
        rules_in(tmp_path, rule)


def test_an_erased_message_leaves_silver_and_its_files(lake: Lake) -> None:
    assert forget(lake.place, "k2") == forget(lake.place, "k9") == 1

    assert orders(lake) == [row for row in all_orders() if row[0] != "U2"]
    assert rejected(lake) == [row for row in all_rejected() if row[0] != "U9"]
    (topic,) = silver_in(lake.place)
    named = sum(len(table.existing(lake.place).file_uris()) for table in topic.tables)
    assert len(list((lake.directory / "silver").rglob("*.parquet"))) == named
    rebuild(lake.place, lake.source)
    ingest(lake)
    assert orders(lake) == [row for row in all_orders() if row[0] != "U2"]
    assert verify(lake.place, lake.source).in_gold == []


def test_silver_follows_rebuild_merging_and_retention(lake: Lake) -> None:
    rebuild(lake.place, lake.source)
    assert orders(lake) == rejected(lake) == []
    ingest(lake)
    assert orders(lake) == all_orders()

    merged = maintain(
        lake.place, FIRST_DAY + timedelta(days=9), ArrowWriter(), bronze_days=8
    ).merged

    assert ("silver.orders", FIRST_DAY + timedelta(days=1)) in merged
    assert orders(lake) == [row for row in all_orders() if row[3] % 2]
    assert rejected(lake) == [row for row in all_rejected() if int(row[0][1:]) % 2]
    rebuild_gold(lake.place)
    assert orders(lake) == [row for row in all_orders() if row[3] % 2]


@pytest.mark.parametrize(
    ("step", "time"), [("silver written", 1), ("silver committed", 1), ("silver committed", 3)]
)
def test_a_kill_at_any_step_of_silver_neither_loses_nor_repeats_data(
    builder: StoreBuilder, tmp_path: Path, step: str, time: int
) -> None:
    lake = Lake(tmp_path / "lake", builder.root, rules=rules_in(tmp_path))
    seen: list[str] = []

    def observer(done: str) -> None:
        seen.append(done)
        if seen.count(step) == time:
            raise StopError

    with pytest.raises(LakeError):
        ingest(lake, observer)

    assert derived.is_behind(lake.place)
    ingest(lake)
    assert (orders(lake), rejected(lake)) == (all_orders(), all_rejected())


def test_other_columns_rebuild_the_table_from_bronze(lake: Lake, tmp_path: Path) -> None:
    first = RULES
    second = '[bodies.orders.columns]\ntotal = "string"\nday = "long"'
    for text in (second, first):
        again = Lake(lake.directory, tmp_path / "store", rules=rules_in(tmp_path, text))
        ingest(again)
        if text == second:
            rows = again.query("SELECT total, body_day FROM silver.orders")
            assert sorted(rows) == sorted((f"{number}.50", None) for number in range(20))
            assert rejected(again) == []
    assert (orders(lake), rejected(lake)) == (all_orders(), all_rejected())


def test_fields_masked_by_a_rule_are_masked_in_columns(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.put("orders", body=b'{"name": "Kim", "card": 1234, "note": "of Kim"}')
    builder.write()
    text = """
[bodies.orders]
fields = ["name", "card"]
patterns = ["Kim"]
columns = {name = "string", card = "long", note = "string"}
"""
    lake = Lake(tmp_path / "lake", builder.root, rules=rules_in(tmp_path, text))

    ingest(lake)

    assert lake.query("SELECT name, card, note FROM silver.orders") == [("***", None, "of ***")]


@pytest.mark.parametrize(
    ("kind", "topics", "is_hidden"),
    [
        ("pattern", ("ord*",), True),
        ("path", ("orders",), True),
        ("property", ("orders",), False),
        ("pattern", ("bills",), False),
    ],
)
def test_masking_rules_hide_body_fields_from_sql(
    lake: Lake, kind: str, topics: tuple[str, ...], is_hidden: bool
) -> None:
    views = views_of(lake.place, None, [Mask(topics, kind, "o[0-9]+")])
    sql = 'SELECT uniq_key, order_id, "order" FROM silver.orders WHERE uniq_key IS NOT NULL'
    with Engine(lake.place, views, "UTC").reader(sql) as reader:
        rows = reader.read_all().to_pylist()

    assert len(rows) == 16
    assert all((row["order_id"], row["order"]) == (None, None) for row in rows) is is_hidden
    sql = 'SELECT * FROM Silver.Orders WHERE "order" > 2'
    with Engine(lake.place, views, "UTC").reader(sql) as reader:
        assert reader.read_all().num_rows == (0 if is_hidden else 13)


def test_a_user_of_other_topics_sees_no_rows_of_silver(lake: Lake) -> None:
    views = views_of(lake.place, ["bills"])
    sql = "SELECT count(*) AS n FROM silver.orders"
    with Engine(lake.place, views, "UTC").reader(sql) as reader:
        assert reader.read_all().to_pylist() == [{"n": 0}]


def test_verify_shows_differences_between_silver_and_bronze(lake: Lake) -> None:
    (topic,) = silver_in(lake.place)
    opened = topic.accepted.existing(lake.place)
    path = opened.get_add_actions()["path"].to_pylist()[0]
    topic.accepted.commit(lake.place, opened, [], removed=[path])

    found = verify(lake.place, lake.source).in_gold

    assert {each.table for each in found} == {"silver.orders"}
    rebuild_gold(lake.place)
    assert verify(lake.place, lake.source).in_gold == []
