"""SQL can't be used to escape: forbidden data is rejected, or doesn't exist in the session.

The user may query the topics shop-*, under masking rules. The checks reject each attempt; without
the checks, it finds nothing either.
"""

from __future__ import annotations

import hashlib
import zlib
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING

import duckdb
import pytest

from analytics.errors import ReportError
from analytics.lake.bodies import BodyRule, BodyRules
from analytics.lake.masks import Mask
from analytics.lake.place import LakePlace
from analytics.query import engine as engine_module
from analytics.query.cells import lines_of
from analytics.query.engine import Engine
from analytics.query.functions import FUNCTIONS, TABLE_FUNCTIONS
from analytics.query.validation import RESERVED_PREFIXES, QueryError, check
from analytics.query.views import views_of
from tests.analytics.lake.lakes import Lake
from tests.analytics.query import escapes
from tests.analytics.store_builder import StoreBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CARD, TOKEN, ENVIRONMENT = "4111222233334444", "t0ken-of-ann", "of-the-environment"
ESCAPED = CARD.replace("4111", "\\u00341%31%31", 1)
BODY = f'{{"card": "{CARD}", "pin": 7}}'
PROPERTIES = f"token\x01{TOKEN}\x02note\x01paid by {CARD}\x02KEYS\x01shop-key\x02"
OTHERS = "KEYS\x01bank-key\x02UNIQ_KEY\x01bank-uniq\x02TAGS\x01bank-tag\x02note\x01bank-note\x02"
MASKS = (
    Mask(("shop-*",), "pattern", "4111[0-9]{12}"),
    Mask(("shop-*",), "property", "token"),
)


class Asker:
    """A user who can query the topics shop-* of a lake, and the data hidden from this user."""

    def __init__(self, directory: Path) -> None:
        builder = StoreBuilder(directory / "store")
        for topic in ("shop-orders", "shop-bills"):
            builder.put(topic, body=BODY.encode(), properties=PROPERTIES.encode())
        builder.put("shop-orders", body=f'{{"card": "{ESCAPED}"}}'.encode())
        for _ in range(3):
            builder.put("bank-transfers", body=b"bank-body", properties=OTHERS.encode())
        builder.write()
        kept = dict.fromkeys(("shop-orders", "shop-bills", "bank-transfers"), BodyRule())
        lake = Lake(directory / "lake", builder.root, rules=BodyRules(kept))
        lake.take_all()
        lake.catch_up()
        self.place = LakePlace.of(str(lake.directory), None, {})
        messages = lake.directory / "bronze" / "messages"
        self.words = {
            "file": str(next(messages.glob("*/*.parquet"))),
            "log": str(next((messages / "_delta_log").glob("*.json"))),
            "folder": str(lake.directory),
            "body": BODY,
            "card": CARD,
            "token": TOKEN,
            "crc": str(zlib.crc32(BODY.encode()) & 0x7FFFFFFF),
        }
        self.secrets = {
            *("bank-transfers", "bank-body", "bank-key", "bank-uniq", "bank-tag", "bank-note"),
            *(ESCAPED, ESCAPED.encode().hex()),
            *(b"bank-".hex(), CARD.encode().hex(), CARD, CARD[::-1], TOKEN, TOKEN[::-1]),
            *(MASKS[0].what, self.words["crc"], self.words["folder"]),
            *(hashlib.md5(BODY.encode()).hexdigest(), hashlib.sha256(BODY.encode()).hexdigest()),
            *("root:x:0", "part-", ENVIRONMENT),
        }

    def engine(self) -> Engine:
        return Engine(self.place, views_of(self.place, ["shop-*"], MASKS), "UTC")

    def written(self, attempt: str) -> str:
        """Return an attempt with the names of this lake."""
        for name, word in self.words.items():
            attempt = attempt.replace(f"{{{name}}}", word)
        return attempt

    def seen(self, answer: object, sql: str) -> set[str]:
        """Return the secrets in an answer that the user didn't write into the query."""
        text = repr(answer).lower()
        return {each for each in self.secrets if each.lower() in text and each not in sql}


def answer_of(engine: Engine, sql: str) -> object:
    """Return rows as the page gets them, or the error as its text."""
    try:
        with engine.reader(sql) as reader:
            return [line for batch in reader for line in lines_of(batch)]
    except ReportError as error:
        return str(error)
    except AttributeError:
        return None  # a statement without rows, with the checks off


def named(groups: Iterable[str]) -> list[object]:
    """Return the attempts of groups, each with a distinct name."""
    return [
        pytest.param(attempt, id=f"{group}-{number}")
        for group in groups
        for number, attempt in enumerate(escapes.REFUSED[group], 1)
    ]


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    return Asker(tmp_path_factory.mktemp("escapes"))


