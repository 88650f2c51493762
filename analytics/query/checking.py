"""Which queries are run: one that reads, from the lake's views and from nothing else.

DuckDB itself is told to open nothing else (analytics.query.engine). This is the second lock, and
the one that says what is wrong in a sentence.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import duckdb

from analytics.errors import ReportError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SQL_CHARACTERS_MAX = 20_000
PARSED = "SELECT json_serialize_sql(?)"
TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "repeat", "repeat_row"})
"""Those that read nothing."""
ONE_SELECT = "One SELECT is run, and nothing else: the lake is only read here."


class QueryError(ReportError):
    """The query is not run, or failed; the text is a sentence for the person who wrote it."""


def check(connection: duckdb.DuckDBPyConnection, sql: str, views: Iterable[str]) -> str:
    """Return the one statement of a text that may be run.

    Raises:
        QueryError: it is none, or would read something that is no view.
    """
    if len(sql) > SQL_CHARACTERS_MAX:
        raise QueryError(f"The query has {len(sql)} characters; {SQL_CHARACTERS_MAX} may be.")
    if "\0" in sql:
        raise QueryError("The query has a character that no query has (0).")
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryError(sentence_of(error)) from error
    if not statements:
        raise QueryError("There is no query to run.")
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise QueryError(ONE_SELECT)
    text = statements[0].query.strip().rstrip(";")
    tree = json.loads(connection.execute(PARSED, [text]).fetchall()[0][0])
    if tree.get("error"):
        raise QueryError(ONE_SELECT)
    _check_names(tree, frozenset(views))
    return text


def _check_names(tree: Any, views: frozenset[str]) -> None:
    named = {name.lower() for name in _own_names(tree)}
    for node in _nodes(tree):
        kind = node.get("type")
        if kind == "SHOW_REF" and not node.get("query"):
            raise QueryError("The tables are listed beside the query; SHOW is not run.")
        if kind == "TABLE_FUNCTION":
            name = _path(node.get("function", {}))
            if name.lower() not in TABLE_FUNCTIONS:
                raise QueryError(
                    f"{name}() is not run: a query reads the lake's tables, and "
                    f"{', '.join(sorted(TABLE_FUNCTIONS))}."
                )
        if kind == "BASE_TABLE":
            name = _path(node)
            if name.lower() not in views | named:
                there = ", ".join(sorted(views)) or "none yet"
                raise QueryError(f"There is no table {name}. The lake has: {there}.")


def _path(node: dict[str, Any]) -> str:
    path = node.get("qualified_name", {}).get("path", [])
    return ".".join(str(part) for part in path)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def _own_names(tree: Any) -> Iterator[str]:
    """Yield the names that the query itself gives with WITH."""
    for node in _nodes(tree):
        for entry in (node.get("cte_map") or {}).get("map", []):
            yield str(entry.get("key", ""))


def sentence_of(error: Exception) -> str:
    """Return an error of DuckDB's as a sentence: what is wrong, where, and what may be meant."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, duckdb.OutOfMemoryException):
        return (
            "The query needs more memory than it may have. Ask for fewer columns, a shorter time, "
            "or sums instead of rows."
        )
    what = lines[0] if lines else type(error).__name__
    for each in ("Error: ", "Exception: "):
        if each in what.partition('"')[0]:
            what = what.partition(each)[2]
    hints = [line for line in lines[1:] if line.startswith(("Did you mean", "Candidate"))]
    where = ""
    if isinstance(error, duckdb.ParserException):
        place = next((line for line in lines if line.startswith("LINE ")), "")
        where = f" in {place[0].lower()}{place[1:4].lower()}{place[4:]}" if place else ""
    text = what.rstrip(".!") + where
    return ". ".join([text[:1].upper() + text[1:], *(each.rstrip("?") for each in hints)]) + "."
