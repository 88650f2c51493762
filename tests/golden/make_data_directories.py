"""Write data-COMMIT.tar.xz: data directories of earlier versions of this checkout.

    python -m tests.golden.make_data_directories [COMMIT ...]

The code of each commit, checked out next to this one, writes its directory with this checkout's
packages: a console with accounts, audit entries and a schedule; a broker with messages and offsets;
a history and a lake if they existed by then. No version has been released yet, so these represent
releases, and the newest one the last release. `tests/deploy/test_upgrade.py` starts on them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from broker_core.protocol.codes import RequestCode
from tests.golden.make_store_4_9_7 import pack
from tests.support import raw_remoting
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.ports import accepts
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

COMMITS = {"9158c62": "2026-11-21", "bc07889": "2026-11-22", "8ba2d30": "2026-11-25"}
PASSWORD = "a password of the tests"
TOPIC, GROUP = "upgraded", "reader"
QUEUES, COUNT, READ = 4, 200, 30
SECONDS = 120
KEPT = (
    "console.sqlite3",
    "console.secret_key",
    "confirmed_brokers.json",
    "history.sqlite3",
    "lake",
    "store",
)
PEOPLE = """
from django.apps import apps
from django.contrib.auth import get_user_model
from django_celery_beat.models import IntervalSchedule, PeriodicTask
Entry = apps.get_model("audit", "Entry")
grace = get_user_model().objects.create_user("grace", password="{password}")
for number in range(20):
    Entry.objects.create(
        actor=grace, actor_name="grace", address="127.0.0.1", action="topic.create",
        subject=f"topic{{number}}", before=None, after={{"perm": number}}, outcome="done",
    )
every, _ = IntervalSchedule.objects.get_or_create(every=1, period="days")
PeriodicTask.objects.create(
    name="of the old one", task="nobody.runs", interval=every, enabled=False
)
"""


def archive_of(commit: str) -> Path:
    return Path(__file__).with_name(f"data-{commit}.tar.xz")


def make(commit: str, directory: Path) -> Path:
    """Write a data directory with the code of a commit."""
    checkout, data = directory / "checkout", directory / "data"
    subprocess.run(["git", "worktree", "add", "--detach", checkout, commit], cwd=ROOT, check=True)
    try:
        broker = BrokerProcess(
            data,
            mappedFileSizeCommitLog=1 << 16,
            mappedFileSizeConsumeQueue=20_000,
            maxHashSlotNum=100,
            maxIndexNum=400,
            flushConsumerOffsetInterval=100,
        )
        broker.checkout = checkout
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("TREBUCHET")
        } | {
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "PYTHONPATH": str(checkout),
            "TREBUCHET_ADMIN_PASSWORD": PASSWORD,
            "TREBUCHET_DATA": str(data),
            "TREBUCHET_NAMESRV": broker.namesrv,
            "TREBUCHET_STORE": str(broker.store),
        }
        broker.environment = {"PYTHONPATH": str(checkout), "TREBUCHET_NATIVE": "0"}
        run = _Run(checkout, environment)
        # Earlier commits have all modules of deploy in one folder.
        commands = checkout / "deploy" / "commands"
        run("-m", "deploy.commands.prepare" if commands.exists() else "deploy.prepare")
        run("manage.py", "shell", "-c", PEOPLE.format(password=PASSWORD))
        broker.start()
        try:
            _load(broker.port)
            if any((checkout / "console").rglob("collector/collector.py")):
                _collect(checkout, environment, data)
        finally:
            assert broker.stop() == 0
        if (checkout / "analytics" / "lake").exists():
            run("manage.py", "lake", "ingest")
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=ROOT, check=True)
    return data


class _Run:
    def __init__(self, checkout: Path, environment: dict[str, str]) -> None:
        self._checkout = checkout
        self._environment = environment

    def __call__(self, *arguments: str) -> None:
        subprocess.run(
            [sys.executable, *arguments],
            cwd=self._checkout,
            env=self._environment,
            check=True,
            timeout=SECONDS,
        )


def _load(port: int) -> None:
    until(lambda: accepts(port), "the broker to listen")
    raw_remoting.create_topic(port, TOPIC, queues=QUEUES)
    with RawClient(port) as client:
        for number in range(COUNT):
            fields = raw_remoting.send_fields(
                TOPIC, queue_id=number % QUEUES, properties=f"KEYS\x01key{number}"
            )
            answer = client.ask(raw_remoting.SEND_MESSAGE, fields, b"%d" % number)
            assert answer.code == raw_remoting.SUCCESS, answer
        for queue_id in range(QUEUES):
            client.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                {
                    "consumerGroup": GROUP,
                    "topic": TOPIC,
                    "queueId": str(queue_id),
                    "commitOffset": str(READ),
                },
            )


def _collect(checkout: Path, environment: dict[str, str], data: Path) -> None:
    """Let that commit's collector take a few samples."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "collect"], cwd=checkout, env=environment
    )
    try:
        until(
            lambda: (data / "history.sqlite3").exists() and process.poll() is None,
            "the history",
            seconds=SECONDS,
        )
        # Two samples make a rate.
        process.wait(25)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait(SECONDS)


def main() -> None:
    for commit in sys.argv[1:] or COMMITS:
        with tempfile.TemporaryDirectory() as directory:
            data = make(commit, Path(directory))
            for path in data.iterdir():
                if path.name not in KEPT:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            pack(data, archive_of(commit))


if __name__ == "__main__":
    main()
