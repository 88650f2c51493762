"""Spark's Python daemons are forked from a process that has imported what they need."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics.zygote import launcher
from tests.support.processes import command_of, environment_of, tree
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent
# A command that has a zygote and stays until its standard input ends.
COMMAND = """
import sys
from pathlib import Path
from analytics.zygote import Zygote
zygote = Zygote(sys.stdout)
zygote.listen(Path(sys.argv[1]))
print(zygote.pid, flush=True)
sys.stdin.read()
"""
SECONDS = 60


class Command:
    """A running command with a zygote that listens in a directory."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        self.zygote = int(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate(timeout=SECONDS)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    # Longer than the address of a socket may be.
    deep = tmp_path / ("deep" * 20) / ("deeper" * 15)
    deep.mkdir(parents=True)
    return deep


@pytest.fixture
def command(directory: Path) -> Iterator[Command]:
    running = Command(directory)
    yield running
    running.end()


@pytest.fixture
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


def daemon(directory: Path, sockets: Path) -> subprocess.Popen[bytes]:
    """Start a Python as Spark does: it tells where it listens on standard output."""
    python = directory / "python"
    python.write_text(
        f'#!/bin/sh\n{launcher(sys.executable, directory)}exec {sys.executable} "$@"\n'
    )
    python.chmod(0o700)
    return subprocess.Popen(
        [python, "-m", "pyspark.daemon", "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ
        | {
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": str(sockets),
        },
    )


def until_gone(pid: int) -> None:
    until(lambda: not environment_of(pid), "the zygote to end", seconds=SECONDS)


def has_one_output(pid: int) -> bool:
    """Return whether standard output and standard error go to one place."""
    files = Path(f"/proc/{pid}/fd")
    try:
        return (files / "1").readlink() == (files / "2").readlink()
    except FileNotFoundError:  # just closed, not yet replaced
        return False


def address_of(started: subprocess.Popen[bytes]) -> Path:
    assert started.stdout is not None
    length = int.from_bytes(started.stdout.read(4))
    return Path(started.stdout.read(length).decode())


def test_a_daemon_is_the_zygotes_child_with_the_files_and_environment_that_spark_gave(
    command: Command, directory: Path, sockets: Path
) -> None:
    started = daemon(directory, sockets)
    address = address_of(started)
    assert address.parent == sockets
    _, child = tree(command.zygote)
    assert os.getpgid(child) == child
    started.communicate(timeout=SECONDS)  # the end of standard input ends it
    assert started.returncode == 0
    assert not address.exists()
    until(lambda: tree(command.zygote) == [command.zygote], "the daemon to end", seconds=SECONDS)


def test_daemons_live_beside_each_other_and_worker_by_worker(
    command: Command, directory: Path, sockets: Path
) -> None:
    first, second = daemon(directory, sockets), daemon(directory, sockets)
    assert address_of(first) != address_of(second)
    _, one, other = tree(command.zygote)
    first.communicate(timeout=SECONDS)
    with socket.socket(socket.AF_UNIX) as worker:
        address = next(path for path in sockets.iterdir())
        worker.connect(str(address))
        pid = int.from_bytes(worker.recv(4))
        assert pid in {*tree(one), *tree(other)} - {one, other}
    second.communicate(timeout=SECONDS)


def test_without_a_zygote_the_launcher_is_the_python_that_spark_asked_for(
    directory: Path, sockets: Path
) -> None:
    started = daemon(directory, sockets)
    address = address_of(started)
    assert address.parent == sockets
    assert command_of(started.pid).endswith("-m pyspark.daemon pyspark.worker")
    started.communicate(timeout=SECONDS)


def test_the_launcher_leaves_other_modules_and_commands_to_python(
    command: Command, directory: Path, sockets: Path
) -> None:
    daemon(directory, sockets).communicate(timeout=SECONDS)
    asked = [str(directory / "python"), "-c", "import sys; print(sys.version_info[:2])"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=SECONDS)
    assert said.stdout == f"{sys.version_info[:2]}\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_zygote_ends_with_the_command_however_that_ends(
    directory: Path, number: signal.Signals
) -> None:
    command = Command(directory)
    os.kill(command.process.pid, number)
    command.process.wait(timeout=SECONDS)
    until_gone(command.zygote)
    command.end()


def test_a_daemon_outlives_the_zygote(directory: Path, sockets: Path) -> None:
    command = Command(directory)
    started = daemon(directory, sockets)
    address_of(started)
    command.end()
    until_gone(command.zygote)
    assert started.poll() is None
    started.communicate(timeout=SECONDS)


def test_the_zygote_keeps_nobody_waiting_for_the_end_of_the_commands_output(
    directory: Path,
) -> None:
    command = Command(directory)
    until(lambda: has_one_output(command.zygote), "the zygote to let go of it", seconds=SECONDS)
    os.kill(command.zygote, signal.SIGSTOP)
    try:
        command.end()  # reads standard output to its end
    finally:
        os.kill(command.zygote, signal.SIGCONT)
