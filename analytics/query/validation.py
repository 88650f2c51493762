"""Checks that a query is one SELECT over the lake's tables that calls only allowed functions.

This is the second line of defence. The first is that the DuckDB that runs a query has access to
nothing else (analytics.query.engine). This check rejects functions with effects, such as reading
memory addresses, and explains each error in a sentence.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any

import duckdb

from analytics.errors import ReportError
from analytics.query.functions import FUNCTIONS, TABLE_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

Node = dict[str, Any]

SQL_CHARACTERS_MAX = 20_000
PARSED = "SELECT json_serialize_sql(?)"
NODES = frozenset(
    {
        *("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"),
        *("BASE_TABLE", "TABLE_FUNCTION", "SUBQUERY", "JOIN", "EXPRESSION_LIST", "EMPTY", "PIVOT"),
        *("SHOW_REF", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"),
        *("ORDER_MODIFIER", "ORDER_DEFAULT", "ASCENDING", "DESCENDING"),
    }
)
"""The parts of a query other than expressions, as DuckDB serializes them. INSERT and similar
statements, which DuckDB allows within WITH, are excluded.
"""
EXPRESSIONS = frozenset(
    {
        *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION"),
        *("CONSTANT", "DEFAULT", "FUNCTION", "LAMBDA", "OPERATOR", "POSITIONAL_REFERENCE", "STAR"),
        *("SUBQUERY", "TYPE", "WINDOW"),
    }
)
"""The classes of expressions; PARAMETER is excluded."""
OWN_NAME = re.compile(r"\w[\w $-]*")
RESERVED_PREFIXES = ("duckdb_", "pg_", "pragma_", "sqlite_")
"""Prefixes of DuckDB's own tables, apart from those in schemas."""
OUT_OF_MEMORY = (
    "The query needs more memory than is allowed. Select fewer columns, a shorter time range, or "
    "aggregates instead of rows."
)
ONE_SELECT = "Only a single SELECT statement is allowed. The lake is read-only here."
TOO_DEEP = "The query is nested too deeply. Split it into several parts with WITH."


class QueryError(ReportError):
    """The query isn't allowed, or failed; the text is a sentence for the person who wrote it."""


def check(connection: duckdb.DuckDBPyConnection, sql: str, tables: Collection[str]) -> str:
    """Return the only statement of a text.

    Args:
        tables: the names of the tables that it may read.

    Raises:
        QueryError: the text isn't allowed.
    """
    if len(sql) > SQL_CHARACTERS_MAX:
        raise QueryError(
            f"The query has {len(sql):,} characters, and {SQL_CHARACTERS_MAX:,} are allowed. "
            "Shorten it."
        )
    if "\0" in sql or any("\ud800" <= each <= "\udfff" for each in sql):
        raise QueryError("The query contains a character that isn't text, such as NUL. Remove it.")
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryError(sentence_of(error)) from error
    if not statements:
        raise QueryError("There's no query to run. Enter a SELECT statement.")
    if len(statements) != 1 or not _is_select(statements[0]):
        raise QueryError(ONE_SELECT)
    text = statements[0].query.strip().rstrip(";")
    try:
        tree = json.loads(connection.execute(PARSED, [text]).fetchall()[0][0])
    except RecursionError as error:
        raise QueryError(TOO_DEEP) from error
    if tree.get("error"):
        raise QueryError(ONE_SELECT)
    nodes = list(_nodes(tree))
    own_names = {name for node in nodes for name in _names_in_with(node)}
    for node in nodes:
        _require_allowed_part(node)
        if node.get("type") == "BASE_TABLE":
            _require_known_table(node, tables, own_names)
    return text


def _is_select(statement: duckdb.Statement) -> bool:
    try:
        return statement.type == duckdb.StatementType.SELECT
    except ValueError:  # a type unknown to DuckDB's Python API
        return False


def _require_known_table(node: Node, tables: Collection[str], own_names: set[str]) -> None:
    path = [_folded(part) for part in _path(node)]
    if len(path) == 2 and ".".join(path) in map(_folded, tables):
        return
    # Only DuckDB knows where in the query a WITH name is visible. Elsewhere the name isn't a table,
    # so it must not be one of DuckDB's own tables or look like a file.
    if len(path) == 1 and path[0] in own_names:
        return
    there = ", ".join(sorted(tables))
    has = f"The lake has {there}." if there else "The lake has no tables yet."
    raise QueryError(f"There's no table {'.'.join(_path(node))}. {has}")


