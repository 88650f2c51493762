"""Scans of lake tables: equal to reading the tables directly, with filters pushed down to files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from duckdb._sources import nodes

from analytics.errors import LakeError
from analytics.lake.bodies import BodyRule, BodyRules
from analytics.lake.masks import Mask
from analytics.query.conditions import Condition
from analytics.query.engine import Engine
from analytics.query.lake_reader import LakeReader
from analytics.query.views import UNREADABLE, View, views_of
from tests.analytics.lake.lakes import Lake, add_views
from tests.analytics.store_builder import START_MS, StoreBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from analytics.lake.place import LakePlace

DAY_MS = 86_400_000
DAYS = 3
FIRST_DAY = datetime.fromtimestamp(START_MS / 1000, UTC).date()
LAST_DAY = FIRST_DAY + timedelta(days=DAYS - 1)
MASKS = (Mask(("orders",), "pattern", "41+"), Mask(("*",), "property", "token"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> LakePlace:
    directory = tmp_path_factory.mktemp("scanned")
    builder = StoreBuilder(directory / "store")
    for number in range(60):
        topic = ("orders", "bills", "it's")[number % 3]
        builder.put(
            topic,
            queue_id=number % 4,
            flag=number - 30,
            body=f"body {number} 411".encode() if number % 5 else b"",
            properties=f"UNIQ_KEY\x01FD{number:02d}\x02token\x01t{number}\x02KEYS\x01a {number}\x02"
            f'it\'s\x01"{number}"\x02'.encode()
            if number % 7
            else b"",
            store_timestamp=START_MS + number % DAYS * DAY_MS + number,
        )
    builder.write()
    rules = BodyRules(dict.fromkeys(("orders", "bills", "it's"), BodyRule()))
    lake = Lake(directory / "lake [x]*? it's", builder.root, rules=rules)
    lake.take_all()
    lake.catch_up()
    return lake.place


def run_query(
    place: LakePlace, sql: str, topics: Sequence[str] | None = None, masks: Sequence[Mask] = ()
) -> pa.Table:
    with Engine(place, views_of(place, topics, masks), "UTC").reader(sql) as reader:
        return reader.read_all()


def directly(place: LakePlace, sql: str, topics: Sequence[str] | None = None) -> pa.Table:
    """Return the result of SQL on views of the files, in an unrestricted DuckDB."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        add_views(connection, place, topics)
        return connection.sql(sql).to_arrow_table()


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist(maps_as_pydicts="lossy")))


@pytest.mark.parametrize("topics", [None, ["orders", "it*"]])
def test_every_table_has_the_rows_and_types_of_its_files(
    place: LakePlace, topics: list[str] | None
) -> None:
    for view in views_of(place, topics):
        found = run_query(place, f"FROM {view.name}", topics)
        expected = directly(place, f"FROM {view.name}", topics)

        assert found.schema.types == expected.schema.types
        assert rows_of(found) == rows_of(expected)


