"""The appliance in the foreground: the part of deploy/up that runs inside .venv.

It prepares the data directory, broker configuration, ports, Java, Redis and the console's tables in
this order, and then starts the processes: redis, broker, web, collector, pipeline, worker, beat.
They stop in the reverse order.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import sys
import time
import xmlrpc.client
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from broker_core.isolation import isolated
from deploy.brokers import broker_file, cluster as own_brokers, slave
from deploy.commands.bootstrap import STARTED_AT
from deploy.install.virtualenv import ROOT
from deploy.machine import fonts, java, ports, redis_server
from deploy.machine.data_directory import NotStartedError, lock, run_directory
from deploy.processes import privileges, programs
from deploy.processes.digest import LABEL, Digest
from deploy.processes.log_follower import LogFollower
from deploy.processes.orphans import UNKNOWN, Orphans
from deploy.processes.supervision import Supervisor, SupervisorError
from deploy.settings import options, secret_files
from deploy.terminal.output import complain, labelled, say
from deploy.terminal.translation import padded, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from deploy.brokers.broker_file import BrokerSettings
    from deploy.processes.programs import Program
    from deploy.settings.options import Options

ESSENTIAL = frozenset({"broker", "web"})
"""The appliance stops without these; without another process it continues and reports it."""
FIRST = ("redis", "broker")
"""Each of them must be ready before the others are started."""
POLL_S = 0.1
WATCH_EVERY_S = 1.0
REMIND_EVERY_S = 30.0
ENDS_MAX = 5
"""A process that ends this often in a row, without ever being ready, is given up."""
TRY_AGAIN_EVERY_S = 60.0
STOP_GRACE_S = 10.0
ENDS_WITH = "broker_core: "
"""Prefix of the broker's last line when it can't continue."""
MISSING_REDIS = "redis-is-missing.sock"
READY_LINES = {
    "collector": "collecting",
    "pipeline": "pipeline standing by",
    "worker": " ready.",
    "beat": "beat: Starting",
}
"""These have no port to check: each is ready when it logs this text."""
WITHOUT = {
    "collector": "The {name} process keeps ending. Messages and the console work, but no "
    "history is recorded until it runs again.",
    "broker": "The {name} process keeps ending. The other brokers and the console work; its "
    "messages stay on disk until it runs again.",
    "pipeline": "The {name} process keeps ending. Messages and the console work, but the lake "
    "doesn't grow and reports don't run until it runs again.",
    "slave": "The {name} process keeps ending. Messages and the console work, but messages "
    "have no second copy until it runs again.",
    "worker": "The {name} process keeps ending. Messages and the console work, but scheduled "
    "queries don't run until it runs again.",
}
"""The effect of a missing process; any other has the effect of a missing worker."""
WITHOUT_JAVA = "not available: Java 17 or newer is missing"
NEW_PASSWORD = ".venv/bin/python manage.py changepassword"
STOPPED, NOT_KEPT_RUNNING, NOT_STARTED = 0, 1, 2


class StopSignal(BaseException):
    """A signal arrived before anything ran. Not an Exception, so that no handler swallows it."""


class NotKeptRunningError(Exception):
    """supervisord gave up a process that the appliance needs; holds its name."""


class Appliance:
    """The processes of one data directory. Use from one thread."""

    def __init__(
        self,
        settings: Options,
        brokers: Mapping[str, BrokerSettings],
        supervisor: Supervisor,
        chosen: Sequence[Program],
        redis_socket: Path | None,
    ) -> None:
        self._options = settings
        self._brokers = brokers
        self._supervisor = supervisor
        self._programs = sorted(chosen, key=lambda one: one.priority)
        self._redis_socket = redis_socket
        self._followers = {one.name: LogFollower(supervisor.log_of(one.name)) for one in chosen}
        # Set once the appliance is announced; the log files have all lines.
        self._digest: Digest | None = None
        self._started: set[str] = set()
        self._ready_lines: set[str] = set()
        self._last_lines: dict[str, str] = {}
        # Why a broker ended; lines of its next start may follow it in the log.
        self._sentences: dict[str, str] = {}
        self._given_up: dict[str, float] = {}
        self._pids: dict[str, int] = {}
        # How often an essential process has ended since it was last ready.
        self._ends: dict[str, int] = {}
        self._watched_at = 0.0
        self._environment: Mapping[str, str] = {}
        # Processes of a killed supervisord; a program starts again once its old process has ended.
        self._orphans: Orphans | None = None
        self.stop_asked = False

    def start(self, environment: Mapping[str, str]) -> None:
        """Start the processes, each when the earlier ones are ready.

        Raises:
            NotKeptRunningError: an essential process doesn't run.
            SupervisorError: nothing can be started.
        """
        self._environment = environment
        self._supervisor.start(environment)
        names = [one.name for one in self._programs]
        for name in FIRST:
            if name in names:
                self._start_processes([name])
                self._wait_until_ready([name])
        # The others need only these, and each takes seconds to import its libraries.
        self._start_processes([name for name in names if name not in FIRST])
        self._wait_until_ready(names)
        # From here on the supervisor reports each process that ends, so read all states before
        # announcing the start.
        self._watch()

    def run(self) -> None:
        """Show the logs and watch the processes until asked to stop.

        Raises:
            NotKeptRunningError: an essential process was given up.
            SupervisorError: supervisord doesn't respond, or ended again at once.
        """
        if not self._options.is_verbose:
            self._digest = Digest()
        while not self.stop_asked:
            try:
                self._turn()
            except SupervisorError:
                if not self._supervisor.has_ended():
                    raise
                self._start_again()

    def _start_processes(self, names: Sequence[str]) -> None:
        """Start processes, each once its previous process has ended."""
        waiting = list(names)
        while waiting and not self.stop_asked:
            left = self._look_at_orphans()
            for name in [] if UNKNOWN in left else [one for one in waiting if one not in left]:
                # Show the previous process's last lines first, so they aren't attributed to the
                # next one.
                self._show_logs()
                self._ready_lines.discard(name)
                self._supervisor.start_process(name)
                self._started.add(name)
                waiting.remove(name)
            if waiting:
                self._turn()

    def _look_at_orphans(self) -> set[str]:
        """Return the programs whose old processes still run, and kill late ones."""
        left = self._orphans.names() if self._orphans is not None else set()
        if not left:
            self._orphans = None
        return left

    def _start_again(self) -> None:
        """Restart everything after supervisord was killed."""
        say(translated("supervisord ended; restarting everything."))
        self._orphans = self._supervisor.orphans()
        for known in (self._started, self._ready_lines, self._pids, self._ends, self._given_up):
            known.clear()
        self.start(self._environment)
        if not self.stop_asked:
            say(translated("Everything is running again."))

    def stop(self) -> None:
        """Stop every process in reverse order."""
        self._digest = None
        names = ", ".join(one.name for one in reversed(self._programs))
        say(translated("Stopping: {names}", names=names))
        try:
            for program in reversed(self._programs):
                self._supervisor.stop_process(program.name)
                deadline = time.monotonic() + program.stop_seconds + STOP_GRACE_S
                while not self._supervisor.processes()[program.name].state.is_over:
                    self._show_logs()
                    if time.monotonic() > deadline:
                        break
                    time.sleep(POLL_S)
                self._show_logs()
        except SupervisorError:
            self._supervisor.orphans().wait()
        self._supervisor.shutdown()
        if self._orphans is not None:
            self._orphans.wait()
        self._show_logs()
        for follower in self._followers.values():
            follower.close()

    @property
    def given_up(self) -> list[str]:
        return sorted(self._given_up)

    def _wait_until_ready(self, names: Sequence[str]) -> None:
        remind_at = time.monotonic() + REMIND_EVERY_S
        while not self.stop_asked:
            waiting = [
                name for name in names if name not in self._given_up and not self._is_ready(name)
            ]
            if not waiting:
                return
            if time.monotonic() > remind_at:
                log = self._supervisor.log_of(waiting[0])
                missing = ", ".join(waiting)
                say(translated("Still waiting for {names}; see {log}.", names=missing, log=log))
                if ESSENTIAL.isdisjoint(waiting):
                    # Messages and pages work without reports; the Reports page shows the problem.
                    return
                remind_at = time.monotonic() + REMIND_EVERY_S
            self._turn()

    def _is_ready(self, name: str) -> bool:
        if name in self._brokers:
            broker = self._brokers[name]
            return all(ports.accepts(broker.bind_address, port) for _, port, _ in broker.ports)
        match name:
            case "redis":
                return self._redis_socket is not None and redis_server.answers(self._redis_socket)
            case "web":
                return ports.is_healthy(self._options.web_host, self._options.web_port)
            case _:
                return name in self._ready_lines

    def _turn(self) -> None:
        time.sleep(POLL_S)
        self._look_at_orphans()
        self._show_logs()
        is_due = time.monotonic() - self._watched_at >= WATCH_EVERY_S
        if is_due or not self._supervisor.is_running:
            self._watched_at = time.monotonic()
            self._watch()

    def _show_logs(self) -> None:
        for name, follower in self._followers.items():
            # An unreadable log must not end the processes.
            with isolated("reading the log of a process", name):
                for line in follower.lines():
                    self._take_line(name, line)
        counted = None if self._digest is None else self._digest.summary()
        if counted is not None:
            labelled(LABEL, counted)

    def _take_line(self, name: str, line: str) -> None:
        if line.strip():
            self._last_lines[name] = line.strip()
        if line.startswith(ENDS_WITH):
            self._sentences[name] = line.strip()
        ready = READY_LINES.get(_kind(name))
        if ready is not None and ready in line:
            self._ready_lines.add(name)
        if self._digest is None or self._digest.shows(name, line):
            labelled(name, line)

    def _watch(self) -> None:
        for name, info in self._supervisor.processes().items():
            if name not in self._started:
                continue
            if info.state.name == "FATAL":
                self._not_kept_running(name)
            elif info.pid:
                # supervisord may still report STARTING: the process may end before it is RUNNING.
                before = self._pids.get(name, info.pid)
                self._pids[name] = info.pid
                if before != info.pid and name not in self._given_up:
                    say(translated("{name} ended and was restarted.", name=name))
                    self._count_end(name)
                elif self._ends.get(name) and self._is_ready(name):
                    self._ends[name] = 0
                    self._sentences.pop(name, None)
                if info.state.name == "RUNNING" and self._given_up.pop(name, None) is not None:
                    say(translated("{name} is running again.", name=name))

    def _count_end(self, name: str) -> None:
        """Give up an essential process that keeps ending.

        supervisord considers a process running if it fails after START_SECONDS, so count here.
        """
        if name not in ESSENTIAL:
            return
        self._ends[name] = self._ends.get(name, 0) + 1
        if self._ends[name] >= ENDS_MAX:
            self._not_kept_running(name)

    def _not_kept_running(self, name: str) -> None:
        log = self._supervisor.log_of(name)
        last = self._sentences.get(name) or self._last_lines.get(name)
        ends = translated("The log {log} ends with: {last}", log=log, last=last)
        where = ends if last else translated("Log: {log}", log=log)
        if name in ESSENTIAL:
            what = translated("The {name} process keeps ending.", name=name)
            raise NotKeptRunningError(f"{what} {where}")
        now = time.monotonic()
        if name not in self._given_up:
            without = translated(WITHOUT.get(_kind(name), WITHOUT["worker"]), name=name)
            complain(f"{without} {where}")
            self._given_up[name] = now
        elif now - self._given_up[name] >= TRY_AGAIN_EVERY_S:
            self._given_up[name] = now
            # supervisord refuses if the program is missing; the other processes keep running.
            with contextlib.suppress(xmlrpc.client.Fault):
                self._supervisor.start_process(name)


def _kind(name: str) -> str:
    """Return the kind of a process: `broker` for broker-b."""
    return name.partition("-")[0]


@contextlib.contextmanager
def secrets_in(directory: Path, secrets: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Yield the variables that name the console's secret files, which are deleted at the end."""
    try:
        yield secret_files.write(directory, secrets)
    finally:
        secret_files.remove(directory)


