"""Requests of mqadmin and the dashboard, over a real socket."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.broker import Broker
from broker_core.errors import RemotingError
from broker_core.namesrv.kv_configs import ORDER_TOPIC_CONFIG
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import configuration_for, running_broker
from tests.support.client import Client, json_body, messages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection

MQ = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'


async def a_consumer(client: Client, handlers: dict[int, Any]) -> Client:
    consumer = Client(client.address, handlers)
    await consumer.heartbeat("client-1", consumer_groups={"g": {"T": "*"}})
    return consumer


async def test_a_consumers_own_message_is_passed_on(client: Client) -> None:
    requests: list[RemotingCommand] = []

    def running_info(request: RemotingCommand, _: Connection) -> RemotingCommand:
        requests.append(request)
        # Go clients write invalid JSON, so the broker must not parse it.
        return request.answer(ResponseCode.SUCCESS, "fine", {"a": "b"}, b'{"jstack":"a\n"b"')

    consumer = await a_consumer(
        client, {RequestCode.GET_CONSUMER_RUNNING_INFO: running_info, 40: lambda *_: None}
    )
    header: dict[str, Any] = {
        "consumerGroup": "g",
        "clientId": "client-1",
        "jstackEnable": "true",
    }
    answer = await client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, **header)
    absent = await client.ask(
        RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="client-2"
    )

    assert requests[0].ext_fields == header
    assert answer.code == ResponseCode.SUCCESS
    assert answer.remark == "fine"
    assert answer.ext_fields == {"a": "b"}
    assert answer.body == b'{"jstack":"a\n"b"'
    assert absent.code == ResponseCode.SYSTEM_ERROR
    assert absent.remark == "The Consumer <g> <client-2> not online"
    await consumer.shutdown()


async def test_a_consumer_is_handed_one_stored_message(client: Client) -> None:
    sent = await client.send("T", b"once more")
    given: list[RemotingCommand] = []

    def consume(request: RemotingCommand, _: Connection) -> RemotingCommand:
        given.append(request)
        body = java_json.encode({"consumeResult": "CR_SUCCESS"})
        return request.answer(ResponseCode.SUCCESS, body=body)

    consumer = await a_consumer(
        client, {RequestCode.CONSUME_MESSAGE_DIRECTLY: consume, 40: lambda *_: None}
    )
    header: dict[str, Any] = {"consumerGroup": "g", "clientId": "client-1"}
    answer = await client.ask(
        RequestCode.CONSUME_MESSAGE_DIRECTLY, **header, msgId=sent.ext_fields["msgId"]
    )
    missing = await client.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, **header, msgId="F" * 32)

    assert [message.body for message in messages(given[0])] == [b"once more"]
    assert given[0].ext_fields["brokerName"] == "broker-a"
    assert json_body(answer) == {"consumeResult": "CR_SUCCESS"}
    assert missing.code == ResponseCode.SYSTEM_ERROR
    await consumer.shutdown()


async def test_a_groups_clients_report_their_progress(client: Client) -> None:
    await client.send("T")

    def status(request: RemotingCommand, _: Connection) -> RemotingCommand:
        assert request.ext_fields == {"topic": "T", "group": "g"}
        body = f'{{"consumerTable":{{}},"messageQueueTable":{{{MQ}:3}}}}'
        return request.answer(ResponseCode.SUCCESS, body=body.encode())

    nobody = await client.ask(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="g"
    )
    consumer = await a_consumer(
        client, {RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: status, 40: lambda *_: None}
    )
    answer = await client.ask(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="g", clientAddr=""
    )

    assert nobody.code == ResponseCode.SYSTEM_ERROR
    assert answer.body == (
        f'{{"consumerTable":{{"client-1":{{{MQ}:3}}}},"messageQueueTable":{{}}}}'.encode()
    )
    await consumer.shutdown()


async def test_the_time_span_shows_how_far_behind_a_group_is(client: Client) -> None:
    for _ in range(2):
        await client.send("T")
    await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0, commitOffset=1
    )

    answer = await client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="T", group="g")
    unknown = await client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="U", group="g")

    span = json_body(answer)["consumeTimeSpanSet"][0]
    assert span["messageQueue"] == {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
    assert 0 < span["minTimeStamp"] == span["consumeTimeStamp"] <= span["maxTimeStamp"]
    assert span["delayTime"] >= 0
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST


async def test_group_offsets_are_compared_without_being_deleted(client: Client) -> None:
    for _ in range(5):
        await client.send("T")
    for group, offset in (("fast", 4), ("slow", 2), ("ahead", 5)):
        await client.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup=group,
            topic="T",
            queueId=0,
            commitOffset=offset,
        )

    everybody = await client.ask(
        RequestCode.QUERY_CORRECTION_OFFSET, topic="T", compareGroup="ahead", filterGroups=""
    )
    filtered = await client.ask(
        RequestCode.QUERY_CORRECTION_OFFSET, topic="T", compareGroup="slow", filterGroups="slow"
    )
    kept = await client.ask(
        RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="slow", topic="T", queueId=0
    )

    assert everybody.body == b'{"correctionOffsets":{0:2}}'
    # "slow" is behind the minimum of the others.
    assert json_body(filtered) == {"correctionOffsets": {"0": (1 << 63) - 1}}
    assert kept.ext_fields["offset"] == "2"


async def test_a_group_continues_at_another_ones_offset(client: Client) -> None:
    for topic in ("T", "U"):
        await client.send(topic)
        await client.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="source",
            topic=topic,
            queueId=0,
            commitOffset=1,
        )

    one: dict[str, Any] = {
        "srcGroup": "source",
        "destGroup": "one",
        "topic": "T",
        "offline": "true",
    }
    await client.ask(RequestCode.CLONE_GROUP_OFFSET, **one)
    await client.ask(RequestCode.CLONE_GROUP_OFFSET, srcGroup="source", destGroup="all")

    table = json_body(await client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET))["offsetTable"]
    assert table["T@one"] == table["T@all"] == table["U@all"] == {"0": 1}
    assert "U@one" not in table


async def test_all_groups_backlogs_are_reported_at_once(client: Client) -> None:
    for _ in range(3):
        await client.send("T")
    await client.pull("T", group="g")
    await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0, commitOffset=1
    )

    answer = await client.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
    ordered = await client.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="true")

    body = json_body(answer)
    assert body["brokerAddr"] == client.address
    assert body["totalDiff"] == 2
    (stats,) = next(group["g"] for group in body["consumeStatsList"] if "g" in group)
    assert stats["offsetTable"][MQ]["brokerOffset"] == 3
    assert {"g": []} in json_body(ordered)["consumeStatsList"]
    assert json_body(ordered)["totalDiff"] == 0


async def test_a_consume_queue_is_shown_unit_by_unit(client: Client) -> None:
    for tag in ("A", "B"):
        await client.send("T", tags=tag)
    header: dict[str, Any] = {"topic": "T", "queueId": 0, "count": 10}

    answer = await client.ask(RequestCode.QUERY_CONSUME_QUEUE, **header, index=1)
    beyond = await client.ask(RequestCode.QUERY_CONSUME_QUEUE, **header, index=7)
    unknown = await client.ask(
        RequestCode.QUERY_CONSUME_QUEUE, topic="T", queueId=9, index=0, count=1
    )

    body = json_body(answer)
    assert (body["minQueueIndex"], body["maxQueueIndex"]) == (0, 2)
    (unit,) = body["queueData"]
    assert unit["tagsCode"] == ord("B")
    assert unit["physicOffset"] > 0
    assert beyond.code == ResponseCode.SUCCESS
    assert not beyond.body
    assert unknown.code == ResponseCode.SYSTEM_ERROR
    assert unknown.remark == "9@T is not exist!"


async def test_queues_of_an_unconfigured_topic_are_cleaned(broker: Broker, client: Client) -> None:
    await client.send("T")
    await client.send("U")
    del broker.storage.topics.table["T"]

    answer = await client.ask(RequestCode.CLEAN_UNUSED_TOPIC)

    assert answer.code == ResponseCode.SUCCESS
    assert "T" not in broker.storage.store.topics()
    assert "U" in broker.storage.store.topics()


async def test_cleaning_is_allowed_at_any_hour(client: Client) -> None:
    for code in (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG):
        assert (await client.ask(code)).code == ResponseCode.SUCCESS


async def test_only_a_changeable_key_takes_effect(broker: Broker, client: Client) -> None:
    before = (await client.ask(RequestCode.GET_BROKER_CONFIG)).ext_fields["version"]
    for body, code in (
        (b"maxMessageSize=10\n", ResponseCode.SUCCESS),
        (b"storePathRootDir=/tmp/elsewhere\n", ResponseCode.NO_PERMISSION),
        (b"maxMessageSize=20\nlistenPort=1\n", ResponseCode.NO_PERMISSION),
        (b"noSuchKey=1\n", ResponseCode.NO_PERMISSION),
        (b"maxMessageSize=-1\n", ResponseCode.SYSTEM_ERROR),
        # Sending back an unchanged configuration is allowed and has no effect.
        (f"listenPort={broker.listen_port}\n".encode(), ResponseCode.SUCCESS),
    ):
        answer = await client.ask(RequestCode.UPDATE_BROKER_CONFIG, body)
        assert answer.code == code, (body, answer)

    assert (await client.send("T", b"0123456789")).code == ResponseCode.SUCCESS
    refused = await client.send("T", b"01234567890")
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert refused.remark
    assert "length limit 10B" in refused.remark
    shown = await client.ask(RequestCode.GET_BROKER_CONFIG)
    assert b"\nmaxMessageSize=10\n" in shown.body
    assert shown.ext_fields["version"] != before


@pytest.mark.parametrize(
    ("key", "remark"),
    [
        (
            "listenPort",
            "listenPort can't be changed over the network; change it in the broker's "
            "configuration file",
        ),
        ("listenProt", "unknown configuration key 'listenProt'; did you mean 'listenPort'?"),
        ("timerStopEnqueue", "'timerStopEnqueue' is a key of RocketMQ 5.x that has no effect here"),
        ("k" * 5_000, f"unknown configuration key '{'k' * 100}'"),
    ],
)
@pytest.mark.parametrize(
    "code", [RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG]
)
async def test_a_rejected_key_is_named(
    broker: Broker, client: Client, code: RequestCode, key: str, remark: str
) -> None:
    is_broker = code == RequestCode.UPDATE_BROKER_CONFIG
    other = (
        client
        if is_broker
        else Client(f"127.0.0.1:{broker.configuration.broker.namesrv_listen_port}")
    )
    refused = await other.ask(code, f"{key}=1\n".encode())
    if not is_broker:
        await other.shutdown()
        remark = remark.replace("the broker's", "the name server's")

    assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, remark)


async def test_file_keys_without_an_effect_are_named(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"sendMessageThreadPoolNums": 9, "highSpeedMode": "true"}
    async with running_broker(tmp_path, **keys) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        shown = await client.ask(RequestCode.GET_BROKER_CONFIG)
        sent_back = await client.ask(RequestCode.UPDATE_BROKER_CONFIG, shown.body)
        await client.shutdown()

    assert b"\nkeysWithoutEffect=highSpeedMode,sendMessageThreadPoolNums\n" in shown.body
    # Sending back an unchanged configuration is allowed and has no effect.
    assert sent_back.code == ResponseCode.SUCCESS


@pytest.fixture
def log_levels() -> Iterator[None]:
    """Restore the process-wide log levels after a test."""
    loggers = [logging.getLogger(name) for name in ("", "broker_core.store")]
    before = [each.level for each in loggers]
    yield
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)


@pytest.mark.usefixtures("log_levels")
async def test_a_log_level_changes_over_the_wire(client: Client) -> None:
    body = b"logLevel=ERROR\nlogLevel.broker_core.store=DEBUG\n"

    answer = await client.ask(RequestCode.UPDATE_BROKER_CONFIG, body)

    assert answer.code == ResponseCode.SUCCESS
    assert logging.getLogger("broker_core.store.flush").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("broker_core.remoting").isEnabledFor(logging.WARNING)
    shown = await client.ask(RequestCode.GET_BROKER_CONFIG)
    assert b"\nlogLevel.broker_core.store=DEBUG\n" in shown.body


async def test_a_read_only_broker_is_read_only_in_its_routes(
    broker: Broker, client: Client
) -> None:
    await client.send("T")
    assert broker.naming.name_server is not None

    await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=4\n")

    route = broker.naming.name_server.routes.route("T")
    assert route is not None
    assert [queue.perm for queue in route.queue_datas] == [4]


async def test_topics_are_no_longer_created_after_that_is_disabled(client: Client) -> None:
    await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"autoCreateTopicEnable=false\n")

    assert (await client.send("T")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_topic_is_ordered_if_the_name_server_says_so(
    broker: Broker, client: Client
) -> None:
    await client.send("T")
    assert broker.naming.name_server is not None
    broker.naming.name_server.kv_configs.put(ORDER_TOPIC_CONFIG, "T", "broker-a:4")
    assert not broker.storage.topics.table["T"].order

    await broker.naming.registration.register_now()

    assert broker.storage.topics.table["T"].order


@pytest.mark.parametrize(("enabled", "report"), [("true", "broker-a:4"), ("false", None)])
async def test_routes_include_an_ordered_topics_queues_if_that_is_enabled(
    tmp_path: Path, enabled: str, report: str | None
) -> None:
    async with running_broker(tmp_path, orderMessageEnable=enabled) as broker:
        assert broker.naming.name_server is not None
        client = Client(f"127.0.0.1:{broker.naming.name_server.port}")
        await client.ask(
            RequestCode.PUT_KV_CONFIG,
            namespace=ORDER_TOPIC_CONFIG,
            key="TBW102",
            value="broker-a:4",
        )

        route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
        shown = await client.ask(RequestCode.GET_NAMESRV_CONFIG)

        assert json_body(route).get("orderTopicConf") == report
        assert f"orderMessageEnable={enabled}" in shown.body.decode()
        await client.shutdown()


async def test_a_topic_is_answered_once_an_external_name_server_knows_it(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "one") as first,
        running_broker(
            tmp_path / "two",
            brokerName="broker-b",
            namesrvAddr=f"127.0.0.1:{first.configuration.broker.namesrv_listen_port}",
        ) as second,
    ):
        client = Client(f"127.0.0.1:{second.listen_port}")
        assert first.naming.name_server is not None
        for number in range(5):
            answer = await client.ask(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                topic=f"T{number}",
                defaultTopic="TBW102",
                readQueueNums=1,
                writeQueueNums=1,
                perm=6,
                topicFilterType="SINGLE_TAG",
                order="false",
            )
            assert answer.code == ResponseCode.SUCCESS
            assert first.naming.name_server.routes.route(f"T{number}") is not None
        await client.shutdown()


async def test_runtime_info_reports_how_long_puts_and_gets_took(
    broker: Broker, client: Client
) -> None:
    for _ in range(20):
        await client.send("T")
    await client.pull("T")
    broker.storage.stats.sample_second()

    table = json_body(await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]

    counts = [int(part.rpartition(":")[2]) for part in table["putMessageDistributeTime"].split()]
    assert sum(counts) == 20
    assert 0 < float(table["putLatency99"]) <= float(table["putLatency999"])
    assert float(table["putMessageEntireTimeMax"]) >= 0
    assert float(table["getMessageEntireTimeMax"]) >= 0


async def test_a_client_that_sends_too_much_is_told_that_the_broker_is_busy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(
        tmp_path, waitTimeMillsInSendQueue=200, waitTimeMillsInPullQueue=5_000
    ) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        broker.requests.overload.shutdown()
        broker.requests.overload.look(250.0, 0.0)
        once = await client.send("T")
        broker.requests.overload.look(1_500.0, 0.0)
        refused = await client.send("T")
        pulled = await client.pull("T")
        broker.requests.overload.look(0.0, 0.0)
        after = await client.send("T")
        await client.shutdown()

    assert once.code == pulled.code == after.code == ResponseCode.SUCCESS
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert refused.remark
    assert refused.remark.startswith(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 250ms"
    )
    assert "overloaded" in caplog.text


async def test_a_broker_finds_its_name_servers_at_an_address_server(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "one") as first:
        name_server = f"127.0.0.1:{first.configuration.broker.namesrv_listen_port}"

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.0 200 OK\r\n\r\n{name_server}".encode())
            writer.close()
            await writer.wait_closed()

        web = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = web.sockets[0].getsockname()[1]
        keys: dict[str, Any] = {
            "brokerName": "broker-b",
            "fetchNamesrvAddrByAddressServer": "true",
            "namesrvAddressServer": f"http://127.0.0.1:{port}/rocketmq/nsaddr",
        }
        async with running_broker(tmp_path / "two", **keys):
            assert first.naming.name_server is not None
            known = first.naming.name_server.routes.cluster_info().cluster_addr_table
            assert sorted(known["DefaultCluster"]) == ["broker-a", "broker-b"]
        web.close()


async def test_a_broker_whose_port_is_in_use_releases_everything(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "one") as first:
        configuration = configuration_for(tmp_path / "two", listenPort=first.listen_port)
        second = Broker(configuration)
        second.load()

        with pytest.raises(RemotingError, match="cannot listen"):
            await second.start()
        await second.shutdown()

        # The name server's port and the store are free again.
        async with running_broker(
            tmp_path / "two", namesrvListenPort=configuration.broker.namesrv_listen_port
        ) as third:
            assert third.storage.store.is_writable
