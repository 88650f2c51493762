"""The appliance's start: what it waits for, and what it says meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from deploy import appliance as module
from deploy.appliance import Appliance

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class SlowSupervisor:
    """Starts what it is told to, and has a log for each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.started: list[str] = []

    def log_of(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def start(self, environment: object) -> None:
        """Nothing is to be started first."""

    def start_process(self, name: str) -> None:
        self.started.append(name)


class SlowAppliance(Appliance):
    """Whose processes are ready when they have been asked after five times."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.asked: list[str] = []

    def _is_ready(self, name: str) -> bool:
        self.asked.append(name)
        return len(self.asked) > 5

    def _turn(self) -> None:
        """No process has a log."""

    def _watch(self) -> None:
        """No process ends."""


def test_a_slow_start_is_told_again_and_again_until_all_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    supervisor = SlowSupervisor(tmp_path)
    chosen = [SimpleNamespace(name=name, priority=at) for at, name in enumerate(("broker", "web"))]
    one = SlowAppliance(SimpleNamespace(), {}, supervisor, chosen, None)
    said: list[str] = []
    monkeypatch.setattr(module, "REMIND_EVERY_S", -1.0)
    monkeypatch.setattr(module, "say", said.append)

    one.start({})

    assert supervisor.started == ["broker", "web"]
    assert set(one.asked) == {"broker", "web"}
    assert len(said) > 1
    assert set(said) == {f"Still waiting for broker; see {tmp_path / 'broker.log'}."}