def require_writable(store: Path) -> None:
    """Check that this user can write to the broker's store, which may be anywhere."""
    there = next(each for each in (store, *store.parents) if each.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        name = pwd.getpwuid(os.geteuid()).pw_name
        what = translated("Can't create {store}: {there}", store=store, there=there)
        raise NotStartedError(
            translated(
                "The user {name} can't write to the store directory {what}; to change its "
                "owner, run: chown -hR {name}: {there}",
                what=store if there == store else what,
                name=name,
                there=there,
            )
        )


def require_free_ports(asked: Options, brokers: Mapping[str, BrokerSettings]) -> None:
    wanted: list[tuple[str, int, str, Path | None]] = []
    for name, broker in brokers.items():
        whose = "" if name == own_brokers.FIRST else f" {name}"
        is_slave = slave.is_slave_process(name)
        if is_slave:
            purpose = translated("slave (--slave), ten above the broker's listenPort")
            wanted.append((broker.bind_address, broker.listen_port, purpose, None))
        # A slave's file is made from its master's at each start.
        master = own_brokers.FIRST + name.removeprefix(slave.NAME) if is_slave else name
        for key, port, use in broker.ports:
            is_grpc = key == broker_file.GRPC_KEY
            if is_grpc or not is_slave:
                purpose = f"{translated(use)}{whose} ({key})"
                file = brokers[master].file if is_grpc else None
                wanted.append((broker.bind_address, port, purpose, file))
    wanted.append((asked.web_host, asked.web_port, translated("console (--web)"), None))
    claimed: dict[int, str] = {}
    for host, port, purpose, grpc_file in wanted:
        other = claimed.setdefault(port, purpose)
        same = other is not purpose
        also = translated("is also set for the {other}", other=other)
        reason = also if same else ports.port_problem(host, port)
        if reason is not None:
            sentence = translated(
                "Port {port} of {host}, for the {purpose}, {reason}.",
                port=port,
                host=host,
                purpose=purpose,
                reason=reason,
            )
            if grpc_file is not None:
                # The port is on by default, so the operator may not know about it.
                sentence += " " + translated(
                    "Set grpcListenPort in {file} to another port, or to 0 to turn it off.",
                    file=grpc_file,
                )
            raise NotStartedError(sentence)


def prepare(environment: Mapping[str, str]) -> list[str]:
    """Prepare the console; return the lines for the administrator."""
    done = subprocess.run(
        [sys.executable, "-m", "deploy.commands.prepare"],
        cwd=ROOT,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    said = done.stderr.strip()
    if done.returncode != 0:
        raise NotStartedError(said or translated("Couldn't prepare the console."))
    if said:
        complain(said)
    return [line for line in done.stdout.splitlines() if line.strip()]


def summary(
    asked: Options,
    brokers: Mapping[str, BrokerSettings],
    words: Sequence[str],
    *,
    has_java: bool,
) -> str:
    host = ports.reachable_host(asked.web_host)
    shown = f"[{host}]" if ":" in host else host
    command = f"{NEW_PASSWORD} {os.environ.get('TREBUCHET_ADMIN', '').strip() or 'admin'}"
    seconds = time.monotonic() - float(os.environ.get(STARTED_AT, time.monotonic()))
    rows = [
        (translated("console"), f"http://{shown}:{asked.web_port}/"),
        *(
            ("", word)
            for word in words or (translated("set a new password: {command}", command=command),)
        ),
        (translated("name server"), brokers[own_brokers.FIRST].namesrv),
        *(
            (
                translated(_kind(name)) + name[len(_kind(name)) :],
                f"{one.advertised}:{one.listen_port}",
            )
            for name, one in brokers.items()
        ),
        *(
            (translated("gRPC clients"), f"{one.advertised}:{one.grpc_port}")
            for one in own_brokers.masters(brokers).values()
            if one.grpc_port
        ),
        (translated("data"), str(asked.data)),
        *(() if has_java else ((translated("reports"), translated(WITHOUT_JAVA)),)),
    ]
    title = translated("Trebuchet is up after {seconds:.1f} s; Ctrl-C stops it.", seconds=seconds)
    lines = [f"  {padded(label, 12)} {value}" for label, value in rows]
    return "\n".join(["", title, *lines, ""])


def bring_up(asked: Options, secrets: Mapping[str, str]) -> int:
    """Run the appliance until it ends; return the exit code.

    This process's environment no longer contains secrets; `secrets` are the console's.

    Raises:
        NotStartedError: nothing was started.
    """
    with (
        lock(asked.data),
        run_directory(asked.data) as sockets,
        secrets_in(sockets / "secrets", secrets) as secret_variables,
    ):
        try:
            first = broker_file.settings(broker_file.effective_file(asked.broker_file, asked.data))
            require_writable(Path(first.store))
            brokers = own_brokers.settings(first, asked)
        except broker_file.BrokerFileError as error:
            raise NotStartedError(str(error)) from error
        for one in brokers.values():
            require_writable(Path(one.store))
        require_free_ports(asked, brokers)
        alone = own_brokers.not_started(brokers, asked.data)
        if alone:
            complain(own_brokers.warning_of(alone, asked.data))
        java.install()
        without_java = java.missing()
        engine = java.engine(os.environ, without_java)
        fonts.ensure()
        redis_socket: Path | None = None
        redis_command: Sequence[str] | None = None
        redis_url = asked.redis_url
        if redis_url is None:
            binary = redis_server.find()
            if binary is not None:
                redis_socket = sockets / "redis.sock"
                redis_command = redis_server.command(binary, redis_socket, asked.data / "redis")
            redis_url = redis_server.url(redis_socket or sockets / MISSING_REDIS)
        # Debian's packages are installed; nothing needs more privileges from here on.
        privileges.give_up_new_privileges()
        environment = {
            **os.environ,
            **programs.variables(asked, brokers, os.environ.get("TREBUCHET_BROKERS", ""), engine),
            **secret_variables,
        }
        if asked.redis_url is None:
            # A socket has no password.
            environment["TREBUCHET_REDIS_URL"] = redis_url
        # Long-running processes don't need the administrator's password.
        once = {name: secrets[name] for name in secrets if name == secret_files.ADMIN_PASSWORD}
        words = prepare(environment | once)
        with_queue = redis_command is not None or asked.redis_url is not None
        chosen = programs.chosen(asked, brokers, redis_command, with_queue=with_queue)
        supervisor = Supervisor(sockets, asked.data / "logs", chosen)
        appliance = Appliance(asked, brokers, supervisor, chosen, redis_socket)
        has_java = without_java is None
        return _run(
            appliance, environment, lambda: summary(asked, brokers, words, has_java=has_java)
        )


def _run(appliance: Appliance, environment: Mapping[str, str], text: Callable[[], str]) -> int:
    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        appliance.stop_asked = True

    _on_signals(ask_to_stop)
    failure = ""
    try:
        appliance.start(environment)
        if not appliance.stop_asked:
            say(text())
        appliance.run()
    except (NotKeptRunningError, SupervisorError) as error:
        failure = str(error)
    finally:
        appliance.stop()
    if failure:
        complain(failure)
        return NOT_KEPT_RUNNING
    if appliance.given_up:
        names = ", ".join(appliance.given_up)
        complain(translated("Stopped; {names} wasn't running.", names=names))
        return NOT_KEPT_RUNNING
    say(translated("Stopped."))
    return STOPPED


def _on_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def _raise_stop_signal(number: int, frame: FrameType | None) -> NoReturn:
    raise StopSignal


def main(arguments: Sequence[str]) -> int:
    _on_signals(_raise_stop_signal)
    os.umask(0o077)
    try:
        secrets = secret_files.take(os.environ)
        return bring_up(options.parse(arguments, {**os.environ, **secrets}), secrets)
    except (options.OptionError, NotStartedError) as error:
        complain(str(error))
        return NOT_STARTED
    except StopSignal:
        say(translated("Stopped before anything was started."))
        return STOPPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
