"""docs/security.md matches the tests: which gates hold, and which are open."""

from __future__ import annotations

import ast

import pytest

from tools import security_gates
from tools.security_gates import PAGE, Gate, HoldingTest, gates, marked_tests

GATES = gates(PAGE.read_text())
# The attack list: the gates of each area.
AREAS = {"B": 10, "H": 4, "M": 1, "N": 5, "A": 5, "C": 12, "R": 6, "P": 5, "O": 5}


def test_the_verdicts_follow_from_the_tests() -> None:
    page = PAGE.read_text()

    assert page == security_gates.derived(page), "run python -m tools.security_gates --write"


def test_every_test_that_is_known_to_fail_is_an_open_gate() -> None:
    named = {each for gate in GATES for each in gate.tests}

    lacking = [each for each in marked_tests() if each not in named]
    assert lacking == [], "give each a row in docs/security.md, or fix it"


def test_every_gate_names_existing_tests() -> None:
    lacking = []
    for gate in GATES:
        for test in gate.tests:
            names = functions_in(test) if test.path.exists() else set()
            if not names or (test.function and test.function not in names):
                lacking.append((gate.says[:40], test))
        if not gate.tests:
            lacking.append((gate.says[:40], HoldingTest("", "")))

    assert lacking == []


def functions_in(test: HoldingTest) -> set[str]:
    tree = ast.parse(test.path.read_text())
    found = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    # Hypothesis state machines have no function of their own.
    assigned = {
        each.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for each in node.targets
        if isinstance(each, ast.Name)
    }
    return {name for name in found | assigned if name.lower().startswith("test")}


def test_no_gate_relies_on_a_skipped_test() -> None:
    skipped = []
    for gate in GATES:
        for test in gate.tests:
            for node in ast.walk(ast.parse(test.path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    marks = [ast.unparse(each) for each in node.decorator_list]
                    is_meant = test.function in ("", node.name)
                    if is_meant and any(each.startswith("pytest.mark.skip(") for each in marks):
                        skipped.append((test, node.name))

    assert skipped == []


def test_no_gate_of_the_attack_list_is_missing() -> None:
    words = [each.strip() for gate in GATES for each in gate.says.split(" ")[:4]]
    named = {each.rstrip(",") for each in words}

    for area, count in AREAS.items():
        lacking = [f"{area}{number}" for number in range(1, count + 1)]
        assert [each for each in lacking if each not in named] == []


ROW = "| X1 something | {verdict} | `{tests}` |"


@pytest.mark.parametrize(
    ("verdict", "derived"),
    [
        ("holds", "holds"),
        ("part; open: something that was mended", "holds"),
        ("holds; only on Tuesdays", "holds; only on Tuesdays"),
    ],
)
def test_a_gate_holds_if_its_tests_pass(verdict, derived) -> None:
    (gate,) = gates(ROW.format(verdict=verdict, tests="test_security_page.py"))

    assert gate.derived == derived


def test_a_test_that_is_known_to_fail_opens_its_gate(monkeypatch) -> None:
    closed, opened = HoldingTest("a.py", "test_one"), HoldingTest("a.py", "test_two")
    reasons = {opened: ["not reviewed"]}
    monkeypatch.setattr(security_gates, "reasons_of", lambda each: reasons.get(each, []))

    assert Gate("X1", "holds", (closed, opened)).derived == "part; open: not reviewed"
    assert Gate("X1", "holds; a note", (opened,)).derived == "open; open: not reviewed"
    assert Gate("X1", "holds", (closed,)).derived == "holds"
