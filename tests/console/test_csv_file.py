"""CSV exports: no text becomes a formula, with any separator that a spreadsheet uses."""

from __future__ import annotations

import ast
import csv
import io
import re

import pytest
from hypothesis import given, settings, strategies as st

from console.lib.csv_file import csv_lines, safe_cell
from tests.support.sources import ROOT

SIGNS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
NUMBER = re.compile(r"-(\d+(\.\d+)?(e[+-]?\d+)?|inf|infinity)[\])}\"' ]*", re.IGNORECASE)
HOSTILE = [
    *("=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "-", "\uff1d1"),
    *(";=1", ",=1", "\t=1", "\n=1", "\r\n=1", "|=1", "\u2028=1", "\x0b=1"),
    *("text;=1", "text, =1", "text\n=1", "text\t\t=1", "1,-5;=1", ";;=1", ";\t;=1"),
    *(" =1", "\u00a0=1", "\u200b=1", "\ufeff=1", '"=1"', '";"=1', "';'=1", ";\x00=1"),
]


def cells_of(text: str) -> list[str]:
    """Return each cell that a spreadsheet reads from a file, by separator."""
    found = []
    for separator in (",", ";", "\t", "|"):
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE):
            lines = io.StringIO(text, newline="")
            for row in csv.reader(lines, delimiter=separator, quoting=quoting):
                found += row
    # Some also end a line at a break within quotation marks.
    return [line for cell in found for line in (cell, *re.split(r"[\r\n\x0b\x0c\x85\u2028]", cell))]


def is_formula(cell: str) -> bool:
    stripped = cell.strip("\x00\u200b\ufeff\"' \t\r\n\x0b\x0c\u00a0")
    # An apostrophe at the front of a cell marks it as text.
    is_text = cell.lstrip(' \u00a0"\x00\u200b\ufeff\t\r\n\x0b\x0c').startswith("'")
    return stripped.startswith(SIGNS) and not is_text and not NUMBER.fullmatch(stripped)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_spreadsheet_finds_a_formula_in_a_cell(text) -> None:
    lines = "".join(csv_lines(["a", text], [["b", text], [text, "c"]]))

    assert [cell for cell in cells_of(lines) if is_formula(cell)] == []


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet=";,|\t\r\n=+-@\"' a1\u200b\uff1d", max_size=12))
def test_no_text_becomes_a_formula(text) -> None:
    lines = "".join(csv_lines(["name"], [["before", text, "after"]]))

    assert [cell for cell in cells_of(lines) if is_formula(cell)] == []


@pytest.mark.parametrize(
    "value",
    [
        *(0, -5, -1.5, 1e-05, -1e-05, 2**63, "orders", "K-1 K-2", "1,-5,2", "[1,-5,2]"),
        *('{"id": 1, "low": -2}', "2026-01-02T03:04:05Z", "a=b", "x-y", "-inf", "%RETRY%billing"),
    ],
)
def test_numbers_and_harmless_text_stay_unchanged(value) -> None:
    assert safe_cell(value) == str(value)


def test_an_unknown_value_is_an_empty_cell() -> None:
    assert list(csv_lines(["a", "b"], [[None, 1]])) == ["a,b\r\n", ",1\r\n"]


def test_no_other_module_of_the_console_writes_csv() -> None:
    importing = []
    for path in sorted((ROOT / "console").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if "csv" in names or (isinstance(node, ast.ImportFrom) and node.module == "csv"):
                importing.append(path.relative_to(ROOT).as_posix())

    assert importing == ["console/lib/csv_file.py"]
