"""Orphans of a killed supervisord are asked to end, and killed when they are late."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from deploy.processes import orphans as module
from deploy.processes.orphans import UNKNOWN, Orphans
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

SUPERVISOR = """
import json, os, subprocess, sys
os.setsid()
ends, stays = (
    [sys.executable, "-c", f"import signal, time; {line}; print(1, flush=True); time.sleep(3600)"]
    for line in ("pass", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
)
children = [
    subprocess.Popen(one, process_group=0, stdout=subprocess.PIPE) for one in (ends, stays, stays)
]
for one in children:
    one.stdout.readline()
print(json.dumps([one.pid for one in children]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def left_behind() -> Iterator[tuple[int, list[int]]]:
    """Yield a killed supervisor's session and three processes: the first ends when asked."""
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as supervisor:
        assert supervisor.stdout is not None
        pids: list[int] = json.loads(supervisor.stdout.readline())
        supervisor.kill()
    yield supervisor.pid, pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def program(name: str, *, is_broker: bool = False) -> Any:
    return SimpleNamespace(name=name, is_broker=is_broker)


def test_a_hanging_process_is_killed_and_a_broker_has_longer(
    monkeypatch: pytest.MonkeyPatch, left_behind: tuple[int, list[int]]
) -> None:
    session, (web, worker, broker) = left_behind
    monkeypatch.setattr(module, "ENDS_WITHIN_S", 3600.0)
    monkeypatch.setattr(module, "BROKER_ENDS_WITHIN_S", 3600.0)

    found = Orphans(
        session,
        {web: program("web"), worker: program("worker"), broker: program("broker", is_broker=True)},
    )

    until(lambda: found.names() == {"worker", "broker"}, "the obedient process to end")
    monkeypatch.setattr(module, "ENDS_WITHIN_S", -1.0)
    until(lambda: found.names() == {"broker"}, "the late process to end")
    monkeypatch.setattr(module, "BROKER_ENDS_WITHIN_S", -1.0)
    found.wait()
    assert found.names() == set()


def test_a_process_started_after_supervisord_was_queried_is_also_stopped(
    monkeypatch: pytest.MonkeyPatch, left_behind: tuple[int, list[int]]
) -> None:
    session, (web, worker, _) = left_behind
    monkeypatch.setattr(module, "ENDS_WITHIN_S", -1.0)
    monkeypatch.setattr(module, "BROKER_ENDS_WITHIN_S", 3600.0)

    found = Orphans(session, {web: program("web"), worker: program("worker")})

    until(lambda: found.names() == {UNKNOWN}, "the known processes to end")
    monkeypatch.setattr(module, "BROKER_ENDS_WITHIN_S", -1.0)
    found.wait()
    assert found.names() == set()