def _require_allowed_part(node: Node) -> None:
    kind, expression = node.get("type"), node.get("class")
    if expression == "PARAMETER":
        raise QueryError("A query can't have parameters such as ? or $1. Write the value instead.")
    if expression is None:
        if isinstance(kind, str) and kind not in NODES:
            raise QueryError(ONE_SELECT)
    elif expression not in EXPRESSIONS:
        raise QueryError(f"{expression} expressions aren't allowed.")
    if kind == "SHOW_REF" and not node.get("query"):
        raise QueryError(
            "SHOW and DESCRIBE aren't allowed. The tables and their columns are listed beside the "
            "query."
        )
    if kind == "TABLE_FUNCTION":
        name = _name(node["function"])
        if name not in TABLE_FUNCTIONS:
            *most, last = sorted(TABLE_FUNCTIONS)
            raise QueryError(
                f"{name}() isn't allowed. Queries can read lake tables and use "
                f"{', '.join(most)} and {last}."
            )
    elif expression in {"FUNCTION", "WINDOW"}:
        _require_allowed_function(node)
    alias = str(node.get("alias") or "") if expression is None else ""
    for name in (alias, *_names_in_with(node)):
        _require_own_name(name)


def _require_allowed_function(node: Node) -> None:
    name = _name(node)
    if node.get("export_state"):
        raise QueryError("EXPORT_STATE isn't allowed. Use the value of the aggregate.")
    if name not in FUNCTIONS and name not in TABLE_FUNCTIONS:
        alike = difflib.get_close_matches(name, FUNCTIONS, 1, 0.8)
        hint = f" Did you mean {alike[0]}()?" if alike else ""
        raise QueryError(f"{name}() isn't allowed in a query.{hint}")


def _require_own_name(name: str) -> None:
    if name and not OWN_NAME.fullmatch(name):
        raise QueryError(
            f'"{name}" can\'t be the name of a table in a query. Use letters, digits, _, $, - and '
            "spaces."
        )
    if name.lower().startswith(RESERVED_PREFIXES):
        raise QueryError(f'"{name}" can\'t be the name of a table in a query. DuckDB reserves it.')


def _name(function: Node) -> str:
    return _folded(".".join(_path(function)))


def _path(node: Node) -> list[str]:
    return [str(part) for part in node.get("qualified_name", {}).get("path", [])]


def _names_in_with(node: Node) -> Iterator[str]:
    """Yield the names that a part of a query defines in its WITH clause."""
    for entry in (node.get("cte_map") or {}).get("map", []):
        yield _folded(str(entry.get("key", "")))


def _folded(name: str) -> str:
    """Return a name with ASCII letters in lower case, as DuckDB compares names."""
    return name.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def _nodes(tree: Any) -> Iterator[Node]:
    """Yield all objects of a tree, parents first."""
    waiting = [tree]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting.extend(reversed(list(found.values())))
        elif isinstance(found, list):
            waiting.extend(reversed(found))


def sentence_of(error: Exception) -> str:
    """Return a DuckDB error as a sentence: the problem, its position, and a suggestion."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, duckdb.OutOfMemoryException):
        return OUT_OF_MEMORY
    what = lines[0] if lines else type(error).__name__
    if "Max expression depth" in what:
        return TOO_DEEP
    for each in ("Error: ", "Exception: "):
        if each in what.partition('"')[0]:
            what = what.partition(each)[2]
    hints = [line for line in lines[1:] if line.startswith(("Did you mean", "Candidate"))]
    where = ""
    if isinstance(error, duckdb.ParserException):
        place = next((line for line in lines if line.startswith("LINE ")), "")
        where = f" in {place[0].lower()}{place[1:4].lower()}{place[4:]}" if place else ""
    text = what.rstrip(".!") + where
    sentences = ". ".join([text[:1].upper() + text[1:], *hints])
    return sentences if sentences.endswith("?") else f"{sentences}."
