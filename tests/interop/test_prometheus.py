"""Debian's Prometheus scrapes a pair and the console, and answers every query of our dashboards."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
import yaml
from django.utils import timezone

from broker_core.protocol.codes import RequestCode
from console.data.pipeline.lake_status import LakeStatus
from console.data.reports.models import ReportRun, RunState
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.samples import RemoteSamples
from console.lib.moment import now_ms
from console.observe.alerts.models import Alert, Channel, Message, Preferences, Rule
from console.observe.collector.collector import Collector, SystemTime
from console.observe.history import metrics
from console.observe.history.access import history_store
from console.observe.scraping import access, services, views
from console.observe.scraping.services import Cached, Services
from console.observe.verdicts.judge import VERDICTS, Verdict, Verdicts
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.producer import Producer
from tests.support.prometheus import (
    DASHBOARDS,
    FOLDER,
    METRIC,
    RULES,
    Prometheus,
    dashboard,
    queries,
    require,
)
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.django_db(transaction=True)]

TOPIC, GROUP = "Orders", "billing"
TIMEOUT_S = 30.0
SCRAPES = 4
"""Scrapes of each page, with traffic between them, enough for a rate."""
PACE_S = 0.1
VARIABLE = re.compile(r"label_values\((.*), (\w+)\)")
LAKE = {
    "committed_ms": 7_000,
    "pending_bytes": 12,
    "jobs": {"checked_ms": 8_000, "error": ""},
    "tables": [{"table": "bronze.messages", "rows": 30, "bytes": 900, "files": 2}],
}
NOWHERE_HERE = {"trebuchet_metrics_truncated"}
"""Pages here are complete."""


class Pair(NamedTuple):
    """A master, and the metrics ports of it and its slave."""

    master: BrokerProcess
    metrics_ports: list[int]


class Traffic:
    """A producer, with one half message, and a consumer that lags and gives up messages."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._address = f"127.0.0.1:{broker.port}"
        self._ends = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.turns = 0

    def __enter__(self) -> Traffic:
        self._thread.start()
        until(lambda: self.turns > 0 or not self.goes_on, "the first messages")
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    @property
    def goes_on(self) -> bool:
        return self._thread.is_alive()

    async def _run(self) -> None:
        client = Producer(self._address, "checkout")
        await client.join()
        await client.half(topic=TOPIC)
        await client.heartbeat(consumer_groups={GROUP: {TOPIC: "*"}})
        while not self._ends.is_set():
            await self._turn(client)
            self.turns += 1
            await asyncio.to_thread(self._ends.wait, PACE_S)
        await client.shutdown()

    async def _turn(self, client: Producer) -> None:
        answers = [await client.send(TOPIC, b"x" * 100) for _ in range(3)]
        end = int(answers[-1].ext_fields["queueOffset"])
        assert (await client.pull(TOPIC, max(0, end - 2), group=GROUP)).code == 0
        for topic, offset in ((TOPIC, end - 1), (f"%RETRY%{GROUP}", 0)):
            await client.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                consumerGroup=GROUP,
                topic=topic,
                queueId=0,
                commitOffset=max(0, offset),
            )
        # A negative level gives up the message at once.
        back = await client.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            offset=int(answers[0].ext_fields["msgId"][-16:], 16),
            group=GROUP,
            delayLevel=-1,
            originTopic=TOPIC,
        )
        assert back.code == 0, back.remark


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    ports = [free_port(), free_port()]
    master = BrokerProcess(
        tmp_path / "master", brokerRole="ASYNC_MASTER", metricsListenPort=ports[0]
    )
    slave = BrokerProcess(
        tmp_path / "slave",
        brokerRole="SLAVE",
        brokerId=1,
        namesrvAddr=master.namesrv,
        haMasterAddress=f"127.0.0.1:{master.port + 1}",
        metricsListenPort=ports[1],
    )
    brokers = [master, slave]
    for each in brokers:
        each.launch()
    until(lambda: all(each.is_listening for each in brokers), "both brokers to listen")
    yield Pair(master, ports)
    for each in brokers:
        each.kill()