@pytest.mark.parametrize(
    "condition",
    [
        f"day = DATE '{FIRST_DAY}'",
        f"day > DATE '{FIRST_DAY}' AND day <= DATE '{LAST_DAY}'",
        f"day IN (DATE '{FIRST_DAY}', DATE '{LAST_DAY}')",
        f"day <> '{FIRST_DAY}'",
        "day IS NULL",
        "topic = 'it''s'",
        "topic <> 'orders' AND topic > 'a'",
        "topic NOT IN ('orders', 'it''s')",
        "topic IN ('orders', NULL)",
        "topic BETWEEN 'b' AND 'j'",
        "NOT (topic = 'orders' OR topic = 'bills')",
        "topic IS DISTINCT FROM 'orders'",
        "topic IS NOT DISTINCT FROM 'orders'",
        "topic = 'orders' COLLATE NOCASE",
        "topic LIKE 'o%'",
        "uniq_key = 'FD11'",
        "uniq_key IS NULL",
        "uniq_key IS NOT NULL AND uniq_key >= 'FD3'",
        "uniq_key = '' OR uniq_key IS NULL",
        "queue_id = 2 AND flag < 0",
        "flag IN (-30, -1, 0, 29, 2147483647)",
        "flag > 99999999999",
        "flag = 1.5 OR flag = -7",
        "flag % 2 = 0 AND queue_id >= 1",
        "(queue_id = 1 AND flag > 0) OR (queue_id = 2 AND NOT flag > 0)",
        f"store_timestamp > TIMESTAMPTZ '{LAST_DAY} 00:00:00+00'",
        f"store_timestamp = make_timestamptz({START_MS * 1000 + 3000})",
        f"store_timestamp BETWEEN '{FIRST_DAY}' AND '{LAST_DAY}'",
        f"store_timestamp < TIMESTAMP '{LAST_DAY} 12:00:00.000001'",
        "body = 'body 1 411'::BLOB",
        "body <> ''::BLOB AND body > 'body 3'::BLOB",
        "body = '\\x00\\x27'::BLOB",
        "body_crc > 1000000000",
        "body IS NULL OR body = ''",
        "properties['token'] = 't4'",
        "properties IS NOT NULL AND cardinality(properties) > 1",
        "list_contains(keys, 'a')",
        "keys IS NOT NULL",
        "commit_log_offset = (SELECT max(commit_log_offset) FROM bronze.messages)",
        "queue_id IN (SELECT 2)",
        "true",
        "false",
        "NULL",
        " AND ".join(f"flag <> {number}" for number in range(200)),
        " OR ".join(f"(flag = {number} AND queue_id <> {number})" for number in range(200)),
    ],
)
def test_a_condition_finds_the_same_rows_as_in_the_files(place: LakePlace, condition: str) -> None:
    sql = f"SELECT commit_log_offset, topic FROM bronze.messages WHERE {condition}"

    assert rows_of(run_query(place, sql)) == rows_of(directly(place, sql))
    some = ["orders", "it*"]
    assert rows_of(run_query(place, sql, some)) == rows_of(directly(place, sql, some))


@pytest.mark.parametrize(
    "condition",
    ["body = 'body 1 ***'::BLOB", "body > 'body 1'::BLOB", "body_crc IS NULL", "body_crc > 0"],
)
def test_a_condition_applies_to_masked_values(place: LakePlace, condition: str) -> None:
    masked = run_query(place, "FROM bronze.messages", masks=MASKS)
    with duckdb.connect() as connection:
        connection.register("masked", masked)
        expected = connection.sql(f"FROM masked WHERE {condition}").to_arrow_table()

    found = run_query(place, f"FROM bronze.messages WHERE {condition}", masks=MASKS)

    assert rows_of(found) == rows_of(expected)


def test_doubles_and_booleans_of_samples_can_be_compared(tmp_path: Path) -> None:
    condition = Condition(["at_most_ms", "is_counter"])
    condition.add(nodes.Binary(">", nodes.Col(("at_most_ms",)), nodes.Lit(1.5, "DOUBLE")))
    condition.add(nodes.Binary("=", nodes.Col(("is_counter",)), nodes.Lit(True, "BOOLEAN")))

    assert condition.sql == "(at_most_ms > $1::DOUBLE) AND (is_counter = $2::BOOLEAN)"
    assert condition.values == [1.5, True]


@pytest.mark.parametrize(
    "node",
    [
        nodes.Binary("=", nodes.Col(("body; DROP TABLE x",)), nodes.Lit("a", "VARCHAR")),
        nodes.Binary("=", nodes.Col(("topic", "x")), nodes.Lit("a", "VARCHAR")),
        nodes.Binary("||", nodes.Col(("topic",)), nodes.Lit("a", "VARCHAR")),
        nodes.Binary("=", nodes.Lit("a", "VARCHAR"), nodes.Col(("topic",))),
        nodes.Binary("=", nodes.Col(("topic",)), nodes.Lit("a", "VARCHAR); DROP TABLE x")),
        nodes.Binary("AND", nodes.Col(("topic",)), nodes.Col(("topic",))),
        nodes.Unary("-", nodes.Postfix("IS NULL", nodes.Col(("topic",)))),
        nodes.Postfix("IS NULL; DROP TABLE x", nodes.Col(("topic",))),
        nodes.In(nodes.Col(("topic",)), []),
        nodes.In(nodes.Col(("topic",)), [nodes.Col(("topic",))]),
        nodes.Col(("topic",)),
    ],
)
def test_a_predicate_of_another_kind_is_not_translated_to_sql(node: nodes.Node) -> None:
    with pytest.raises(ValueError, match="no "):
        Condition(["topic", "body"]).add(node)


