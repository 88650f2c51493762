"""Broker and collector are killed and restarted; every message is counted once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pytest

from broker_core.verify.records import parse
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.samples import RemoteSamples
from console.gateway.sample import decoded
from console.observe.collector.collector import Collector
from console.observe.history import metrics
from console.observe.history.database import SqliteDatabase
from console.observe.history.metrics import Column, Subject
from console.observe.history.status import STATUS, Status
from console.observe.history.store import HistoryStore
from console.observe.history.tiers import COARSE, FINE, MIDDLE
from tests.support import raw_remoting
from tests.support.broker_process import ROOT
from tests.support.collector_samples import START_MS, TestTime
from tests.support.waiting import until

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.fault

TOPICS = ("Orders", "Bills")
TURNS = 24
TIMEOUT_S = 10.0
SAMPLE_SECONDS = 60


def send(port: int, topic: str, count: int) -> None:
    with raw_remoting.RawClient(port) as client:
        for index in range(count):
            fields = raw_remoting.send_fields(topic, queue_id=index % 4)
            assert client.ask(10, fields, b"x" * 20).code == 0


def recount(store: Path) -> dict[str, int]:
    """Count the records of each topic from the bytes of the log."""
    counts: dict[str, int] = {}
    for path in sorted((store / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while (size := int.from_bytes(data[at : at + 4], "big")) > 8:
            topic = parse(data[at : at + size], int(path.name) + at, 1).topic
            counts[topic] = counts.get(topic, 0) + 1
            at += size
    return counts


def test_the_sums_match_the_log(
    tmp_path: Path, broker_process: BrokerProcess, rng: random.Random
) -> None:
    for topic in TOPICS:
        raw_remoting.create_topic(broker_process.port, topic)
    time = TestTime()
    sent = dict.fromkeys(TOPICS, 0)
    path = tmp_path / "history.sqlite3"

    def new_collector() -> tuple[Collector, RemoteBrokers]:
        brokers = RemoteBrokers([broker_process.namesrv], TIMEOUT_S)
        store = HistoryStore(SqliteDatabase(path))
        return Collector(RemoteSamples(brokers), store, time, os.getpid()), brokers

    collector, brokers = new_collector()
    collector.turn()
    for turn in range(TURNS):
        for topic in TOPICS:
            count = rng.randrange(30)
            send(broker_process.port, topic, count)
            sent[topic] += count
        if turn % 6 == 2:
            broker_process.kill()
            collector.turn()  # no answer: a gap
            broker_process.start()
        if turn % 5 == 3:
            # A killed collector leaves only its written data.
            brokers.close()
            collector, brokers = new_collector()
        if turn % 7 == 4:
            collector.fold()
        time.pass_ms(10_000)
        until(partial(samples_again, collector, path), "a sample of the broker")
    # A broker repeats its answer for a second.
    until(lambda: is_all_seen(collector, path, sent), "a sample that knows the last message")
    brokers.close()
    broker_process.stop()

    counted = recount(broker_process.store)
    assert sum(counted[topic] for topic in TOPICS) > TURNS
    store = HistoryStore(SqliteDatabase(path))
    ids = store.all_subjects()
    for tier in (FINE, MIDDLE, COARSE):
        for topic in TOPICS:
            number = ids[Subject(metrics.TOPIC, "broker-a", topic)]
            slots = (time.wall_ms - START_MS) // tier.step_ms + 2
            found = store.read([number], tier, START_MS // tier.step_ms, slots)[number]
            total = found.sum(Column(metrics.PUT.code))
            assert total is not None
            assert int(total.sum()) == counted[topic]
    store.database.close()


def samples_again(collector: Collector, path: Path) -> bool:
    """Take a sample; a broker that was just started may not be registered yet."""
    collector.turn()
    database = SqliteDatabase(path)
    data = HistoryStore(database).noted(STATUS)
    database.close()
    assert data is not None
    status = msgspec.json.decode(data, type=Status)
    return not status.problems and status.numbers > 0


def is_all_seen(collector: Collector, path: Path, sent: dict[str, int]) -> bool:
    """Take a sample; return whether its retained messages are all that were sent."""
    collector.turn()
    database = SqliteDatabase(path)
    kept = HistoryStore(database).last_reading("broker-a:0")
    database.close()
    assert kept is not None
    ends = {topic.name: sum(end for _, _, end in topic.rows()) for topic in decoded(kept[1]).topics}
    return all(ends[topic] == count for topic, count in sent.items())


def test_the_process_continues_after_a_kill(tmp_path: Path, broker_process: BrokerProcess) -> None:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "TREBUCHET_DATA": str(tmp_path / "data"),
        "TREBUCHET_NAMESRV": broker_process.namesrv,
    }
    path = tmp_path / "data" / "history.sqlite3"

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "manage.py", "collect"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def last_at() -> int:
        if not path.exists():
            return 0
        database = SqliteDatabase(path)
        data = HistoryStore(database).noted(STATUS)
        database.close()
        status = None if data is None else msgspec.json.decode(data, type=Status)
        return status.at_ms if status is not None and not status.problems else 0

    first = start()
    until(lambda: last_at() > 0, "a first sample", seconds=SAMPLE_SECONDS)
    first.kill()
    first.communicate()
    before = last_at()
    second = start()
    until(lambda: last_at() > before, "a sample of the new process", seconds=SAMPLE_SECONDS)
    third = start()
    words, _ = third.communicate(timeout=SAMPLE_SECONDS)
    assert third.returncode == 1
    assert "another collector already writes" in words
    second.send_signal(signal.SIGTERM)
    words, _ = second.communicate(timeout=SAMPLE_SECONDS)

    assert second.returncode == 0
    assert "collecting" in words
    assert "Traceback" not in words
