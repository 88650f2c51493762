from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from deploy.checks import options as checks, steps
from deploy.checks.steps import Step
from deploy.commands import test as gate
from deploy.install.virtualenv import ROOT

if TYPE_CHECKING:
    from pathlib import Path

REPORT = """<testsuites><testsuite>
<testcase name="a"/>
<testcase name="b"><skipped type="pytest.skip" message="chromium is missing"/></testcase>
<testcase name="c"><failure message="no"/></testcase>
<testcase name="d"><error message="setup"/></testcase>
<testcase name="e"><skipped type="pytest.xfail" message="nothing looks for it"/></testcase>
</testsuite></testsuites>"""


def test_without_an_argument_the_quick_tier_runs() -> None:
    request = checks.parse([], {})

    assert (request.tier, request.may_install) == ("quick", False)


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["all"], {}, False),
        (["all", "--install"], {}, True),
        (["all"], {"CI": "true"}, True),
        (["all"], {"CI": "false"}, False),
    ],
)
def test_it_installs_on_request_or_in_ci(
    arguments: list[str], environment: dict[str, str], expected: bool
) -> None:
    assert checks.parse(arguments, environment).may_install is expected


def test_the_tiers_together_include_every_test() -> None:
    (quick,) = gate.stages_of("unit", 1)
    *_, together = gate.stages_of("all", 1)
    _, *heavy = together[: -len(quick)]
    apart = [place for places in gate.SEPARATE_STEPS.values() for place in places]

    assert together[-len(quick) :] == quick
    assert [selected(step) for step in quick] == [
        [f"not ({gate.HEAVY})", *(f"--ignore={place}" for place in apart)],
        *(
            [f"not ({gate.HEAVY})", *places, *(gate.ignored("tests/console/") * (name == "pages"))]
            for name, places in gate.SEPARATE_STEPS.items()
        ),
        [f"not ({gate.HEAVY})", *gate.TWIN],
    ]
    assert len(set(apart)) == len(apart)
    assert all((ROOT / place).exists() for place in apart)
    assert [selected(step) for step in heavy] == [
        *([gate.HEAVY, place] for place in gate.HEAVY_STEPS.values()),
        [gate.HEAVY, *(f"--ignore={place}" for place in gate.HEAVY_STEPS.values())],
    ]


def test_the_tests_of_sends_and_pulls_also_run_with_python_alone() -> None:
    twin = next(step for step in gate.stages_of("unit", 1)[0] if step.name == "python")

    assert list(twin.command[:2]) == ["env", "TREBUCHET_NATIVE=0"]
    assert all((ROOT / place).is_file() for place in gate.TWIN)


def selected(step: Step) -> list[str]:
    """Return pytest's option that selects tests."""
    marks = step.command.index("-m", step.command.index("pytest")) + 1
    options = next(n for n, word in enumerate(step.command) if word.startswith("--hypothesis"))
    return list(step.command[marks:options])


def test_each_step_has_its_own_report() -> None:
    reports = [step.report for stage in gate.stages_of("all", 1) for step in stage if step.report]

    assert len(reports) == len(set(reports)) == 12


def test_every_declared_marker_is_heavy(pytestconfig: pytest.Config) -> None:
    ours = {"spark", "interop", "fault", "browser", "callgrind", "fuzz"}
    declared = {line.split(":")[0] for line in pytestconfig.getini("markers")}

    assert ours <= declared
    assert set(gate.HEAVY.split(" or ")) == ours


def test_tests_are_counted_by_outcome(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)

    outcomes, reasons = gate.counts([report, tmp_path / "never-written.xml"])

    assert outcomes == {"passed": 1, "skipped": 1, "failed": 2, "known gap": 1}
    assert reasons == {"chromium is missing": 1}


def one_step(monkeypatch: pytest.MonkeyPatch, report: Path, codes: dict[str, int]) -> None:
    """Let the gate run one step, which has written its report and fails with an exit code."""
    # The gate sets the seed there for its children.
    monkeypatch.setenv(gate.SEED_VARIABLE, "0")
    monkeypatch.setattr(gate, "stages_of", lambda tier, seed: [[Step("unit", [], report)]])
    monkeypatch.setattr(steps, "run", lambda stage: codes)


def test_the_verdict_is_the_last_line_and_lists_what_was_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    one_step(monkeypatch, report, {"unit": 2})

    code = gate.main(["unit", "--seed", "7"])

    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert code == 1
    assert last.startswith("deploy/test unit: FAILED (unit) in ")
    assert "seed 7: 1 passed, 2 failed, 1 skipped, 1 known gap: docs/security.md;" in last
    assert "NOT EVERYTHING WAS RUN: chromium is missing" in last


def test_a_run_with_known_gaps_and_no_skipped_test_is_complete(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = tmp_path / "test_gaps.py"
    tests.write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('number', [1, 2])\n"
        "@pytest.mark.xfail(reason='nothing looks for it')\n"
        "def test_gap(number): assert False\n"
        "def test_rule(): assert True\n"
    )
    report = tmp_path / "report.xml"
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:django", "-c", os.devnull),
        f"--junit-xml={report}",
    ]
    subprocess.run([*command, tests], cwd=tmp_path, check=True, capture_output=True)
    one_step(monkeypatch, report, {})

    assert gate.main(["unit"]) == 0

    output = capsys.readouterr().out.strip()
    assert "SKIPPED" not in output
    assert output.endswith(": 1 passed, 0 failed, 0 skipped, 2 known gaps: docs/security.md")


def test_a_test_that_passes_alone_is_named_and_passes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(gate.SEED_VARIABLE, "0")
    report = tmp_path / "report.xml"
    report.write_text(
        '<r><testcase classname="tests.deploy.test_gate" name="a"><failure/></testcase></r>'
    )
    stage = [Step("unit", [], report)]
    ran: list[Step] = []

    def run(some: list[Step]) -> dict[str, int]:
        ran.extend(some)
        return {"unit": 1} if some == stage else {}

    monkeypatch.setattr(gate, "stages_of", lambda tier, seed: [stage])
    monkeypatch.setattr(steps, "run", run)

    code = gate.main(["unit", "--seed", "7"])

    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert code == 0
    assert [step.name for step in ran] == ["unit", "again"]
    assert ran[1].command[-1] == "tests/deploy/test_gate.py::a"
    assert last.endswith(
        "1 failed, 0 skipped; FAILED ONCE, PASSED ALONE: tests/deploy/test_gate.py::a"
    )


def test_a_test_that_also_fails_alone_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(gate.SEED_VARIABLE, "0")
    report = tmp_path / "report.xml"
    report.write_text(
        '<r><testcase classname="tests.deploy.test_gate" name="a"><error/></testcase></r>'
    )
    monkeypatch.setattr(gate, "stages_of", lambda tier, seed: [[Step("unit", [], report)]])
    monkeypatch.setattr(steps, "run", lambda stage: {step.name: 1 for step in stage})

    assert gate.main(["unit"]) == 1
    assert "PASSED ALONE" not in capsys.readouterr().out
