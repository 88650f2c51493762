"""GET /metrics of a broker: Prometheus reads it, with the metric names of RocketMQ 5."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parsed

from broker_core.composition.metrics import METRICS_PORT
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.remoting.allowed_peers import AllowedPeers
from tests.support.broker import running_broker
from tests.support.client import Client
from tests.support.pair import running_slave, until_caught_up
from tests.support.ports import free_port
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample

    from broker_core.broker import Broker

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "metrics-5.3.3.txt"
LIMIT_S = 60.0
NOT_KNOWN = {"response_code", "result"}
"""RocketMQ labels that would have to be counted for each request."""


async def scraped(broker: Broker) -> str:
    port = broker.configuration.server.metrics_listen_port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), LIMIT_S)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK"), head
    return body.decode()


def families(text: str) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for family in parsed(text):
        assert family.name not in found, f"{family.name} has two heads"
        found[family.name] = family
    return found


def samples(text: str, name: str) -> list[Sample]:
    return [each for family in parsed(text) for each in family.samples if each.name == name]


def value(text: str, name: str, **labels: str) -> float:
    [found] = [each for each in samples(text, name) if labels.items() <= each.labels.items()]
    return float(found.value)


async def used_broker(client: Client) -> None:
    """Send, consume, and leave one message unread."""
    await client.heartbeat("client-1", consumer_groups={"g": {"T": "*"}}, producer_groups=("p",))
    for _ in range(3):
        await client.send("T", b"hello")
    await client.ask(
        RequestCode.PULL_MESSAGE,
        consumerGroup="g",
        topic="T",
        queueId=0,
        queueOffset=0,
        maxMsgNums=32,
        sysFlag=0,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subscription="*",
        subVersion=0,
        expressionType="TAG",
    )
    await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0, commitOffset=2
    )


async def page_of_a_used_broker(directory: Path) -> str:
    async with running_broker(directory, metricsListenPort=free_port()) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await used_broker(client)
        text = await scraped(broker)
        await client.shutdown()
        return text


async def test_the_figures_match_the_work_done(tmp_path: Path) -> None:
    text = await page_of_a_used_broker(tmp_path)

    assert value(text, "rocketmq_messages_in_total", topic="T", is_system="false") == 3
    assert value(text, "rocketmq_messages_out_total", topic="T", consumer_group="g") == 3
    assert value(text, "rocketmq_throughput_in_total", topic="T") > 3 * len(b"hello")
    assert value(text, "rocketmq_consumer_lag_messages", topic="T", consumer_group="g") == 1
    assert value(text, "rocketmq_consumer_lag_latency_milliseconds", consumer_group="g") >= 0
    assert value(text, "rocketmq_broker_permission") == 6
    assert value(text, "rocketmq_consumer_connections", consumer_group="g") == 1
    assert value(text, "rocketmq_producer_connections") == 1
    assert value(text, "rocketmq_rpc_latency_milliseconds_count", request_code="send_message") == 3
    assert value(text, "trebuchet_put_latency_seconds_count") == 3
    assert value(text, "trebuchet_put_latency_seconds_sum") > 0
    assert value(text, "trebuchet_puts_total") == 3
    assert value(text, "trebuchet_is_master") == 1
    assert value(text, "trebuchet_slaves") == 0
    assert value(text, "trebuchet_writable") == 1
    assert value(text, "trebuchet_quarantined_ranges") == 0
    assert value(text, "process_resident_memory_bytes") > 1_000_000


async def test_a_message_given_up_by_a_consumer_is_a_dead_letter(tmp_path: Path) -> None:
    async with running_broker(tmp_path, metricsListenPort=free_port()) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.heartbeat(consumer_groups={"g": {"T": "*"}})
        sent = await client.send("T")
        offset = int(sent.ext_fields["msgId"][-16:], 16)
        codes = [
            (
                await client.ask(
                    RequestCode.CONSUMER_SEND_MSG_BACK, offset=offset, group="g", delayLevel=level
                )
            ).code
            for level in (1, -1)
        ]
        text = await scraped(broker)
        await client.shutdown()

    assert codes == [ResponseCode.SUCCESS] * 2
    assert value(text, "rocketmq_send_to_dlq_messages_total", consumer_group="g") == 1
    assert value(text, "rocketmq_messages_in_total", topic="%DLQ%g") == 1


async def test_names_types_and_labels_match_the_original(tmp_path: Path) -> None:
    text = await page_of_a_used_broker(tmp_path)
    rows = [line.split(" ") for line in GOLDEN.read_text().splitlines() if line[0] != "#"]
    theirs = {name: (kind, set(labels)) for name, kind, *labels in rows}

    compared = set()
    for family in families(text).values():
        for sample in family.samples:
            if sample.name not in theirs:
                continue
            compared.add(sample.name)
            kind, labels = theirs[sample.name]
            assert family.type == kind, sample.name
            assert set(sample.labels) == labels - NOT_KNOWN, sample.name
    left_out = {
        # 4.9 doesn't store delivered messages before their commit.
        "rocketmq_consumer_inflight_messages",
        "rocketmq_consumer_queueing_latency_milliseconds",
        "rocketmq_consumer_ready_messages",
        # It would have to be counted for each message.
        "rocketmq_message_size_bucket",
        "rocketmq_message_size_count",
        "rocketmq_message_size_sum",
    }
    assert theirs.keys() - compared == left_out


async def test_promtool_finds_nothing(tmp_path: Path) -> None:
    """`promtool check metrics` of Debian's package prometheus."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not here: apt-get install prometheus")
    text = await page_of_a_used_broker(tmp_path)

    done = await asyncio.to_thread(
        subprocess.run,
        [promtool, "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    # promtool objects to some of RocketMQ's own names.
    output = [line for line in done.stderr.splitlines() if not line.startswith("rocketmq_")]
    assert output == []
    assert "error while linting" not in done.stderr


async def test_a_pair_shows_each_members_delay(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "m", metricsListenPort=free_port()) as master,
        running_slave(tmp_path / "s", master, metricsListenPort=free_port()) as slave,
    ):
        client = Client(f"127.0.0.1:{master.listen_port}")
        slave.metadata_sync.follow(f"127.0.0.1:{master.listen_port}")
        await client.send("T")
        await until_caught_up(master, slave)
        await until_async(
            lambda: (
                [each.behind_bytes for each in master.replication.ha_master.connections()] == [0]
            ),
            "the slave's report",
        )
        await slave.metadata_sync.sync()
        of_master, of_slave = await scraped(master), await scraped(slave)
        await client.shutdown()

    assert value(of_master, "trebuchet_slaves_in_sync") == 1
    assert value(of_master, "trebuchet_slave_lag_bytes", slave="127.0.0.1") == 0
    assert value(of_master, "trebuchet_slave_lag_seconds", slave="127.0.0.1") == 0
    assert value(of_master, "trebuchet_slave_last_contact_seconds", slave="127.0.0.1") >= 0
    assert value(of_slave, "trebuchet_is_master") == 0
    assert value(of_slave, "trebuchet_following") == 1
    assert value(of_slave, "trebuchet_master_lag_bytes") == 0
    assert value(of_slave, "trebuchet_master_last_contact_seconds") >= 0
    assert not samples(of_slave, "trebuchet_slave_lag_bytes")


async def test_a_slave_that_never_reached_its_master_claims_nothing(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path,
        metricsListenPort=free_port(),
        brokerRole="SLAVE",
        brokerId=1,
        haMasterAddress="127.0.0.1:1",
    ) as slave:
        text = await scraped(slave)

    assert value(text, "trebuchet_following") == 0
    for name in ("lag_bytes", "lag_seconds", "last_contact_seconds"):
        assert not samples(text, f"trebuchet_master_{name}")


async def test_series_are_limited_and_the_page_shows_it(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path, metricsListenPort=free_port(), metricsSeriesMax=5
    ) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        for number in range(8):
            await client.send(f"topic-{number}")
            await client.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                consumerGroup="g",
                topic=f"topic-{number}",
                queueId=0,
                commitOffset=0,
            )
        text = await scraped(broker)
        await client.shutdown()

    truncated = {each.labels["metric"] for each in samples(text, "trebuchet_metrics_truncated")}
    for name in ("rocketmq_messages_in_total", "rocketmq_consumer_lag_messages"):
        assert len(samples(text, name)) == 5
        assert name in truncated
    assert value(text, "trebuchet_puts_total") == 8


