"""By the kernel's record, the broker writes only to its store, and only for itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.ports import accepts
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until
from tools.faults import syscalls

pytestmark = pytest.mark.fault

SECONDS = 240
CALLS = "open,openat,openat2,creat,mkdir,mkdirat,rename,renameat,renameat2,link,linkat,symlink"
CALLS += ",symlinkat,mknod,mknodat,truncate,unlink,unlinkat,chmod,fchmodat,bind,execve"
NOWHERE = ("/dev/null", "/dev/urandom", "/proc/self/")
LINE = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
PATH = re.compile(r'"((?:[^"\\]|\\.)*)"')
WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")


def changed_paths(trace: str) -> set[str]:
    """Return the paths that successful calls wrote, created, renamed or removed."""
    found = set()
    for line in trace.splitlines():
        match = LINE.match(line)
        if match is None or int(match[3]) < 0:
            continue
        call, arguments, _ = match.groups()
        if call in {"bind", "execve"} or (call.startswith("open") and not WRITES.search(arguments)):
            continue
        found |= set(PATH.findall(arguments))
    return found


def test_a_broker_at_work_changes_nothing_outside_its_directory(tmp_path: Path) -> None:
    if reason := syscalls.missing():
        pytest.skip(f"{reason} is missing (deploy/test all --install adds it)")
    broker = BrokerProcess(tmp_path / "broker", messageDelayLevel="1s 2s")
    trace = tmp_path / "trace"
    process = subprocess.Popen(
        [
            *("strace", "-f", "-qq", "-s", "4096", "-e", f"trace={CALLS}", "-o", str(trace)),
            *(sys.executable, "-m", "broker_core", "-c", str(broker.file)),
        ],
        # The interpreter's own caches aren't files of the broker.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=broker.checkout,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: accepts(broker.port), "the broker to listen", seconds=SECONDS)
        work(broker.port)
    finally:
        child = int(
            (Path("/proc") / str(process.pid) / "task" / str(process.pid) / "children")
            .read_text()
            .split()[0]
        )
        os.kill(child, signal.SIGTERM)
        assert process.wait(SECONDS) == 0

    text = trace.read_text(errors="replace")
    changed = changed_paths(text)
    outside = {
        path
        for path in changed
        if not Path(path).is_relative_to(broker.directory) and not path.startswith(NOWHERE)
    }
    assert outside == set()
    assert {path for path in changed if "commitlog" in path}, "the trace shows no write at all"
    # It also executes no other program.
    programs = [line for line in text.splitlines() if " execve(" in line and " = 0" in line]
    assert len(programs) == 1, programs
    readable = [path for path in broker.store.rglob("*") if path.lstat().st_mode & 0o077]
    assert readable == []


def work(port: int) -> None:
    """Make it write files of each kind: log, queues, index, topics, groups, offsets, delays."""
    raw_remoting.create_topic(port, "worked", queues=2)
    with RawClient(port, timeout=SECONDS) as client:
        for number in range(50):
            more = "\x02DELAY\x011" if number % 5 == 0 else ""
            fields = raw_remoting.send_fields("worked", properties=f"KEYS\x01k{number}{more}")
            assert client.ask(raw_remoting.SEND_MESSAGE, fields, b"x" * 1_000).code == 0
        fields = raw_remoting.pull_fields("worked", 0, 0)
        assert client.ask(raw_remoting.PULL_MESSAGE, fields).code == 0
        # A path traversal in the name.
        odd = raw_remoting.send_fields("../../../../tmp/elsewhere")
        assert client.ask(raw_remoting.SEND_MESSAGE, odd, b"x").code != 0
