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
TELLING_FUNCTIONS = frozenset({"current_setting", "getvariable"})
"""Those that tell which files are read."""
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
    for node, own_names in _nodes(tree, frozenset()):
        kind = node.get("type")
        if kind == "SHOW_REF" and not node.get("query"):
            raise QueryError("The tables are listed beside the query; SHOW is not run.")
        if kind == "TABLE_FUNCTION":
            name = ".".join(_path(node.get("function", {})))
            if _folded(name) not in TABLE_FUNCTIONS:
                raise QueryError(
                    f"{name}() is not run: a query reads the lake's tables, and "
                    f"{', '.join(sorted(TABLE_FUNCTIONS))}."
                )
        if kind == "FUNCTION":
            name = ".".join(_path(node))
            if _folded(name).rpartition(".")[2] in TELLING_FUNCTIONS:
                raise QueryError(f"{name}() is not run: it tells how the lake is read.")
        if kind == "BASE_TABLE":
            path = _path(node)
            is_own = len(path) == 1 and _folded(path[0]) in own_names
            if not is_own and not (len(path) == 2 and _folded(".".join(path)) in views):
                there = ", ".join(sorted(views)) or "none yet"
                raise QueryError(f"There is no table {'.'.join(path)}. The lake has: {there}.")


def _path(node: dict[str, Any]) -> list[str]:
    return [str(part) for part in node.get("qualified_name", {}).get("path", [])]


def _folded(name: str) -> str:
    """Return a name as DuckDB compares it: it knows of no letters but those of ASCII."""
    return name.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def _nodes(tree: Any, own_names: frozenset[str]) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Yield all nodes, with the names of WITH that may be used there.

    Elsewhere such a name would be a table of DuckDB's own: a query is seen within itself only when
    it is recursive, and otherwise by those that follow it.
    """
    if isinstance(tree, list):
        for each in tree:
            yield from _nodes(each, own_names)
    if not isinstance(tree, dict):
        return
    for entry in (tree.get("cte_map") or {}).get("map", []):
        name, value = _folded(str(entry.get("key", ""))), entry.get("value") or {}
        is_recursive = value.get("query_node", {}).get("type") == "RECURSIVE_CTE_NODE"
        yield from _nodes(value, own_names | {name} if is_recursive else own_names)
        own_names |= {name}
    yield tree, own_names
    for key, each in tree.items():
        if key != "cte_map":
            yield from _nodes(each, own_names)


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
