"""SQL over a lake: what is answered, what is refused, and in how much room."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from analytics.lake.gold_tables import EVERY_TABLE
from analytics.lake.place import LakePlace
from analytics.query import engine as engine_module
from analytics.query.checking import QueryError
from analytics.query.engine import Engine
from analytics.query.views import views_of
from tests.analytics.lake.lakes import Lake
from tests.analytics.store_builder import StoreBuilder
from tests.support.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SECONDS_MAX = 120
TOO_LARGE = "SELECT list(range) FROM range(1000000000)"


class Asked:
    """One query, run by the program in a process of its own."""

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
    made.bring_up()
    return made.directory


def test_a_query_answers_in_json_lines_and_parquet(lake: Path, tmp_path: Path) -> None:
    asked = Asked(
        lake,
        tmp_path,
        "SELECT topic, count(*) AS sent FROM bronze.messages GROUP BY topic ORDER BY sent DESC;",
    )

    assert asked.rows == [["orders", 20], ["bills", 10]]
    assert [(each["name"], each["kind"]) for each in asked.last["columns"]] == [
        ("topic", "text"),
        ("sent", "integer"),
    ]
    assert (asked.last["rows"], asked.last["cut"]) == (2, "")
    assert pq.read_table(asked.parquet)["sent"].to_pylist() == [20, 10]


def test_no_value_loses_anything_in_json(lake: Path, tmp_path: Path) -> None:
    asked = Asked(
        lake,
        tmp_path,
        "SELECT 9223372036854775807 AS a, sum(9223372036854775807) AS b, NULL AS c, "
        "'nan'::DOUBLE AS d, '2026-11-22 10:00:00.000001+02'::TIMESTAMPTZ AS e, "
        "'\\xAA'::BLOB AS f, MAP {'k': [1, 2]} AS g, 1.50::DECIMAL(10, 2) AS h FROM range(2)",
        zone="Europe/Berlin",
    )

    assert asked.rows == [
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
def test_gold_answers_with_one_row_for_what_adds_up(
    lake: Path, tmp_path: Path, topics: list[str] | None
) -> None:
    asked = Asked(
        lake,
        tmp_path,
        "SELECT topic, messages, minute FROM gold.traffic_minute ORDER BY messages DESC",
        topics=topics,
    )

    assert [row[:2] for row in asked.rows] == [["orders", 20], ["bills", 10]][: len(asked.rows)]
    assert len(asked.rows) == (2 if topics is None else 1)
    assert asked.last["columns"][2]["kind"] == "moment"


def test_a_table_without_rows_yet_can_be_asked(lake: Path, tmp_path: Path) -> None:
    assert Asked(lake, tmp_path, "SELECT * FROM bronze.gaps").last["rows"] == 0


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("SELECT 1; SELECT 2", "One SELECT is run"),
        ("DROP VIEW bronze.messages", "One SELECT is run"),
        ("COPY (SELECT 1) TO '/tmp/taken'", "One SELECT is run"),
        ("ATTACH '/tmp/other.db'", "One SELECT is run"),
        ("SET memory_limit = '9GB'", "One SELECT is run"),
        ("INSTALL httpfs", "One SELECT is run"),
        ("FROM read_text('/etc/passwd')", "read_text() is not run"),
        ("FROM (FROM glob('/*'))", "glob() is not run"),
        ("SELECT (SELECT count(*) FROM duckdb_settings())", "duckdb_settings() is not run"),
        ("FROM query('FROM duckdb_views()')", "query() is not run"),
        ("FROM '/etc/passwd'", "There is no table /etc/passwd."),
        ("FROM bronze_messages_source", "There is no table bronze_messages_source."),
        ("FROM information_schema.tables", "There is no table information_schema.tables."),
        ("SHOW TABLES", "SHOW is not run"),
        ("SELECT 1 FRM x", 'at or near "x" in line 1'),
        ("SELECT topc FROM bronze.messages", 'Referenced column "topc" not found'),
        # A name of WITH is one only where it is seen: elsewhere it would be DuckDB's own table.
        ("FROM (WITH duckdb_views AS (SELECT 1) FROM duckdb_views), duckdb_views", "no table duck"),
        ("WITH a AS (FROM duckdb_views), duckdb_views AS (SELECT 1) FROM a", "no table duckdb_v"),
        ("WITH duckdb_views AS (FROM duckdb_views) FROM duckdb_views", "no table duckdb_views"),
        ('WITH "duc\u212adb_views" AS (SELECT 1) FROM duckdb_views', "no table duckdb_views"),
        ('WITH "bronze.x" AS (SELECT 1) FROM bronze.x', "There is no table bronze.x."),
        ("SELECT current_setting('allowed_paths')", "current_setting() is not run"),
        ("", "There is no query"),
        ("SELECT '" + "x" * 20_000 + "'", "20000 may be"),
        (TOO_LARGE, "needs more memory"),
    ],
)
def test_what_is_not_answered_is_refused_in_one_sentence(
    lake: Path, sql: str, sentence: str
) -> None:
    place = LakePlace.of(str(lake), None, {})
    engine = Engine(place, views_of(place), "UTC")

    with pytest.raises(QueryError) as refused, engine.reader(sql) as reader:
        reader.read_all()

    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith(".")


def test_a_name_of_with_is_read_where_it_is_seen(lake: Path, tmp_path: Path) -> None:
    asked = Asked(
        lake,
        tmp_path,
        "WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < 3),"
        " Twice AS (SELECT 2 * n AS n FROM numbers)"
        " SELECT sum(n), (SELECT count(*) FROM TWICE) FROM twice",
    )

    assert asked.rows == [[12, 3]]


def rows_for(lake: Path, topics: list[str], sql: str) -> list[dict[str, Any]]:
    """Return what somebody is answered who may read these topics."""
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
def test_who_may_read_some_topics_sees_their_rows_alone(
    lake: Path, topics: list[str], counts: dict[str, int], table: str
) -> None:
    value = "count(*)" if table == "bronze.messages" else "sum(messages)"

    found = rows_for(lake, topics, f"SELECT topic, {value} AS sent FROM {table} GROUP BY topic")

    assert {row["topic"]: row["sent"] for row in found} == counts


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        # Tables that do not say which topic a row is of.
        ("FROM bronze.gaps", "There is no table bronze.gaps"),
        ("FROM bronze.forgotten", "There is no table bronze.forgotten"),
        ("FROM memory.bronze.messages", "There is no table memory.bronze.messages"),
        ("FROM read_parquet('{file}')", "read_parquet() is not run"),
        ("FROM '{file}'", "There is no table"),
        ("WITH \"{file}\" AS (SELECT 1) SELECT * FROM (SELECT 1), '{file}'", None),
        ("FROM (WITH \"{file}\" AS (SELECT 1) SELECT 1), '{file}'", "There is no table"),
        ("FROM information_schema.tables", "There is no table information_schema.tables"),
        ("FROM duckdb_views", "There is no table duckdb_views"),
        ("FROM given", "There is no table given"),
        ("FROM parquet_metadata('{file}')", "parquet_metadata() is not run"),
        ("PRAGMA show_tables", "is run"),
        ("PRAGMA table_info('bronze.messages')", "is run"),
        ("ATTACH '{file}' AS other", "One SELECT is run"),
        ("EXPLAIN FROM bronze.messages", "One SELECT is run"),
        ("CREATE VIEW x AS FROM bronze.messages", "One SELECT is run"),
    ],
)
def test_no_trick_reads_what_is_not_in_the_view(lake: Path, sql: str, sentence: str | None) -> None:
    file = next((lake / "bronze" / "messages").glob("*/*.parquet"))
    if sentence is None:
        # A name of the query's own is no file.
        assert len(rows_for(lake, ["bills"], sql.format(file=file))) == 1
        return

    with pytest.raises(QueryError, match=re.escape(sentence)):
        rows_for(lake, ["bills"], sql.format(file=file))


def test_a_view_of_the_querys_own_hides_nothing_of_ours(lake: Path) -> None:
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
def test_a_filter_is_never_tried_on_what_is_not_in_the_view(lake: Path, filters: str) -> None:
    """DuckDB may try the query's filter on a row before the view's; its error would tell."""
    found = rows_for(lake, ["bills"], f"SELECT topic FROM bronze.messages WHERE {filters}")

    assert [row["topic"] for row in found] == ["bills"] * 10


def test_a_refusal_is_an_event(lake: Path, tmp_path: Path) -> None:
    asked = Asked(lake, tmp_path, "FROM read_text('/etc/passwd')")

    assert asked.failure.startswith("read_text() is not run")
    assert (asked.code, asked.rows) == (1, [])


@pytest.mark.parametrize(
    ("changed", "cut", "count"),
    [({"rows_max": 10}, "rows", 10), ({"bytes_max": 20}, "bytes", 5)],
)
def test_a_result_ends_at_its_limit_and_says_so(
    lake: Path, tmp_path: Path, changed: dict[str, int], cut: str, count: int
) -> None:
    # Lines of four bytes.
    asked = Asked(lake, tmp_path, "SELECT range % 10 FROM range(5000)", **changed)

    assert asked.last["cut"] == cut
    assert len(asked.rows) == asked.last["rows"] == count
    assert pq.read_metadata(asked.parquet).num_rows == count


@pytest.mark.parametrize(
    "sql",
    [
        "FROM read_text('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/taken'",
        "ATTACH '/tmp/other.db'",
        "SET threads = 9",
        "SET enable_external_access = true",
        "INSTALL httpfs",
    ],
)
def test_the_lock_holds_where_the_check_would_not(
    lake: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    """DuckDB itself opens no other file and changes no setting, whatever reaches it."""
    place = LakePlace.of(str(lake), None, {})
    engine = Engine(place, views_of(place), "UTC")
    monkeypatch.setattr(engine_module, "check", lambda _connection, text, _views: text)

    with pytest.raises(QueryError, match=r"disabled by configuration|has been locked"):
        with engine.reader(sql) as reader:
            reader.read_all()


def test_the_query_ends_with_whoever_asked(lake: Path, tmp_path: Path) -> None:
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
            process.stdout.readline()  # it says how far it is: it runs
            process.stdin.close()

            assert process.wait(SECONDS_MAX) == 1


def test_a_lake_that_is_none_has_no_tables(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "analytics.query", "--describe", "--lake", str(tmp_path / "none")],
        cwd=ROOT,
        capture_output=True,
        timeout=SECONDS_MAX,
    )

    assert json.loads(said.stdout) == {"tables": []}


def test_tables_are_described_with_their_columns(lake: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "analytics.query", "--describe", "--lake", str(lake)],
        cwd=ROOT,
        capture_output=True,
        timeout=SECONDS_MAX,
    )

    messages, *others = json.loads(said.stdout)["tables"]
    assert messages["name"] == "bronze.messages"
    assert {
        "name": "store_timestamp",
        "type": "TIMESTAMPTZ",
        "description": "when the broker stored it",
    } in messages["columns"]
    assert [messages["name"], *(each["name"] for each in others)] == [
        table.name for table in EVERY_TABLE
    ]
    assert not [each for each in (messages, *others) if not each["description"]]
