"""A data directory of an earlier version keeps working: console, history, broker and lake."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from broker_core.protocol.codes import RequestCode
from broker_core.verify.verifier import verify
from tests.golden.make_data_directories import (
    COMMITS,
    COUNT,
    GROUP,
    PASSWORD,
    QUEUES,
    READ,
    TOPIC,
    archive_of,
)
from tests.support import backups, raw_remoting
from tests.support.appliance import Appliance, Visitor
from tests.support.archives import unpack
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.raw_remoting import RawClient

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault

SECONDS = 300
LAST = max(COMMITS, key=lambda commit: COMMITS[commit])
FILE_SIZES = {
    "mappedFileSizeCommitLog": 1 << 16,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
LOOK = f"""
import json
from django.contrib.auth import authenticate, get_user_model
from django_celery_beat.models import PeriodicTask
from console.people.audit.models import Entry
from console.observe.history.access import history_store
print(json.dumps({{
    "accounts": sorted(get_user_model().objects.values_list("username", flat=True)),
    "signs_in": authenticate(username="grace", password="{PASSWORD}") is not None,
    "schedules": sorted(PeriodicTask.objects.values_list("name", flat=True)),
    "entries": Entry.objects.filter(actor_name="grace", action="topic.create").count(),
    "history": history_store() is not None,
}}))
"""


@pytest.fixture(params=sorted(COMMITS), ids=lambda commit: COMMITS[commit])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> BrokerProcess:
    """The broker of a data directory from an earlier version."""
    broker = BrokerProcess(tmp_path / "data", **FILE_SIZES)
    unpack(archive_of(request.param), broker.directory)
    return broker


def console(broker: BrokerProcess, *arguments: str) -> str:
    """Run a command of the console on a data directory; return its output."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TREBUCHET_")
    } | {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "PYTHONPATH": str(ROOT),
        "TREBUCHET_DATA": str(broker.directory),
        "TREBUCHET_NAMESRV": broker.namesrv,
        "TREBUCHET_STORE": str(broker.store),
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_serves_what_it_had(broker: BrokerProcess) -> None:
    broker.start()
    try:
        for queue_id in range(QUEUES):
            stored = raw_remoting.read_queue(broker.port, TOPIC, queue_id)
            expected = [b"%d" % number for number in range(queue_id, COUNT, QUEUES)]
            assert [one.body for one in stored] == expected
            assert [one.queue_offset for one in stored] == list(range(len(expected)))
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
            with RawClient(broker.port) as client:
                answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
            assert answer.fields["offset"] == str(READ)
    finally:
        assert broker.stop() == 0
    assert verify(broker.store).problems == []


def test_an_earlier_versions_console_continues(old: BrokerProcess) -> None:
    console(old, "-m", "deploy.commands.prepare")

    found = json.loads(console(old, "manage.py", "shell", "--no-imports", "-c", LOOK))
    assert {"admin", "grace"} <= set(found["accounts"])
    assert found["signs_in"]
    assert "of the old one" in found["schedules"]
    assert found["entries"] == 20
    assert found["history"]
    # Entries from before the chain got their links.
    assert console(old, "manage.py", "audit", "verify")


@pytest.mark.parametrize("old", ["bc07889"], indirect=True)
def test_tables_of_a_later_version_are_rejected_and_unchanged(old: BrokerProcess) -> None:
    database = old.directory / "console.sqlite3"
    with closing(sqlite3.connect(database)) as tables, tables:
        tables.execute(
            "INSERT INTO django_migrations (app, name, applied) "
            "VALUES ('reports', '9999_of_a_later_version', '2030-01-01')"
        )
    before = database.read_bytes()

    with pytest.raises(AssertionError, match="a later version changed the tables") as refusal:
        console(old, "-m", "deploy.commands.prepare")

    assert "reports.9999_of_a_later_version" in str(refusal.value)
    assert "restore a backup" in str(refusal.value)
    assert database.read_bytes() == before


@pytest.mark.parametrize("old", [LAST], indirect=True)
def test_an_appliance_starts_on_the_complete_data_of_an_earlier_version(
    old: BrokerProcess, tmp_path: Path
) -> None:
    appliance = Appliance(tmp_path / "appliance")
    old.directory.rename(appliance.data)
    appliance.set_keys(storePathRootDir=appliance.data / "store", **FILE_SIZES)
    appliance.start()
    try:
        visitor = Visitor(appliance.url)
        visitor.sign_in("grace", PASSWORD)
        page = visitor.read("/topics/")
        stored = raw_remoting.read_queue(appliance.port, TOPIC, 0)
        found = json.loads(appliance.in_django(LOOK))
    finally:
        assert appliance.stop() == 0, appliance.words

    assert TOPIC in page
    assert [one.body for one in stored] == [b"%d" % each for each in range(0, COUNT, QUEUES)]
    assert {"admin", "grace"} <= set(found["accounts"])
    assert (found["entries"], found["history"]) == (20, True)
    assert "of the old one" in found["schedules"]


def test_an_earlier_versions_broker_and_lake_continue(old: BrokerProcess) -> None:
    assert_serves_what_it_had(old)

    lake = old.directory / "lake"
    if lake.exists():
        console(old, "manage.py", "lake", "ingest")
        console(old, "manage.py", "lake", "verify")


def test_a_data_directory_of_an_earlier_version_can_be_backed_up_and_restored(
    old: BrokerProcess, tmp_path: Path
) -> None:
    target, restored = tmp_path / "backup.tar", tmp_path / "restored"
    done = backups.run("backup", target, "--data", old.directory)
    assert done.returncode == 0, done.stderr
    done = backups.run("restore", target, "--data", restored)
    assert done.returncode == 0, done.stderr

    old.directory, old.file, old.store = restored, restored / "broker.conf", restored / "store"
    console(old, "-m", "deploy.commands.prepare")
    assert console(old, "manage.py", "audit", "verify")
    assert_serves_what_it_had(old)