async def test_requests_within_a_second_get_the_same_page(tmp_path: Path) -> None:
    async with running_broker(tmp_path, metricsListenPort=free_port()) as broker:
        pages = await asyncio.gather(*(scraped(broker) for _ in range(8)))

    assert len(set(pages)) <= 2


async def test_it_is_off_without_a_port(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running_broker(tmp_path):
        pass
    assert "metrics listening url=http" not in caplog.text

    async with running_broker(tmp_path, metricsListenPort=free_port()) as broker:
        await scraped(broker)
    assert "metrics listening url=http://127.0.0.1:" in caplog.text


async def test_it_listens_at_the_configured_address(tmp_path: Path) -> None:
    port = free_port()
    async with running_broker(
        tmp_path, metricsListenPort=port, metricsListenAddress="127.0.0.2"
    ) as broker:
        _, writer = await asyncio.open_connection("127.0.0.2", port)
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await scraped(broker)


async def test_with_accounts_only_this_host_may_query_by_default(tmp_path: Path) -> None:
    conf = tmp_path / "conf" / "plain_acl.yml"
    conf.parent.mkdir(parents=True)
    conf.write_text(yaml.safe_dump({"accounts": []}))
    async with running_broker(tmp_path, aclEnable="true", metricsListenPort=free_port()) as broker:
        assert "rocketmq_topic_number" in await scraped(broker)
    guarded = AllowedPeers(METRICS_PORT, "", ["192.0.2.7"], has_acl=True)
    named = AllowedPeers(METRICS_PORT, "198.51.100.0/24", [], has_acl=True)

    assert guarded.refusal("127.0.0.1") is guarded.refusal("192.0.2.7") is None
    assert "metricsAllowedAddresses=198.51.100.1" in (guarded.refusal("198.51.100.1") or "")
    assert named.refusal("198.51.100.1") is None
