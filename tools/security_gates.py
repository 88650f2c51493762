"""Fill the tables of gates in docs/security.md: the tests decide which gates hold or are open.

A row describes a gate and lists the tests that hold it, which determine the verdict: a test marked
as failing (`pytest.mark.xfail`) means open, and its reason names the gap. If a gate no longer
fails, the suite fails until the mark and the page are updated; it also fails for a mark that no row
lists. `python -m tools.security_gates --write` writes the verdicts.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tests.support.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = ROOT / "docs" / "security.md"
TESTS = ROOT / "tests"
ROW = re.compile(r"^\| (?P<says>[A-Z]\d+[ ,].*?) \| (?P<verdict>[^|]+) \| (?P<tests>[^|]+) \|$")
NAMED = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")
HOLDS, PART, OPEN = "holds", "part", "open"


class HoldingTest(NamedTuple):
    """A test that a row names; without a function, the whole file."""

    file: str
    function: str

    @property
    def path(self) -> Path:
        return TESTS / self.file


class Gate(NamedTuple):
    """A row: the promise, its text on the page, and its tests."""

    says: str
    verdict: str
    tests: tuple[HoldingTest, ...]

    @property
    def note(self) -> str:
        """The page's text after the verdict: the limits of the promise."""
        _word, _semicolon, rest = self.verdict.partition(";")
        return "" if rest.strip().startswith("open") else rest.strip()

    @property
    def derived(self) -> str:
        """The verdict according to the tests."""
        reasons = [reason for each in self.tests for reason in reasons_of(each)]
        if not reasons:
            return f"{HOLDS}; {self.note}" if self.note else HOLDS
        is_part = any(not reasons_of(each) for each in self.tests)
        return f"{PART if is_part else OPEN}; open: {'; '.join(reasons)}"


def gates(page: str) -> list[Gate]:
    return [gate_of(found) for line in page.splitlines() if (found := ROW.match(line))]


def gate_of(found: re.Match[str]) -> Gate:
    tests = tuple(HoldingTest(*pair) for pair in NAMED.findall(found["tests"]))
    return Gate(found["says"], found["verdict"], tests)


def derived(page: str) -> str:
    """Return the page with the verdicts according to its tests."""

    def line_of(line: str) -> str:
        found = ROW.match(line)
        if found is None:
            return line
        return f"| {found['says']} | {gate_of(found).derived} | {found['tests']} |"

    return "\n".join(map(line_of, page.split("\n")))


def reasons_of(test: HoldingTest) -> list[str]:
    """Return why a test is known to fail, empty if it has to pass."""
    marks = marks_in(test.path)
    if test.function:
        return [marks[test.function]] if test.function in marks else []
    return list(marks.values())


@cache
def marks_in(path: Path) -> dict[str, str]:
    """Return the functions of a file that are marked as failing, each with its reason."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in MARK:
                    found[node.name] = reason_in(decorator)
    return found


MARK = {"pytest.mark.xfail"}


def reason_in(mark: ast.Call) -> str:
    named = {each.arg: each.value for each in mark.keywords}
    value = named.get("reason")
    return str(ast.literal_eval(value)) if value is not None else "no reason given"


def marked_tests() -> Iterator[HoldingTest]:
    """Yield all tests of the suite that are marked as failing."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for name in marks_in(path):
            yield HoldingTest(path.relative_to(TESTS).as_posix(), name)


def main() -> None:
    page = derived(PAGE.read_text())
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page)
    else:
        for gate in gates(page):
            sys.stdout.write(f"{gate.derived.partition(';')[0]:6} {gate.says[:100]}\n")


if __name__ == "__main__":
    main()
