"""A Spark cluster without access to the log: reports from the brokers, or an error message."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from analytics import brokers, session
from analytics.errors import ReportError
from analytics.remote.access import Access
from analytics.remote.cluster import Cluster
from analytics.remote.send import Outgoing, Sender
from analytics.reports.catalog import REPORTS
from analytics.request import Request
from analytics.store.reader import StoreReader
from tests.analytics import run_report
from tests.analytics.store_builder import StoreBuilder
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.spark_cluster import retry_slow_workers

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.session import Spark
    from tests.support.spark_cluster import SparkCluster

NAMESRV = "127.0.0.1:9876"
FROM_BROKERS = {
    *("traffic", "latency", "keys", "senders", "sizes", "duplicates", "owners"),
    *("anomalies", "changes", "origins"),
}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("a:1;b:2", {"namesrvAddr": "a:1;b:2"}),
        ("a:1 tls=true", {"namesrvAddr": "a:1", "tls": "true"}),
        (
            "namesrvAddr=a:1 accessKey=reports secretKeyFile=/etc/key",
            {"namesrvAddr": "a:1", "accessKey": "reports", "secretKeyFile": "/etc/key"},
        ),
    ],
)
def test_a_setting_names_the_brokers(text: str, options: dict[str, str]) -> None:
    assert brokers.broker_options(text) == options


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a:1 secretKey=s3cret", "has the unknown option secretKey. Use namesrvAddr"),
        ("a:1 subscribe=orders", "has the unknown option subscribe"),
        ("here", "namesrvAddr is 'here'; it must be host:port"),
        ("tls=true", "needs the option namesrvAddr"),
    ],
)
def test_a_setting_without_brokers_is_rejected(text: str, wrong: str) -> None:
    with pytest.raises(ReportError, match=wrong):
        brokers.broker_options(text)


def test_reports_that_need_more_than_messages_explain_why() -> None:
    of_messages = [name for name, report in REPORTS.items() if not report.samples]
    assert {
        name for name in of_messages if not brokers.broker_problem(REPORTS[name])
    } == FROM_BROKERS
    assert "internal messages" in brokers.broker_problem(REPORTS["delays"])
    by_group = REPORTS["origins"].with_parameters({"by": "group"})
    assert "internal messages" in brokers.broker_problem(by_group)
    assert "offsets and queues" in brokers.broker_problem(REPORTS["lag"])
    assert "one broker's log" in brokers.broker_problem(REPORTS["ordering"])
    assert "dead letters" in brokers.broker_problem(REPORTS["retries"])


@pytest.mark.spark
@pytest.mark.parametrize(
    ("report", "setting", "sentence"),
    [
        ("traffic", "", "Share the store with every worker under the same path, or set TREBUCHET_"),
        ("lag", NAMESRV, "can't read the brokers instead: it needs the offsets and queues"),
    ],
)
def test_a_worker_without_access_to_the_log_is_named_with_advice(
    running_spark: Spark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    report: str,
    setting: str,
    sentence: str,
) -> None:
    store = StoreBuilder(tmp_path / "store").put_many(20).write()
    request = Request(
        REPORTS[report], store, tmp_path, master="spark://cluster:7077", brokers=setting
    )
    plan = StoreReader(store).plan()

    assert brokers.name_servers_to_read(running_spark, request, plan) == ""
    # Only in this process: workers check for themselves.
    monkeypatch.setattr(brokers, "fingerprint_seen", lambda *_: 1)
    with pytest.raises(ReportError, match=sentence) as refused:
        brokers.name_servers_to_read(running_spark, request, plan)

    assert os.uname().nodename in str(refused.value)


class BusyCluster:
    """The Spark of a cluster whose workers accept no task until the work is cancelled."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    def begin(self, _: str) -> None:
        pass

    def cancel(self) -> None:
        self._cancelled.set()

    def width(self) -> int:
        return 2

    @property
    def session(self) -> BusyCluster:
        return self

    def range(self, *_: object) -> None:
        assert self._cancelled.wait(60)
        raise PySparkException("cancelled as part of cancelled job group")


def test_workers_that_do_not_report_their_view_fail_with_an_explanation_within_thirty_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session.SIGHT_SECONDS_MAX == 30
    monkeypatch.setattr(brokers, "SIGHT_SECONDS_MAX", 0.01)
    store = StoreBuilder(tmp_path / "store").put_many(20).write()
    request = Request(REPORTS["traffic"], store, tmp_path, master="spark://cluster:7077")

    with pytest.raises(ReportError, match=r"didn't report within .* whether they see the log at"):
        brokers.name_servers_to_read(
            BusyCluster(),  # type: ignore[arg-type]
            request,
            StoreReader(store).plan(),
        )


@pytest.mark.spark
def test_a_cluster_without_access_to_the_log_reads_from_the_brokers(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    try:
        sent = _send(broker, {"orders": 30, "bills": 12})
        # A directory for this program, but missing for the workers, which run elsewhere.
        store = "/proc/self/cwd/store"

        environment = {**os.environ, session.SECRET_FILE_VARIABLE: str(spark_cluster.secret)}

        code, events, errors = retry_slow_workers(
            lambda: run_report.run(
                "traffic",
                *("--store", store, "--out", tmp_path / "out", "--master", spark_cluster.master),
                *("--brokers", broker.namesrv),
                environment=environment,
                cwd=broker.directory,
            ),
            lambda ended: str(ended[1]),
        )
    finally:
        broker.stop()

    assert code == 0, errors
    assert events[-1]["totals"]["messages"] == "42"
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["engine"]["brokers"] == broker.namesrv
    found: Counter[str] = Counter()
    for row in result["rows"]:
        found[row["topic"]] += int(row["messages"])
    assert found == sent
    stored = StoreReader(broker.store).plan()
    assert int(events[-1]["totals"]["bytes"]) <= stored.log_to


def _send(broker: BrokerProcess, counts: dict[str, int]) -> Counter[str]:
    for topic in counts:
        raw_remoting.create_topic(broker.port, topic, queues=2)

    async def sent() -> None:
        async with Cluster(Access((broker.namesrv,))) as cluster:
            for topic, count in counts.items():
                bodies = [b"%06d" % number for number in range(count)]
                outgoing = [Outgoing(topic, body, {"KEYS": body.decode()}) for body in bodies]
                await Sender(cluster, "pg").send_all(outgoing)

    asyncio.run(sent())
    return Counter(counts)
