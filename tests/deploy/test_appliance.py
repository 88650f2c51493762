"""The appliance's start: what it waits for, what it says meanwhile, and when it gives up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from deploy import appliance as module
from deploy.appliance import ENDS_MAX, Appliance, NotKeptRunningError
from deploy.supervision import ProcessInfo, State, SupervisorError
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path


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


SENTENCE = "broker_core: /data/conf/plain_acl.yml is not YAML at line 3"


class EndingSupervisor(SlowSupervisor):
    """Whose broker ends whenever somebody looks, after supervisord has taken it for running."""

    starts = 0
    state = State.RUNNING

    def processes(self) -> dict[str, ProcessInfo]:
        self.starts += 1
        with self.log_of("broker").open("a") as log:
            log.write(f"{SENTENCE}\nconfiguration: brokerName=broker-a\n")
        return {"broker": ProcessInfo(self.state, self.starts)}

    def stop_process(self, name: str) -> None:
        self.state = State.STOPPED

    def shutdown(self) -> None:
        """Nothing is left to be ended."""


def test_a_broker_that_ends_again_and_again_is_given_up_with_its_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("WATCH_EVERY_S", "POLL_S"):
        monkeypatch.setattr(module, name, 0.0)
    supervisor = EndingSupervisor(tmp_path)
    broker = SimpleNamespace(name="broker", priority=0, stop_seconds=0)
    settings = SimpleNamespace(ports=[("listenPort", free_port(), "")], bind_address="127.0.0.1")
    options = SimpleNamespace(is_verbose=True)
    one = Appliance(options, {"broker": settings}, supervisor, [broker], None)  # type: ignore[arg-type,dict-item,list-item]

    with pytest.raises(NotKeptRunningError) as given_up:
        one.start({})
    one.stop()

    assert str(given_up.value).endswith(f"ends with: {SENTENCE}")
    assert supervisor.starts > ENDS_MAX


@pytest.mark.parametrize("words", [[], ["Administrator admin, password a-b-c"]])
def test_what_stands_after_the_start_has_the_password_once_and_then_how_to_set_another(
    tmp_path: Path, words: list[str]
) -> None:
    options = SimpleNamespace(web_host="127.0.0.1", web_port=8080, data=tmp_path)
    one = SimpleNamespace(namesrv="127.0.0.1:9876", advertised="127.0.0.1", listen_port=10911)

    text = module.summary(options, {"broker": one}, words, has_java=True)  # type: ignore[arg-type,dict-item]

    assert ("manage.py changepassword admin" in text) is not bool(words)
    assert all(word in text for word in words)


class LostSupervisor(SlowSupervisor):
    """Is gone once, `has_ended` or not."""

    def __init__(self, directory: Path, *, has_ended: bool) -> None:
        super().__init__(directory)
        self._has_ended = has_ended
        self.orphans_ended = 0

    def has_ended(self) -> bool:
        return self._has_ended

    def end_orphans(self) -> None:
        self.orphans_ended += 1
        self.started.clear()


class LosingAppliance(SlowAppliance):
    """Loses its supervisor at the first turn of its run, and is asked to stop at the next."""

    turns = 0

    def _turn(self) -> None:
        self.turns += 1
        if self.turns == 1:
            raise SupervisorError("supervisord does not answer")
        self.stop_asked = True


def losing(tmp_path: Path, *, has_ended: bool) -> tuple[LostSupervisor, LosingAppliance]:
    supervisor = LostSupervisor(tmp_path, has_ended=has_ended)
    chosen = [SimpleNamespace(name=name, priority=at) for at, name in enumerate(("broker", "web"))]
    one = LosingAppliance(SimpleNamespace(is_verbose=True), {}, supervisor, chosen, None)
    one.asked += ["before"] * 10
    one.start({})
    return supervisor, one


def test_everything_is_started_again_when_supervisord_was_killed(tmp_path: Path) -> None:
    supervisor, one = losing(tmp_path, has_ended=True)

    one.run()

    assert supervisor.orphans_ended == 1
    assert supervisor.started == ["broker", "web"]


def test_a_supervisord_that_lives_and_does_not_answer_ends_the_appliance(tmp_path: Path) -> None:
    supervisor, one = losing(tmp_path, has_ended=False)

    with pytest.raises(SupervisorError):
        one.run()

    assert supervisor.orphans_ended == 0
