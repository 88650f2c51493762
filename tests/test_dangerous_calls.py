"""Our code never runs its input: no code, no shell, no SQL built from text."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("broker_core", "console", "analytics", "deploy")
MODULES = {
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "jsonpickle",
    "telnetlib",
    "ftplib",
}
"""Modules that turn untrusted bytes into code or objects."""
CALLS = {"eval", "exec", "compile", "__import__"}
METHODS = {
    "system": "os",
    "popen": "os",
    "getoutput": "subprocess",
    "getstatusoutput": "subprocess",
    "load": "yaml",
    "full_load": "yaml",
    "unsafe_load": "yaml",
    "unpack_archive": "shutil",
    "extractall": "",
    "extra": "objects",
    "raw": "objects",
    "udf": "",
    "pandas_udf": "",
}
"""Methods with the object's name that makes them dangerous; "": any."""
QUERIES = {"sql", "expr", "selectExpr", "execute", "executemany", "executescript", "RawSQL"}
"""The first argument is text of a language."""
TEXTS = {
    # The code's own table and column names; values are passed as parameters.
    "console/observe/history/database.py",
    # The code's own view names; then a user's query, checked, in a restricted session.
    "analytics/query/engine.py",
    # Queries of the lake's views and their column names; values are passed as parameters.
    "analytics/query/lake_reader.py",
    # Constants of other lake modules; their input arrives as Arrow, never as text.
    "analytics/lake/writer.py",
    "analytics/spark_writer.py",
}


def trees() -> Iterator[tuple[str, ast.Module]]:
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def dangers(tree: ast.Module, *, may_join_sql: bool = False) -> Iterator[str]:
    """Yield "LINE: what" for each dangerous call or import of a module."""
    constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper()
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            read = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                read = [node.module or ""]
            for name in sorted({each.partition(".")[0] for each in read} & MODULES):
                yield f"{node.lineno}: import {name}"
        if isinstance(node, ast.Call):
            yield from _of_call(node, constants, may_join_sql=may_join_sql)


def _of_call(node: ast.Call, constants: set[str], *, may_join_sql: bool) -> Iterator[str]:
    name = ast.unparse(node.func)
    owner, _, method = name.rpartition(".")
    if name in CALLS:
        yield f"{node.lineno}: {name}()"
    if method in METHODS and METHODS[method] in owner and owner:
        yield f"{node.lineno}: {name}()"
    for keyword in node.keywords:
        is_on = not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
        if keyword.arg == "shell" and is_on:
            yield f"{node.lineno}: {name}(shell=...)"
    if method in QUERIES and owner and node.args and not may_join_sql:
        first = node.args[0]
        is_ours = isinstance(first, ast.Constant) or (
            isinstance(first, ast.Name) and first.id in constants
        )
        if not is_ours:
            yield f"{node.lineno}: {name}() of a text that is put together"


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from marshal import loads",
        "eval(text)",
        "os.system(text)",
        "subprocess.run(text, shell=True)",
        "yaml.load(text)",
        "Run.objects.raw(text)",
        "spark.sql(f'SELECT {name}')",
        "functions.expr(name)",
        "cursor.execute('SELECT ' + name)",
        "archive.extractall()",
    ],
)
def test_a_dangerous_call_is_detected(line: str) -> None:
    assert list(dangers(ast.parse(line)))


@pytest.mark.parametrize(
    "line", ["spark.sql('SELECT 1')", "yaml.safe_load(text)", "re.compile(text)", "QUERY = 'x'"]
)
def test_an_innocent_call_is_not_flagged(line: str) -> None:
    assert list(dangers(ast.parse(line))) == []


def test_no_module_runs_the_code_it_reads() -> None:
    found = [
        f"{name}:{danger}"
        for name, tree in trees()
        for danger in dangers(tree, may_join_sql=name in TEXTS)
    ]

    assert found == []


def test_every_module_on_the_list_builds_sql_text() -> None:
    """Otherwise its entry in the list would hide later problems."""
    joining = {name for name, tree in trees() if name in TEXTS and list(dangers(tree))}

    assert joining == TEXTS


def test_no_template_shows_text_as_html() -> None:
    for path in sorted(ROOT.glob("console/**/*.html")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\|\s*safe\b|autoescape\s+off|\bsafeseq\b", text), path