@pytest.fixture
def collector(pair, tmp_path, settings) -> Iterator[Collector]:
    """A collector that samples the pair, and a console with one of every object."""
    settings.TREBUCHET_METRICS = access.LOOPBACK
    settings.TREBUCHET_HISTORY_FILE = tmp_path / "history.sqlite3"
    history_store.cache_clear()
    views.shared_page.forget()
    now, wall = timezone.now(), now_ms()
    done = {"started_at": now, "finished_at": now}
    Rule.objects.create(name="lag", source=Rule.Source.VERDICT)
    Alert.objects.create(rule_name="lag", state=Alert.State.FIRING, began_ms=1, open_key="a")
    channel = Channel.objects.create(name="on-call", kind=Channel.Kind.SLACK)
    Message.objects.create(channel=channel, created_ms=wall)
    ReportRun.objects.create(report="traffic", state=RunState.DONE, **done)
    Preferences.objects.create(pk=1, looked_ms=wall, heartbeat_ms=wall)
    verdict = Verdict("no-members", "bad", metrics.GROUP, "broker-a", GROUP, wall, wall, {})
    history_store().note(VERDICTS, msgspec.json.encode(Verdicts(wall, [verdict])))
    brokers = RemoteBrokers([pair.master.namesrv], TIMEOUT_S)
    yield Collector(RemoteSamples(brokers), history_store(), SystemTime(), os.getpid())
    brokers.close()
    history_store().database.close()
    history_store.cache_clear()


def configuration(targets: dict[str, list[str]]) -> str:
    """Return the configuration that we ship, with short intervals and the test's addresses."""
    shipped = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    shipped["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    shipped["rule_files"] = [str(RULES)]
    for job in shipped["scrape_configs"]:
        job["static_configs"] = [{"targets": targets[job["job_name"]]}]
    return yaml.safe_dump(shipped)


def expanded_query(expression: str) -> str:
    """Return a query as Grafana sends it with every variable set to All."""
    return re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", "30s"))


def test_every_query_of_dashboards_and_rules_has_series(
    pair, collector, live_server, tmp_path, monkeypatch
) -> None:
    require("prometheus")
    found = Cached(lambda: Services(True, True, True, LakeStatus("", LAKE)))
    monkeypatch.setattr(services, "cached", found)
    found.get()
    found.wait()
    for topic in (TOPIC, f"%RETRY%{GROUP}"):
        raw_remoting.create_topic(pair.master.port, topic)
    targets = {
        "rocketmq": [f"127.0.0.1:{port}" for port in pair.metrics_ports],
        "trebuchet-console": [live_server.url.removeprefix("http://")],
    }
    with (
        Traffic(pair.master) as traffic,
        Prometheus(tmp_path, configuration(targets)) as prometheus,
    ):

        def is_told() -> bool:
            collector.turn()
            counts = prometheus.query("sum_over_time(up[5m])")
            return (
                len(counts) == 3
                and all(float(each["value"][1]) >= SCRAPES for each in counts)
                # A slave fetches this from its master every ten seconds.
                and bool(prometheus.query("trebuchet_master_lag_bytes"))
            )

        until(is_told, "some scrapes of all three", every_s=1.0)
        assert traffic.goes_on
        empty = [
            f"{path.stem}: {title}: {expression}"
            for path in DASHBOARDS
            for title, expression in queries(dashboard(path))
            if not prometheus.query(expanded_query(expression))
        ]
        assert empty == []
        variables = [
            each["definition"]
            for path in DASHBOARDS
            for each in dashboard(path)["templating"]["list"]
            if each["type"] == "query"
        ]
        for definition in variables:
            parts = VARIABLE.fullmatch(definition)
            assert parts, definition
            selector, label = parts.groups()
            found_values = prometheus.query(f"count by ({label}) ({expanded_query(selector)})")
            assert found_values, definition
            assert all(each["metric"].get(label) for each in found_values), definition
        rules = prometheus.rules()
        assert rules
        assert [rule["name"] for rule in rules if rule["health"] == "err"] == []
        named = {name for rule in rules for name in METRIC.findall(rule["query"])} - NOWHERE_HERE
        assert [name for name in sorted(named) if not prometheus.query(name)] == []
