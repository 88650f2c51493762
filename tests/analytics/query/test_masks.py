"""Masking in SQL: no query gets around the rules."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from analytics.lake.bodies import BodyRule, BodyRules
from analytics.lake.masks import Mask, add_hiding, masked_columns
from analytics.lake.place import LakePlace
from analytics.query.engine import Engine
from analytics.query.validation import QueryError
from analytics.query.views import views_of
from broker_core.message.sys_flag import COMPRESSED_FLAG
from tests.analytics.lake.lakes import Lake
from tests.analytics.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

CARD, NAME, TOKEN = "4111222233334444", "Ann Example", "t0ken-of-ann"
BODY = f'{{"card": "{CARD}", "who": "{NAME}", "pin": 7}}'.encode()
PROPERTIES = f"token\x01{TOKEN}\x02note\x01paid by {CARD}\x02KEYS\x01K-1\x02".encode()
COPY = PROPERTIES + b"RETRY_TOPIC\x01orders\x02"
MASKS = (
    Mask(("ord*",), "pattern", "4111[0-9]{12}"),
    Mask(("orders", "bills"), "property", "token"),
    Mask(("bills",), "path", "$.who"),
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("masked")
    builder = StoreBuilder(directory / "store")
    builder.put("orders", body=BODY, properties=PROPERTIES)
    builder.put("bills", body=BODY, properties=PROPERTIES)
    builder.put("%RETRY%billing", body=BODY, properties=COPY)
    builder.put("orders", body=zlib.compress(BODY), properties=b"", sys_flag=COMPRESSED_FLAG)
    builder.put("orders", body=b"\xff" + CARD.encode(), properties=b"")
    builder.put("plain", body=BODY, properties=PROPERTIES)
    builder.write()
    kept = ("orders", "bills", "%RETRY%billing", "plain")
    made = Lake(directory / "lake", builder.root, rules=BodyRules(dict.fromkeys(kept, BodyRule())))
    made.take_all()
    made.catch_up()
    return made.directory


def run_query(lake: Path, sql: str) -> list[dict[str, Any]]:
    place = LakePlace.of(str(lake), None, {})
    with Engine(place, views_of(place, None, MASKS), "UTC").reader(sql) as reader:
        found: list[dict[str, Any]] = reader.read_all().to_pylist(maps_as_pydicts="lossy")
    return found


def test_sql_shows_messages_like_pages(lake: Path) -> None:
    rows = run_query(lake, "SELECT * FROM bronze.messages ORDER BY commit_log_offset")

    masked = BODY.replace(CARD.encode(), b"***")
    assert [row["body"] for row in rows] == [masked, b"***", masked, b"***", b"***", BODY]
    hidden = {"token": "***", "note": "paid by ***", "KEYS": "K-1"}
    assert rows[0]["properties"] == hidden
    assert rows[1]["properties"] == hidden | {"note": f"paid by {CARD}"}
    assert rows[2]["properties"] == hidden | {"RETRY_TOPIC": "orders"}
    assert [row["body_crc"] is None for row in rows] == [True] * 5 + [False]


IN_BODY = "(SELECT * FROM bronze.messages WHERE topic <> 'plain')"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT body AS harmless, properties AS p FROM {IN_BODY}",
        f"SELECT found.body, found.properties FROM {IN_BODY} AS found",
        f"SELECT decode(body), CAST(body AS VARCHAR), hex(body), base64(body) FROM {IN_BODY}",
        f"SELECT substr(CAST(body AS VARCHAR), 11, 16), body[11:27] FROM {IN_BODY}",
        f"SELECT reverse(CAST(body AS VARCHAR)) FROM {IN_BODY}",
        "SELECT try_cast(try(decode(body)) AS JSON)->>'$.who', "
        f"try_cast(try(decode(body)) AS JSON)->>'$.card' FROM {IN_BODY}",
        f"SELECT to_json(m) FROM {IN_BODY} AS m",
        f"SELECT m FROM {IN_BODY} AS m",
        f"SELECT struct_pack(*COLUMNS(*)) FROM {IN_BODY}",
        f"SELECT COLUMNS('b.*') FROM {IN_BODY}",
        f"SELECT properties['token'], properties['note'] FROM {IN_BODY}",
        f"SELECT map_values(properties), map_entries(properties) FROM {IN_BODY}",
        f"SELECT unnest(map_values(properties)) FROM {IN_BODY}",
        f"SELECT list(body), string_agg(decode(body)), any_value(properties), min(body), "
        f"max(body), arg_max(body, queue_id), histogram(body) FROM {IN_BODY}",
        "SELECT a.body FROM bronze.messages a JOIN bronze.messages b USING (commit_log_offset) "
        "WHERE a.topic <> 'plain'",
        f"WITH given AS (FROM {IN_BODY}), found AS (FROM given) SELECT body, properties FROM found",
        "WITH RECURSIVE r AS (SELECT body, 1 AS n FROM bronze.messages WHERE topic <> 'plain' "
        "UNION ALL SELECT body, n + 1 FROM r WHERE n < 2) SELECT * FROM r",
        f"SELECT lag(body) OVER (ORDER BY commit_log_offset), body FROM {IN_BODY}",
        f"SELECT topic, first(body) FILTER (topic = 'orders') FROM {IN_BODY} GROUP BY topic",
        f"SELECT (SELECT body FROM {IN_BODY} LIMIT 1), ARRAY(SELECT body FROM {IN_BODY})",
    ],
)
def test_no_form_of_a_query_shows_hidden_data(lake: Path, sql: str) -> None:
    # A pattern rule doesn't cover bills, and a path rule doesn't cover orders.
    of_orders = repr(run_query(lake, sql.replace("<> 'plain'", "= 'orders'")))
    for secret in (CARD, CARD.encode().hex(), CARD[::-1], TOKEN):
        assert secret.upper() not in of_orders.upper()
    of_bills = repr(run_query(lake, sql.replace("<> 'plain'", "= 'bills'")))
    for secret in (NAME, NAME.encode().hex(), NAME[::-1], TOKEN):
        assert secret.upper() not in of_bills.upper()


@pytest.mark.parametrize(
    "condition",
    [
        f"decode(body) LIKE '%{CARD}%'",
        f"contains(CAST(body AS VARCHAR), '{CARD[:6]}')",
        f"regexp_matches(try(decode(body)), '{CARD}')",
        f"properties['token'] = '{TOKEN}'",
        f"properties['note'] = 'paid by {CARD}'",
        f"list_contains(map_values(properties), '{TOKEN}')",
        f"md5(body) = md5('{BODY.decode()}'::BLOB)",
        f"body = '{BODY.decode()}'::BLOB",
        f"body_crc = {zlib.crc32(BODY) & 0x7FFFFFFF}",
        "body_crc IS NOT NULL",
    ],
)
def test_a_condition_cannot_find_hidden_messages(lake: Path, condition: str) -> None:
    found = run_query(
        lake,
        "SELECT count(*) AS found FROM bronze.messages "
        f"WHERE topic = 'orders' AND try({condition}) ",
    )

    assert found == [{"found": 0}]


@pytest.mark.parametrize(
    "tell",
    [
        "error(try(decode(body)))",
        "error(properties['token'])",
        f"CASE WHEN contains(CAST(body AS VARCHAR), '{CARD}') THEN error('seen') ELSE true END",
        "CAST(properties['note'] AS INTEGER) > 0",
    ],
)
def test_an_error_reveals_nothing_hidden(lake: Path, tell: str) -> None:
    try:
        text = repr(
            run_query(lake, f"SELECT topic FROM bronze.messages WHERE topic = 'orders' AND {tell}")
        )
    except QueryError as error:
        text = str(error)

    assert not any(secret in text for secret in (CARD, TOKEN, "seen"))


def test_a_hundred_rules_take_at_most_a_hundred_steps(lake: Path) -> None:
    connection = duckdb.connect()
    add_hiding(connection)
    connection.execute(
        "CREATE TABLE found AS SELECT 'orders' AS topic, 0 AS sys_flag, 1 AS body_crc, "
        "'1x'::BLOB AS body, MAP {'a': '1x'} AS properties"
    )
    masks = [
        Mask(("orders", f"o{at // 34}"), "pattern", f"[0-9]{{{1 + at}}}x") for at in range(100)
    ]

    columns = masked_columns(masks)

    assert max(map(len, columns.values())) < 100_000
    shown = connection.execute(f"SELECT {', '.join(columns.values())} FROM found").fetchall()
    assert shown == [(b"***", None, {"a": "***"})]


def test_a_rule_of_an_unknown_kind_is_rejected() -> None:
    with pytest.raises(ValueError, match="unknown kind of masking rule: column"):
        Mask.of({"topics": ["*"], "kind": "column", "what": "x"})
