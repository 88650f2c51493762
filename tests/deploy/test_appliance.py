"""The appliance's start: its prerequisites, its messages, and when it gives up."""

from __future__ import annotations

import xmlrpc.client
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from deploy.commands import up as module
from deploy.commands.up import ENDS_MAX, Appliance, NotKeptRunningError
from deploy.processes.orphans import UNKNOWN
from deploy.processes.supervision import ProcessInfo, State, SupervisorError
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path


class SlowSupervisor:
    """Starts requested processes, with a log for each."""

    is_running = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.started: list[str] = []

    def log_of(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def start(self, environment: object) -> None:
        """Do nothing."""

    def start_process(self, name: str) -> None:
        self.started.append(name)


class SlowAppliance(Appliance):
    """An appliance whose processes are ready at the fifth check."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.requests: list[str] = []

    def _is_ready(self, name: str) -> bool:
        self.requests.append(name)
        return len(self.requests) > 5

    def _turn(self) -> None:
        """Read no logs."""

    def _watch(self) -> None:
        """Do nothing; no process ends."""


def test_a_slow_start_is_reported_repeatedly_until_everything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    supervisor = SlowSupervisor(tmp_path)
    chosen = [SimpleNamespace(name=name, priority=at) for at, name in enumerate(("broker", "web"))]
    one = SlowAppliance(SimpleNamespace(), {}, supervisor, chosen, None)
    messages: list[str] = []
    monkeypatch.setattr(module, "REMIND_EVERY_S", -1.0)
    monkeypatch.setattr(module, "say", messages.append)

    one.start({})

    assert supervisor.started == ["broker", "web"]
    assert set(one.requests) == {"broker", "web"}
    assert len(messages) > 1
    assert set(messages) == {f"Still waiting for broker; see {tmp_path / 'broker.log'}."}


SENTENCE = "broker_core: /data/conf/plain_acl.yml is not YAML at line 3"


class EndingSupervisor(SlowSupervisor):
    """A supervisor whose broker ends at every check, after it counted as running."""

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
        """Do nothing; no process is left."""


def test_a_broker_that_exits_repeatedly_is_abandoned_with_its_error(
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
def test_the_output_after_the_start_has_the_password_once_and_how_to_set_another(
    tmp_path: Path, words: list[str]
) -> None:
    options = SimpleNamespace(web_host="127.0.0.1", web_port=8080, data=tmp_path)
    one = SimpleNamespace(
        namesrv="127.0.0.1:9876", advertised="127.0.0.1", listen_port=10911, grpc_port=8081
    )

    text = module.summary(options, {"broker": one}, words, has_java=True)  # type: ignore[arg-type,dict-item]

    assert ("manage.py changepassword admin" in text) is not bool(words)
    assert all(word in text for word in words)


class LeftBehind:
    """Orphans, some of which have ended at each check."""

    def __init__(self, *left: set[str]) -> None:
        self._left = list(left)
        self.looks = 0

    def names(self) -> set[str]:
        self.looks += 1
        return self._left.pop(0) if self._left else set()


class LostSupervisor(SlowSupervisor):
    """Dies once, `has_ended` or not; some of its orphans end at each check."""

    def __init__(self, directory: Path, *left: set[str], has_ended: bool) -> None:
        super().__init__(directory)
        self._has_ended = has_ended
        self._left = LeftBehind(*left)
        self.lost = 0
        self.at_looks: list[tuple[str, int]] = []

    def has_ended(self) -> bool:
        return self._has_ended

    def orphans(self) -> LeftBehind:
        self.lost += 1
        self.started.clear()
        self.at_looks.clear()
        return self._left

    def start_process(self, name: str) -> None:
        super().start_process(name)
        self.at_looks.append((name, self._left.looks))


class LosingAppliance(SlowAppliance):
    """Loses its supervisor at the first turn of its run, and is asked to stop when all run."""

    is_lost = False

    def _turn(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            raise SupervisorError("supervisord doesn't respond")

    def _start_again(self) -> None:
        super()._start_again()
        self.stop_asked = True


def losing(
    tmp_path: Path, *left: set[str], has_ended: bool = True
) -> tuple[LostSupervisor, LosingAppliance]:
    supervisor = LostSupervisor(tmp_path, *left, has_ended=has_ended)
    chosen = [
        SimpleNamespace(name=name, priority=at)
        for at, name in enumerate(("redis", "broker", "web", "worker", "beat"))
    ]
    one = LosingAppliance(SimpleNamespace(is_verbose=True), {}, supervisor, chosen, None)
    one.requests += ["before"] * 10
    one.start({})
    return supervisor, one


def test_everything_is_restarted_after_supervisord_was_killed(tmp_path: Path) -> None:
    supervisor, one = losing(tmp_path)

    one.run()

    assert supervisor.lost == 1
    assert supervisor.started == ["redis", "broker", "web", "worker", "beat"]


def test_each_process_waits_only_for_the_end_of_its_predecessor(
    tmp_path: Path,
) -> None:
    late = {"web", "worker", "beat"}
    supervisor, one = losing(
        tmp_path, {"redis", "broker", *late}, {"broker", *late}, late, {"worker"}, {"worker"}
    )

    one.run()

    assert supervisor.at_looks == [
        ("redis", 2),
        ("broker", 3),
        ("web", 4),
        ("beat", 4),
        ("worker", 6),
    ]


def test_nothing_is_started_beside_a_process_of_unknown_origin(
    tmp_path: Path,
) -> None:
    supervisor, one = losing(tmp_path, {UNKNOWN, "web"}, {UNKNOWN})

    one.run()

    assert {looks for _, looks in supervisor.at_looks} == {3}


def test_a_live_but_unresponsive_supervisord_ends_the_appliance(tmp_path: Path) -> None:
    supervisor, one = losing(tmp_path, has_ended=False)

    with pytest.raises(SupervisorError):
        one.run()

    assert supervisor.lost == 0


class DyingSupervisor(LostSupervisor):
    """Dies unnoticed, and answers no requests from then on."""

    def processes(self) -> dict[str, ProcessInfo]:
        if not self.is_running:
            raise SupervisorError("supervisord doesn't respond")
        return {}


def test_a_killed_supervisord_is_noticed_before_the_next_query(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.0)
    supervisor = DyingSupervisor(tmp_path, has_ended=False)
    one = Appliance(SimpleNamespace(is_verbose=True), {}, supervisor, [], None)  # type: ignore[arg-type]
    one.start({})
    # The next periodic check is far off.
    monkeypatch.setattr(module, "WATCH_EVERY_S", float("inf"))
    supervisor.is_running = False

    with pytest.raises(SupervisorError):
        one.run()


class RefusingSupervisor(SlowSupervisor):
    """A supervisor that refuses to restart its worker, whose program is missing."""

    is_stopped = False

    def processes(self) -> dict[str, ProcessInfo]:
        is_over = self.is_stopped
        return {
            "worker": ProcessInfo(State.FATAL, 0),
            "beat": ProcessInfo(State.STOPPED if is_over else State.RUNNING, 7),
        }

    def stop_process(self, name: str) -> None:
        self.is_stopped = True

    def shutdown(self) -> None:
        """Do nothing: no process runs."""

    def start_process(self, name: str) -> None:
        super().start_process(name)
        if self.started.count(name) > 1:
            raise xmlrpc.client.Fault(10, "NO_FILE")


class StoppedAppliance(Appliance):
    """An appliance that stops after `stops_after` turns; each turn finds a new line in a log."""

    log: Path
    turns = 0
    stops_after = -1

    def _turn(self) -> None:
        self.turns += 1
        with self.log.open("a") as log:
            log.write(f"line {self.turns}\n")
        super()._turn()
        self.stop_asked = self.turns == self.stops_after


def test_neither_an_unstartable_program_nor_an_unreadable_log_affects_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("POLL_S", "WATCH_EVERY_S", "TRY_AGAIN_EVERY_S", "REMIND_EVERY_S"):
        monkeypatch.setattr(module, name, 0.0)
    monkeypatch.setattr(module, "complain", lambda _: None)
    labelled: list[str] = []
    monkeypatch.setattr(module, "labelled", lambda name, line: labelled.append(line))
    supervisor = RefusingSupervisor(tmp_path)
    supervisor.log_of("worker").mkdir()
    supervisor.log_of("beat").write_text("")
    chosen = [SimpleNamespace(name=name, priority=0, stop_seconds=0) for name in ("worker", "beat")]
    one = StoppedAppliance(SimpleNamespace(is_verbose=True), {}, supervisor, chosen, None)  # type: ignore[arg-type]
    one.log = supervisor.log_of("beat")
    one.start({})
    one.stops_after = one.turns + 3
    one.run()
    one.stop()

    assert supervisor.started.count("worker") > 2
    assert labelled[-1] == f"line {one.stops_after}"
