from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy import checks, gate

if TYPE_CHECKING:
    from pathlib import Path

REPORT = """<testsuites><testsuite>
<testcase name="a"/>
<testcase name="b"><skipped message="chromium is missing"/></testcase>
<testcase name="c"><failure message="no"/></testcase>
<testcase name="d"><error message="setup"/></testcase>
</testsuite></testsuites>"""


def test_without_an_argument_it_is_the_quick_tier() -> None:
    asked = checks.parse([], {})

    assert (asked.tier, asked.may_install) == ("quick", False)


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["all"], {}, False),
        (["all", "--install"], {}, True),
        (["all"], {"CI": "true"}, True),
        (["all"], {"CI": "false"}, False),
    ],
)
def test_it_installs_when_it_is_asked_to_or_in_ci(
    arguments: list[str], environment: dict[str, str], expected: bool
) -> None:
    assert checks.parse(arguments, environment).may_install is expected


def test_the_tiers_together_leave_no_test_out() -> None:
    quick = [step.command for step in gate.steps_of("unit", 1)]
    everything = [step.command for step in gate.steps_of("all", 1)]

    marks = [command[command.index("-m", 3) + 1] for command in everything if "pytest" in command]
    assert quick[0] in everything
    assert marks == [f"not ({gate.HEAVY})", gate.HEAVY]


def test_every_marker_that_is_declared_is_heavy(pytestconfig: pytest.Config) -> None:
    ours = {"spark", "interop", "fault", "browser"}
    declared = {line.split(":")[0] for line in pytestconfig.getini("markers")}

    assert ours <= declared
    assert set(gate.HEAVY.split(" or ")) == ours


def test_tests_are_counted_by_how_they_ended(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)

    outcomes, reasons = gate.counts([report, tmp_path / "never-written.xml"])

    assert outcomes == {"passed": 1, "skipped": 1, "failed": 2}
    assert reasons == {"chromium is missing": 1}


def test_the_verdict_is_the_last_line_and_tells_what_was_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The gate puts the seed there for its children.
    monkeypatch.setenv(gate.SEED_VARIABLE, "0")
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    step = gate.Step("unit", [], report)
    monkeypatch.setattr(gate, "steps_of", lambda tier, seed: [step])
    monkeypatch.setattr(gate, "run", lambda step: False)

    code = gate.main(["unit", "--seed", "7"])

    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert code == 1
    assert last.startswith("deploy/test unit: FAILED (unit) in ")
    assert "seed 7: 1 passed, 2 failed, 1 skipped" in last
    assert "NOT EVERYTHING WAS RUN: chromium is missing" in last
