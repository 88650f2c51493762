"""Data directories of small appliances, and deploy/backup and deploy/restore run on them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from broker_core.clock import SystemClock
from broker_core.storage import FileStorage
from deploy.install.requirements import ROOT
from tests.support.builders import a_store, put, read_all, store_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker_core.config.store import StoreConfig
    from broker_core.message.message import MessageExt
    from broker_core.store.message_store import MessageStore

    Done = subprocess.CompletedProcess[str]

TOPIC = "TopicTest"
COUNT = 40
SECONDS = 120
DYING = """
import os, signal, sys
from deploy.archive import low_priority_copy
from deploy.commands import {module}
left = int(sys.argv.pop(1))
before = low_priority_copy.{kind}.{method}
def dying(self, *arguments):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return before(self, *arguments)
low_priority_copy.{kind}.{method} = dying
sys.exit({module}.main(sys.argv[1:]))
"""


def config_of(data: Path, **changes: object) -> StoreConfig:
    return store_config(store_path_root_dir=str(data / "store"), **changes)


@contextmanager
def running_store(data: Path, **changes: object) -> Iterator[MessageStore]:
    """Run the store of a data directory while the block runs, without background tasks."""
    store = a_store(SystemClock(), FileStorage(), config_of(data, **changes))
    store.load()
    with asyncio.Runner() as runner:
        runner.run(store.start())
        try:
            yield store
        finally:
            runner.run(store.shutdown())


def make(data: Path, count: int = COUNT) -> None:
    """Make a data directory with messages, a console's database, a secret and a report."""
    data.mkdir(mode=0o700, parents=True)
    (data / "broker.conf").write_text(
        f"# of a test\nbrokerName=broker-a\nstorePathRootDir={data / 'store'}\n"
    )
    with running_store(data) as store:
        for number in range(count):
            put(store, TOPIC, number % 2, b"%d" % number, keys=f"key{number}")
    config = data / "store" / "config"
    config.mkdir()
    (config / "topics.json").write_text('{"topicConfigTable":{}}')
    (config / "consumerOffset.json").write_text('{"offsetTable":{}}')
    with closing(sqlite3.connect(data / "console.sqlite3")) as database, database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE account (name TEXT)")
        database.execute("INSERT INTO account VALUES ('ada')")
    secret = data / "console.secret_key"
    secret.write_text("k" * 64)
    secret.chmod(0o600)
    report = data / "reports" / "1" / "table.json"
    report.parent.mkdir(parents=True)
    report.write_text("[]")
    (data / "logs").mkdir()
    (data / "logs" / "broker.log").write_text("nobody needs this\n")


def run(module: str, *arguments: str | Path, **environment: str) -> Done:
    """Run `deploy/backup` or `deploy/restore` as a process."""
    return _run(
        [sys.executable, "-m", f"deploy.commands.{module}", *map(str, arguments)], environment
    )


def run_dying(module: str, method: str, calls: int, *arguments: str | Path) -> Done:
    """Run a command that kills itself at the n-th call of a method such as `Source.read`."""
    kind, name = method.split(".")
    program = DYING.format(module=module, kind=kind, method=name)
    return _run([sys.executable, "-c", program, str(calls), *map(str, arguments)], {})


def bodies(data: Path, queue_id: int) -> list[bytes]:
    with running_store(data) as store:
        return [message.body for message in messages(store, queue_id)]


def messages(store: MessageStore, queue_id: int) -> list[MessageExt]:
    return read_all(store, TOPIC, queue_id)


def tree(directory: Path) -> set[str]:
    """Return all files below a directory."""
    return {
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()
    }


def _run(command: list[str], environment: dict[str, str]) -> Done:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("TREBUCHET_")
    }
    inherited.pop("DATABASE_URL", None)
    return subprocess.run(
        command,
        env=inherited | {"PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"} | environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
