"""SQL over a lake: answers, rejections and resource limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from analytics.lake.gold_tables import EVERY_TABLE
from analytics.lake.place import LakePlace
from analytics.query import engine as engine_module
from analytics.query.engine import Engine
from analytics.query.validation import QueryError
from analytics.query.views import views_of
from tests.analytics.lake.lakes import Lake
from tests.analytics.store_builder import StoreBuilder
from tests.support.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SECONDS_MAX = 120
TOO_LARGE = "SELECT list(range) FROM range(1000000000)"


class QueryRun:
    """One query, run by the program in a separate process."""

    def __init__(self, lake: Path, directory: Path, sql: str, **changed: Any) -> None:
        request = {
            "sql": sql,
            "zone": "UTC",
            "rows_max": 1_000,
            "bytes_max": 1 << 20,
            "seconds_max": 60,
            "topics": None,
            "masks": [],
        } | changed
        rows_path, self.parquet = directory / "rows.jsonl", directory / "rows.parquet"
        with rows_path.open("wb") as rows_file, self.parquet.open("wb") as parquet_file:
            descriptors = (rows_file.fileno(), parquet_file.fileno())
            with subprocess.Popen(
                [
                    *(sys.executable, "-m", "analytics.query", "--lake", str(lake)),
                    *("--rows-fd", str(descriptors[0]), "--parquet-fd", str(descriptors[1])),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=descriptors,
                cwd=ROOT,
            ) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
                events = [json.loads(line) for line in process.stdout]
                process.stdin.close()
                self.code = process.wait(SECONDS_MAX)
        self.last = events[-1]
        self.rows = [json.loads(line) for line in rows_path.read_bytes().splitlines()]

    @property
    def failure(self) -> str:
        assert self.last["event"] == "failed"
        return str(self.last["message"])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("asked")
    builder = StoreBuilder(directory / "store").put_many(30, ("orders", "orders", "bills"))
    builder.write()
    made = Lake(directory / "lake", builder.root)
    made.take_all()
    made.catch_up()
    return made.directory


def test_a_query_returns_json_lines_and_parquet(lake: Path, tmp_path: Path) -> None:
    result = QueryRun(
        lake,
        tmp_path,
        "SELECT topic, count(*) AS sent FROM bronze.messages GROUP BY topic ORDER BY sent DESC;",
    )

    assert result.rows == [["orders", 20], ["bills", 10]]
    assert [(each["name"], each["kind"]) for each in result.last["columns"]] == [
        ("topic", "text"),
        ("sent", "integer"),
    ]
    assert (result.last["rows"], result.last["cut"]) == (2, "")
    assert pq.read_table(result.parquet)["sent"].to_pylist() == [20, 10]


def test_no_value_is_changed_by_json(lake: Path, tmp_path: Path) -> None:
    result = QueryRun(
        lake,
        tmp_path,
        "SELECT 9223372036854775807 AS a, sum(9223372036854775807) AS b, NULL AS c, "
        "'nan'::DOUBLE AS d, '2026-11-22 10:00:00.000001+02'::TIMESTAMPTZ AS e, "
        "'\\xAA'::BLOB AS f, MAP {'k': [1, 2]} AS g, 1.50::DECIMAL(10, 2) AS h FROM range(2)",
        zone="Europe/Berlin",
    )

    assert result.rows == [
        [
            9223372036854775807,
            18446744073709551614,
            None,
            "nan",
            "2026-11-22T08:00:00.000001Z",
            "aa",
            {"k": [1, 2]},
            "1.50",
        ]
    ]


@pytest.mark.parametrize("topics", [None, ["orders"]])
def test_gold_returns_one_row_for_summable_values(
    lake: Path, tmp_path: Path, topics: list[str] | None
) -> None:
    result = QueryRun(
        lake,
        tmp_path,
        "SELECT topic, messages, minute FROM gold.traffic_minute ORDER BY messages DESC",
        topics=topics,
    )

    assert [row[:2] for row in result.rows] == [["orders", 20], ["bills", 10]][: len(result.rows)]
    assert len(result.rows) == (2 if topics is None else 1)
    assert result.last["columns"][2]["kind"] == "moment"


def test_a_table_without_rows_can_be_queried(lake: Path, tmp_path: Path) -> None:
    assert QueryRun(lake, tmp_path, "SELECT * FROM bronze.gaps").last["rows"] == 0


TOO_DEEP = "The query is nested too deeply. Split it into several parts with WITH."


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        (
            "SELECT 1; SELECT 2",
            "Only a single SELECT statement is allowed. The lake is read-only here.",
        ),
        (
            "FROM read_csv('/etc/passwd')",
            "read_csv() isn't allowed. Queries can read lake tables and use generate_series, "
            "range, repeat, repeat_row and unnest.",
        ),
        ("SELECT current_setting('threads')", "current_setting() isn't allowed in a query."),
        (
            "SELECT cout(*) FROM bronze.messages",
            "cout() isn't allowed in a query. Did you mean count()?",
        ),
        ("FROM 'x.csv'", "There's no table x.csv. The lake has bronze.events, bronze.forgotten, "),
        (
            'WITH "x.csv" AS (SELECT 1) FROM "x.csv"',
            '"x.csv" can\'t be the name of a table in a query. Use letters, digits, _, $, - and '
            "spaces.",
        ),
        (
            "WITH pg_class AS (SELECT 1) FROM pg_class",
            '"pg_class" can\'t be the name of a table in a query. DuckDB reserves it.',
        ),
        (
            "WITH a AS (FROM later), later AS (SELECT 1) FROM a",
            "Table with name later does not exist.",
        ),
        (
            "SHOW TABLES",
            "SHOW and DESCRIBE aren't allowed. The tables and their columns are listed beside the "
            "query.",
        ),
        (
            "SELECT $1",
            "A query can't have parameters such as ? or $1. Write the value instead.",
        ),
        ("SELECT sum(range) EXPORT_STATE FROM range(1)", "EXPORT_STATE isn't allowed."),
        ("SELECT 1 FRM x", 'at or near "x" in line 1'),
        ("SELECT topc FROM bronze.messages", 'Referenced column "topc" not found'),
        ("", "There's no query to run. Enter a SELECT statement."),
        ("-- only a comment", "There's no query to run. Enter a SELECT statement."),
        ("SELECT '\0'", "The query contains a character that isn't text, such as NUL. Remove it."),
        ("SELECT '\ud800'", "The query contains a character that isn't text, such as NUL."),
        (
            "SELECT '" + "x" * 20_000 + "'",
            "The query has 20,009 characters, and 20,000 are allowed. Shorten it.",
        ),
        ("SELECT " + "+".join(["1"] * 900), TOO_DEEP),
        ("SELECT " + "+".join(["1"] * 9_000), TOO_DEEP),
        ("SELECT " + "NOT " * 900 + "true", TOO_DEEP),
        ("SELECT " + "[" * 300 + "1" + "]" * 300, "Recursion level"),
        (
            TOO_LARGE,
            "The query needs more memory than is allowed. Select fewer columns, a shorter time "
            "range, or aggregates instead of rows.",
        ),
    ],
)
def test_a_rejected_or_failed_query_explains_why_in_one_line(
    lake: Path, sql: str, sentence: str
) -> None:
    with pytest.raises(QueryError) as refused, engine_of(lake).reader(sql) as reader:
        reader.read_all()

    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith((".", "?"))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT date_trunc('hour', store_timestamp), count(*) FROM bronze.messages GROUP BY 1",
        "SELECT time_bucket(INTERVAL '15 minutes', store_timestamp), count(*) FROM bronze.messages "
        "GROUP BY ALL ORDER BY ALL",
        "SELECT store_timestamp AT TIME ZONE 'Asia/Shanghai', extract(hour FROM store_timestamp), "
        "store_timestamp - born_timestamp, epoch_ms(store_timestamp) FROM bronze.messages",
        "FROM bronze.messages WHERE store_timestamp > now() - INTERVAL 3 DAY OR day = current_date",
        "FROM bronze.messages WHERE topic LIKE 'o%' AND topic NOT ILIKE '%7' AND topic ~ 'o' AND "
        "tags SIMILAR TO 'o.*' AND tags !~ 'x' AND topic GLOB 'o*' AND tags LIKE 'p%' ESCAPE '!'",
        "SELECT quantile_cont(store_size, [0.5, 0.99]), approx_quantile(store_size, 0.9), "
        "median(store_size), mode(topic), percentile_cont(0.5) WITHIN GROUP (ORDER BY store_size) "
        "FROM bronze.messages",
        "SELECT topic, row_number() OVER (PARTITION BY topic ORDER BY store_timestamp DESC) AS n "
        "FROM bronze.messages QUALIFY n <= 2",
        "SELECT lag(topic) OVER w, first_value(topic IGNORE NULLS) OVER w, sum(store_size) FILTER "
        "(true) OVER w FROM bronze.messages WINDOW w AS (ORDER BY day ROWS 3 PRECEDING)",
        "SELECT keys[1], keys[1:2], len(keys), list_contains(keys, 'a'), list_sort(keys), "
        "[each || '!' FOR each IN keys IF each <> ''] FROM bronze.messages",
        "SELECT properties['TAGS'], map_keys(properties), cardinality(properties), "
        "element_at(properties, 'TAGS') FROM bronze.messages",
        "SELECT decode(body)::JSON ->> '$.a', json_extract_string(decode(body), '$.a') "
        "FROM bronze.messages WHERE json_valid(decode(body))",
        "SELECT key, count(*) FROM bronze.messages AS m, unnest(m.keys) AS k(key) GROUP BY key",
        "SELECT a.topic FROM bronze.messages a JOIN bronze.messages b USING (uniq_key, day)",
        "SELECT * FROM bronze.messages SEMI JOIN gold.traffic_minute USING (topic)",
        "SELECT m.topic FROM bronze.messages m ASOF JOIN gold.traffic_minute t "
        "ON m.topic = t.topic AND m.store_timestamp >= t.minute",
        "SELECT * FROM bronze.messages m WHERE store_size = (SELECT max(store_size) "
        "FROM bronze.messages i WHERE i.topic = m.topic)",
        "SELECT GROUPING(topic), topic, count(*) FROM bronze.messages GROUP BY CUBE (topic)",
        "SELECT * FROM (SELECT topic, queue_id FROM bronze.messages) "
        "PIVOT (count(*) FOR queue_id IN (0, 1))",
        "FROM (UNPIVOT (SELECT 1 AS a, 2 AS b) ON a, b INTO NAME n VALUE v)",
        "SELECT DISTINCT ON (topic) topic, day FROM bronze.messages ORDER BY topic, day DESC",
        "SELECT * EXCLUDE (body) REPLACE (upper(topic) AS topic) RENAME (tags AS label) "
        "FROM bronze.messages LIMIT 10%",
        "SELECT COLUMNS('.*size'), COLUMNS(lambda c: c LIKE '%id') FROM bronze.messages",
        "FROM bronze.messages TABLESAMPLE 5 ROWS",
        "TABLE gold.keys_day",
        "SUMMARIZE gold.traffic_minute",
        "DESCRIBE SELECT * FROM gold.traffic_minute",
        "VALUES (1, 'a'), (2, 'b')",
        "(SELECT 1 UNION SELECT 2) EXCEPT SELECT 1",
        "SELECT * FROM range(3) r(n) LEFT JOIN (SELECT 1 AS n) USING (n)",
        "SELECT {'a': [1, 2]}.a[1], MAP {'a': 1}['a'], [1] || [2], 5 // 2, 2 ** 3, ~1, @ -1, 5!",
        "SELECT substring('abc' FROM 2 FOR 1), position('b' IN 'abc'), trim(BOTH 'a' FROM 'aba'), "
        "overlay('abc' PLACING 'x' FROM 2), 'abc'.upper().reverse(), 'abc' ^@ 'a'",
        "SELECT list_filter([1, 2], lambda x: x > 1), list_reduce([1, 2], lambda a, b: a + b)",
        "SELECT EXISTS (SELECT 1), 1 IN (SELECT 1), 1 = ANY ([1]), ARRAY(SELECT 1), TRY(1 / 0), "
        "TRY_CAST('x' AS INTEGER), CASE WHEN true THEN 1 END, coalesce(NULL, 1), nullif(1, 1)",
        "SELECT 'a' COLLATE NOCASE = 'A', DATE '2026-01-01' + 1, strftime(now(), '%Y'), uuid()",
        'WITH "my orders" AS (SELECT 1 AS "msgs/s") SELECT "msgs/s" FROM "my orders"',
        "WITH \u8ba2\u5355 AS (SELECT 1 AS \u6570\u91cf) SELECT \u6570\u91cf FROM \u8ba2\u5355",
        "WITH messages AS (SELECT 1) FROM messages, bronze.messages",
        "SELECT count(*) FROM bronze.messages WHERE " + " OR ".join(["queue_id <> 7"] * 800),
        "SELECT ';' -- and a comment; with a semicolon",
    ],
)
def test_duckdbs_read_functions_are_allowed(lake: Path, sql: str) -> None:
    with engine_of(lake).reader(sql) as reader:
        reader.read_all()


def test_a_name_bound_by_with_is_read_where_it_is_visible(lake: Path, tmp_path: Path) -> None:
    result = QueryRun(
        lake,
        tmp_path,
        "WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < 3),"
        " Twice AS (SELECT 2 * n AS n FROM numbers)"
        " SELECT sum(n), (SELECT count(*) FROM TWICE) FROM twice",
    )

    assert result.rows == [[12, 3]]


def engine_of(lake: Path) -> Engine:
    place = LakePlace.of(str(lake), None, {})
    return Engine(place, views_of(place), "UTC")


def rows_for(lake: Path, topics: list[str], sql: str) -> list[dict[str, Any]]:
    """Return the rows for a user who can read these topics."""
    place = LakePlace.of(str(lake), None, {})
    with Engine(place, views_of(place, topics), "UTC").reader(sql) as reader:
        found: list[dict[str, Any]] = reader.read_all().to_pylist()
    return found


@pytest.mark.parametrize(
    ("topics", "counts"),
    [
        (["orders"], {"orders": 20}),
        (["ord*", "nothing"], {"orders": 20}),
        (["*s"], {"orders": 20, "bills": 10}),
        (["?rders", "[o]rder*"], {}),
        ([], {}),
    ],
)
@pytest.mark.parametrize("table", ["bronze.messages", "gold.traffic_minute"])
def test_a_user_limited_to_topics_only_sees_their_rows(
    lake: Path, topics: list[str], counts: dict[str, int], table: str
) -> None:
    value = "count(*)" if table == "bronze.messages" else "sum(messages)"

    found = rows_for(lake, topics, f"SELECT topic, {value} AS sent FROM {table} GROUP BY topic")

    assert {row["topic"]: row["sent"] for row in found} == counts


def test_a_view_defined_by_the_query_hides_none_of_ours(lake: Path) -> None:
    found = rows_for(
        lake,
        ["bills"],
        "WITH messages AS (SELECT 'mine' AS topic), given AS (SELECT 1) "
        "SELECT topic FROM messages UNION SELECT topic FROM bronze.messages ORDER BY topic",
    )

    assert [row["topic"] for row in found] == ["bills", "mine"]


@pytest.mark.parametrize(
    "filters",
    [
        "CASE WHEN topic <> 'bills' THEN error(topic) ELSE true END",
        "CASE WHEN uniq_key IS NOT NULL AND topic IS NULL THEN error('seen') ELSE true END",
        "(topic = 'bills' OR CAST(topic AS INTEGER) > 0)",
    ],
)
def test_a_filter_is_never_evaluated_on_rows_outside_the_view(lake: Path, filters: str) -> None:
    """DuckDB may apply the query's filter to a row before the view's; errors would show data."""
    found = rows_for(lake, ["bills"], f"SELECT topic FROM bronze.messages WHERE {filters}")

    assert [row["topic"] for row in found] == ["bills"] * 10


def test_a_rejection_is_an_event(lake: Path, tmp_path: Path) -> None:
    result = QueryRun(lake, tmp_path, "FROM read_text('/etc/passwd')")

    assert result.failure.startswith("read_text() isn't allowed.")
    assert (result.code, result.rows) == (1, [])


@pytest.mark.parametrize(
    ("changed", "cut", "count"),
    [({"rows_max": 10}, "rows", 10), ({"bytes_max": 20}, "bytes", 5)],
)
def test_a_result_is_cut_at_its_limit_and_marked(
    lake: Path, tmp_path: Path, changed: dict[str, int], cut: str, count: int
) -> None:
    # Lines of four bytes.
    result = QueryRun(lake, tmp_path, "SELECT range % 10 FROM range(5000)", **changed)

    assert result.last["cut"] == cut
    assert len(result.rows) == result.last["rows"] == count
    assert pq.read_metadata(result.parquet).num_rows == count


@pytest.mark.parametrize(
    "sql",
    [
        "FROM read_text('/etc/passwd')",
        "FROM read_parquet('{file}')",
        "FROM '{file}'",
        "COPY (SELECT 1) TO '/tmp/taken'",
        "ATTACH '/tmp/other.db'",
        "SET threads = 9",
        "SET enable_external_access = true",
        "SET allowed_paths = ['{file}']",
        "INSTALL httpfs",
    ],
)
def test_without_the_checks_duckdb_opens_no_file_and_keeps_its_settings(
    lake: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    file = next((lake / "bronze" / "messages").glob("*/*.parquet"))
    engine = engine_of(lake)
    monkeypatch.setattr(engine_module, "check", lambda _connection, text, _tables: text)

    with pytest.raises(QueryError, match=r"disabled by configuration|has been locked"):
        with engine.reader(sql.format(file=file)) as reader:
            reader.read_all()


def test_the_query_ends_with_its_client(lake: Path, tmp_path: Path) -> None:
    endless = "SELECT max(hash(a.range + b.range)) FROM range(10000000) a, range(10000000) b"
    with (tmp_path / "rows").open("wb") as file:
        number = str(file.fileno())
        with subprocess.Popen(
            [
                *(sys.executable, "-m", "analytics.query", "--lake", str(lake)),
                *("--rows-fd", number, "--parquet-fd", str(os.dup(file.fileno()))),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(file.fileno(),),
            cwd=ROOT,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            request = {"sql": endless, "zone": "UTC", "rows_max": 1, "bytes_max": 1_000_000}
            process.stdin.write(
                json.dumps({**request, "seconds_max": 600, "topics": None}).encode() + b"\n"
            )
            process.stdin.flush()
            process.stdout.readline()  # a progress report means that it's running
            process.stdin.close()

            assert process.wait(SECONDS_MAX) == 1


def test_an_invalid_lake_has_no_tables(tmp_path: Path) -> None:
    output = subprocess.run(
        [sys.executable, "-m", "analytics.query", "--describe", "--lake", str(tmp_path / "none")],
        cwd=ROOT,
        capture_output=True,
        timeout=SECONDS_MAX,
    )

    assert json.loads(output.stdout) == {"tables": []}


def test_tables_are_described_with_their_columns(lake: Path) -> None:
    output = subprocess.run(
        [sys.executable, "-m", "analytics.query", "--describe", "--lake", str(lake)],
        cwd=ROOT,
        capture_output=True,
        timeout=SECONDS_MAX,
    )

    messages, *others = json.loads(output.stdout)["tables"]
    assert messages["name"] == "bronze.messages"
    assert {
        "name": "store_timestamp",
        "type": "TIMESTAMPTZ",
        "description": "when the broker stored the message",
    } in messages["columns"]
    assert [messages["name"], *(each["name"] for each in others)] == [
        table.name for table in EVERY_TABLE
    ]
    assert not [each for each in (messages, *others) if not each["description"]]
