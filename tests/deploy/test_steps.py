"""Steps of the gate: parallel, under their names, and with a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from deploy.checks import steps
from deploy.checks.steps import Step
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]


def python(name: str, program: str, *, seconds_max: float = 60) -> Step:
    return Step(name, [sys.executable, "-c", program], seconds_max=seconds_max)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # it may not have been waited for yet


def test_steps_of_a_stage_run_at_the_same_time(tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    os.mkfifo(meeting)
    # Either open returns only when the other one has arrived.
    reads, writes = (f"open({str(meeting)!r}, {mode!r}).close()" for mode in "rw")

    assert steps.run([python("a", reads), python("b", writes)]) == {}


def test_steps_start_in_their_order_as_soon_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "PARALLEL_MAX", 1)
    order = tmp_path / "order"

    steps.run([python(name, f"open({str(order)!r}, 'a').write('{name} ')") for name in "cab"])

    assert order.read_text() == "c a b "


def test_output_lines_of_parallel_steps_have_their_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    steps.run([python("one", "print('x'); print('y')"), python("two", "print('z')")])

    lines = capsys.readouterr().out.splitlines()
    report = [line for line in lines if " | " in line]
    assert sorted(report) == ["one    | x", "one    | y", "two    | z"]


def test_a_failing_step_fails_its_stage(capsys: pytest.CaptureFixture[str]) -> None:
    failed = steps.run([python("good", ""), python("bad", "raise SystemExit(3)")])

    assert failed == {"bad": 3}
    assert "--- bad: FAILED (exit code 3) in " in capsys.readouterr().out


def test_a_run_without_tests_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = [sys.executable, "-c", "raise SystemExit(5)"]

    assert steps.run([Step("unit", program, tmp_path / "reports" / "unit.xml")]) == {"unit": 5}
    assert "no test was collected" in capsys.readouterr().out


def test_a_report_from_an_earlier_run_is_not_counted(tmp_path: Path) -> None:
    report = tmp_path / "unit.xml"
    report.write_text("old")

    steps.run([Step("unit", [sys.executable, "-c", ""], report)])

    assert not report.exists()


@pytest.mark.parametrize("others", [0, 1])
def test_a_hanging_step_is_interrupted_and_fails(
    others: int, capsys: pytest.CaptureFixture[str]
) -> None:
    hangs = "import signal\ntry: signal.pause()\nexcept KeyboardInterrupt: raise SystemExit(0)"
    stage = [python("hung", hangs, seconds_max=0.5), *[python("good", "")] * others]

    assert steps.run(stage) == {"hung": 124}
    output = capsys.readouterr().out
    assert "hung interrupted: it took more than 0.5 s" in output
    assert "--- hung: FAILED (exit code 124) in " in output


def test_a_step_is_interrupted_where_the_shell_ignores_interrupts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hangs = "import signal\ntry: signal.pause()\nexcept KeyboardInterrupt: print('interrupted')"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        failed = steps.run([python("hung", hangs, seconds_max=0.5), python("good", "")])
        after = signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)

    assert failed == {"hung": 124}
    assert "hung   | interrupted" in capsys.readouterr().out
    assert after is signal.SIG_IGN


def test_a_step_that_ignores_the_interrupt_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "INTERRUPTED_SECONDS_MAX", 0.5)
    pid = tmp_path / "pid"
    deaf = (
        "import pathlib, signal, subprocess\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(child.pid))\n"
        "signal.pause()"
    )

    assert steps.run([python("deaf", deaf, seconds_max=2)]) == {"deaf": 124}
    child = int(pid.read_text())
    until(lambda: not is_alive(child), "the child to end")


def test_ending_a_gate_ends_its_steps(tmp_path: Path) -> None:
    ready, cleaned = tmp_path / "ready", tmp_path / "cleaned"
    works = (
        "import pathlib, signal\n"
        f"try: pathlib.Path({str(ready)!r}).touch(); signal.pause()\n"
        f"except KeyboardInterrupt: pathlib.Path({str(cleaned)!r}).touch()"
    )
    program = (
        "import signal, sys\n"
        "from deploy.checks import steps\n"
        "from deploy.commands import test as gate\n"
        "signal.signal(signal.SIGTERM, gate.interrupted)\n"
        f"steps.run([steps.Step(name, [sys.executable, '-c', {works!r}]) for name in 'ab'])"
    )
    gate = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.DEVNULL)
    watchdog = threading.Timer(60, gate.kill)
    watchdog.start()
    until(ready.exists, "the steps to run")

    gate.send_signal(signal.SIGTERM)

    assert gate.wait() == 128 + signal.SIGTERM
    assert cleaned.exists()
    watchdog.cancel()