@pytest.fixture(scope="module")
def engine(asker: Asker) -> Engine:
    return asker.engine()


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "check", lambda _connection, sql, _tables: sql)
    monkeypatch.setenv("TREBUCHET_TEST", ENVIRONMENT)


def test_there_are_at_least_200_different_attempts() -> None:
    every = [each for attempts in escapes.REFUSED.values() for each in attempts]

    assert len(every) == len(set(every)) >= 200


@pytest.mark.parametrize("attempt", named(escapes.REFUSED))
def test_an_attempt_is_rejected_in_one_sentence(asker: Asker, engine: Engine, attempt: str) -> None:
    sql = asker.written(attempt)

    with pytest.raises(QueryError) as refused, engine.reader(sql) as reader:
        reader.read_all()

    sentence = str(refused.value)
    assert "\n" not in sentence
    assert sentence.endswith((".", "?"))
    assert not asker.seen(sentence, sql)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("attempt", named(escapes.REFUSED.keys() - {"acts", "statements"}))
def test_without_the_checks_there_is_nothing_to_find(
    asker: Asker, engine: Engine, attempt: str
) -> None:
    sql = asker.written(attempt)

    assert not asker.seen(answer_of(engine, sql), sql)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("attempt", named(["statements"]))
def test_without_the_checks_no_statement_leads_outside(asker: Asker, attempt: str) -> None:
    sql = asker.written(attempt)

    assert not asker.seen(answer_of(asker.engine(), sql), sql)


@pytest.mark.parametrize("attempt", [*escapes.OTHER_TOPICS, *escapes.MASKED_VALUES])
def test_no_query_shows_other_topics_or_masked_values(
    asker: Asker, engine: Engine, attempt: str
) -> None:
    sql = asker.written(attempt)

    answer = answer_of(engine, sql)

    assert not asker.seen(answer, sql)
    if sql.startswith("SELECT 'found'"):
        assert "'found'" not in repr(answer)


def test_no_position_in_a_query_accepts_a_table_that_is_not_the_users(
    asker: Asker, engine: Engine
) -> None:
    every = [asker.written(each) for each in escapes.combinations(escapes.TABLES)]
    answers = {sql: answer_of(engine, sql) for sql in every}

    assert len(answers) == len(every)
    assert [sql for sql, answer in answers.items() if not isinstance(answer, str)] == []
    assert [sql for sql, answer in answers.items() if asker.seen(answer, sql)] == []


@pytest.mark.usefixtures("unchecked")
def test_no_position_in_a_query_finds_such_a_table_without_the_checks(
    asker: Asker, engine: Engine
) -> None:
    files_and_names = escapes.TABLES[:2]
    every = [asker.written(each) for each in escapes.combinations(files_and_names)]

    assert [sql for sql in every if asker.seen(answer_of(engine, sql), sql)] == []


def test_a_table_is_found_at_any_depth_of_a_query() -> None:
    places = escapes.PLACES_OF_TABLES
    with duckdb.connect() as connection:
        for outer, inner in product(places, places[::4]):
            sql = outer.replace("{}", f"({inner.replace('{}', 'duckdb_views')})")
            with pytest.raises(QueryError):
                check(connection, sql, ["bronze.messages"])


def test_no_query_name_is_one_of_duckdbs_own_tables() -> None:
    with duckdb.connect() as connection:
        names = "SELECT view_name FROM duckdb_views() UNION SELECT table_name FROM duckdb_tables()"
        tables = [name for (name,) in connection.execute(names).fetchall()]
        seen_by_name = []
        for name in tables:
            with suppress(duckdb.Error):
                connection.execute(f'FROM "{name}" LIMIT 0')
                seen_by_name.append(name)

    assert "sqlite_master" in seen_by_name
    assert [name for name in seen_by_name if not name.startswith(RESERVED_PREFIXES)] == []


def test_every_function_not_on_the_list_is_rejected() -> None:
    with duckdb.connect() as connection:
        known = "SELECT DISTINCT function_type, function_name FROM duckdb_functions()"
        functions = connection.execute(known).fetchall()
        refused = 0
        for kind, name in functions:
            is_table = kind in {"table", "table_macro", "pragma"}
            if name.lower() in (TABLE_FUNCTIONS if is_table else FUNCTIONS | TABLE_FUNCTIONS):
                continue
            sql = f'FROM "{name}"(1)' if is_table else f'SELECT "{name}"(1)'
            with pytest.raises(QueryError, match="isn't allowed"):
                check(connection, sql, [])
            refused += 1

    assert refused > 400


def test_every_allowed_function_exists_in_duckdb() -> None:
    with duckdb.connect() as connection:
        functions = connection.execute("SELECT function_name FROM duckdb_functions()").fetchall()

    # The operators -> and !~ and the UNNEST of SELECT are parts of DuckDB's grammar.
    assert FUNCTIONS - {name.lower() for (name,) in functions} == {"->", "!~"}