def test_constants_never_become_text_of_sql() -> None:
    condition = Condition(["topic"])
    for value in ("'; DROP TABLE x; --", "\0", "$1", "\ud800"):
        condition.add(nodes.Binary("=", nodes.Col(("topic",)), nodes.Lit(value, "VARCHAR")))

    assert condition.sql == " AND ".join(f"(topic = ${n}::VARCHAR)" for n in range(1, 5))


def test_conditions_and_columns_reach_the_reader(
    place: LakePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[list[str], str, list[Any]]] = []
    rows = LakeReader.rows

    def noted(
        self: LakeReader, view: View, columns: list[str], condition: Condition, of_day: Condition
    ) -> pa.RecordBatchReader:
        read.append((list(columns), condition.sql, condition.values))
        return rows(self, view, columns, condition, of_day)

    monkeypatch.setattr(LakeReader, "rows", noted)
    run_query(
        place,
        f"SELECT topic, count(*) FROM bronze.messages WHERE day = DATE '{FIRST_DAY}' "
        "AND queue_id IN (1, 2) AND body IS NOT NULL AND topic LIKE '%s' GROUP BY topic",
    )

    ((columns, condition, values),) = read
    assert columns == ["topic"]
    for part in ("(day = $", "(queue_id IN ($", "(body IS NOT NULL)"):
        assert part in condition
    assert set(values) == {FIRST_DAY, 1, 2}


def test_a_day_is_read_only_from_its_files_and_a_missing_file_is_reported(
    tmp_path: Path,
) -> None:
    builder = StoreBuilder(tmp_path / "store")
    for number in range(DAYS):
        builder.put("orders", store_timestamp=START_MS + number * DAY_MS)
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root)
    lake.take_all()
    gone = next((lake.directory / "bronze" / "messages").glob(f"day={FIRST_DAY}/*.parquet"))
    gone.write_bytes(b"PAR1 is all that is left")

    of_a_day = f"SELECT count(*) AS n FROM bronze.messages WHERE day = DATE '{LAST_DAY}'"
    assert run_query(lake.place, of_a_day).to_pylist() == [{"n": 1}]
    gone.unlink()
    with pytest.raises(LakeError) as failed:
        run_query(lake.place, "SELECT max(topic) FROM bronze.messages")

    assert str(failed.value) == UNREADABLE


def test_a_damaged_table_is_reported_in_one_sentence(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(3)
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root)
    lake.take_all()
    for commit in (lake.directory / "bronze" / "messages" / "_delta_log").glob("*.json"):
        commit.write_text("{")

    with pytest.raises(LakeError) as failed:
        run_query(lake.place, "SELECT max(topic) FROM bronze.messages")

    assert str(failed.value) == UNREADABLE


def test_a_table_may_be_scanned_several_times_at_once(place: LakePlace) -> None:
    sql = (
        "SELECT count(*) AS n FROM bronze.messages a JOIN bronze.messages b USING (topic) "
        "JOIN (FROM bronze.messages LIMIT 5) c USING (topic)"
    )

    assert run_query(place, sql).to_pylist() == directly(place, sql).to_pylist()
    unions = " UNION ALL ".join(["SELECT topic FROM bronze.messages"] * 40)
    assert run_query(place, unions).num_rows == 40 * 60


def test_progress_goes_up_to_100(place: LakePlace) -> None:
    engine = Engine(place, views_of(place), "UTC")
    assert engine.progress() == 0
    with engine.reader("FROM bronze.messages") as reader:
        reader.read_all()

        assert engine.progress() == 100
