from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.checks import rerun

if TYPE_CHECKING:
    from pathlib import Path

GATE = "tests/deploy/test_gate.py"


def report_of(path: Path, *failed: tuple[str, str]) -> Path:
    cases = "".join(
        f'<testcase classname="{place}" name="{name}"><failure/></testcase>'
        for place, name in failed
    )
    path.write_text(
        f'<suite><testcase classname="tests.deploy.test_ports" name="x"/>{cases}</suite>'
    )
    return path


def test_failures_are_named_like_in_pytest(tmp_path: Path) -> None:
    report = report_of(
        tmp_path / "r.xml",
        ("tests.deploy.test_gate", "test_a[1-b]"),
        ("tests.deploy.test_gate.TestClass", "test_b"),
        ("tests.deploy.test_gate", "test_a[1-b]"),
    )

    assert rerun.failed_tests(report) == [
        f"{GATE}::test_a[1-b]",
        f"{GATE}::TestClass::test_b",
    ]


def test_a_step_without_a_report_has_nothing_to_repeat(tmp_path: Path) -> None:
    assert rerun.tests_to_repeat([1], [tmp_path / "none.xml"]) == []


def test_some_failures_are_repeated_alone(tmp_path: Path) -> None:
    failed = [("tests.deploy.test_gate", f"test_{number}") for number in range(5)]
    report = report_of(tmp_path / "r.xml", *failed)

    assert rerun.tests_to_repeat([1, 1], [report]) == [
        f"{GATE}::test_{number}" for number in range(5)
    ]


def test_many_failures_are_not_a_stall(tmp_path: Path) -> None:
    failed = [("tests.deploy.test_gate", f"test_{number}") for number in range(6)]

    assert rerun.tests_to_repeat([1], [report_of(tmp_path / "r.xml", *failed)]) == []


@pytest.mark.parametrize("code", [2, 124, -9])
def test_a_step_that_had_to_be_ended_is_not_forgiven(tmp_path: Path, code: int) -> None:
    report = report_of(tmp_path / "r.xml", ("tests.deploy.test_gate", "test_a"))

    assert rerun.tests_to_repeat([1, code], [report]) == []


@pytest.mark.parametrize(
    "place", ["tests.faults.test_broker_kill", "tests.property.test_store_model"]
)
def test_a_fault_found_by_chance_counts_once(tmp_path: Path, place: str) -> None:
    report = report_of(tmp_path / "r.xml", ("tests.deploy.test_gate", "test_a"), (place, "test_b"))

    assert rerun.tests_to_repeat([1], [report]) == []


def test_the_second_run_names_the_tests_last(tmp_path: Path) -> None:
    step = rerun.step_of([f"{GATE}::test_a"], ["--timeout=600"], tmp_path / "again.xml")

    assert step.command[-3:] == [
        "--timeout=600",
        f"--junit-xml={tmp_path}/again.xml",
        f"{GATE}::test_a",
    ]
