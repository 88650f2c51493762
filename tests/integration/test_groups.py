from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.protocol import java_json
from broker_core.protocol.codes import V5_3_1, RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from tests.support.client import Client, json_body, messages
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from broker_core.broker import Broker
    from broker_core.remoting.connection import Connection


class Notices:
    """The requests that the broker sends to a client, by code."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[RemotingCommand] = asyncio.Queue()

    def take(self, command: RemotingCommand, _: Connection) -> None:
        self.queue.put_nowait(command)

    async def next(self) -> RemotingCommand:
        return await asyncio.wait_for(self.queue.get(), 5.0)


def listening_client(address: str, notices: Notices) -> Client:
    codes = (
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.TRACE_EVENTS,
    )
    return Client(address, dict.fromkeys(codes, notices.take))


async def test_a_heartbeat_creates_the_group_and_its_retry_topic(
    broker: Broker, client: Client
) -> None:
    answer = await client.heartbeat(consumer_groups={"g": {"T": "*"}}, producer_groups=("pg",))

    assert answer.code == ResponseCode.SUCCESS
    assert answer.version == 407
    assert broker.storage.groups.find("g") is not None
    assert broker.storage.topics.find("%RETRY%g") is not None
    listed = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
    assert json_body(listed) == {"consumerIdList": ["client-1"]}


async def test_members_are_notified_when_another_joins_or_leaves(client: Client) -> None:
    notices = Notices()
    one = listening_client(client.address, notices)
    await one.heartbeat("one", consumer_groups={"g": {"T": "*"}})
    assert (await notices.next()).ext_fields == {"consumerGroup": "g"}

    two = Client(client.address)
    await two.heartbeat("two", consumer_groups={"g": {"T": "*"}})
    assert (await notices.next()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    await two.shutdown()
    assert (await notices.next()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    await one.shutdown()


async def test_an_unregistered_client_is_removed_immediately(client: Client) -> None:
    await client.heartbeat(consumer_groups={"g": {"T": "*"}})

    await client.ask(RequestCode.UNREGISTER_CLIENT, clientID="client-1", consumerGroup="g")

    listed = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
    assert listed.code == ResponseCode.SYSTEM_ERROR


async def test_a_registered_consumer_pulls_by_its_subscription(client: Client) -> None:
    await client.send("T", b"a", tags="A")
    await client.send("T", b"b", tags="B")
    await client.heartbeat(consumer_groups={"g": {"T": "B"}}, sub_version=5)
    fields: dict[str, Any] = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 1,
        "commitOffset": 1,
        "suspendTimeoutMillis": 0,
    }

    answer = await client.ask(RequestCode.PULL_MESSAGE, **fields, subVersion=5)
    newer = await client.ask(RequestCode.PULL_MESSAGE, **fields, subVersion=6)

    assert [message.body for message in messages(answer)] == [b"b"]
    assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    offset = await client.ask(
        RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0
    )
    assert offset.ext_fields["offset"] == "1"


async def test_a_new_group_on_a_young_queue_starts_with_its_first_message(client: Client) -> None:
    await client.send("T")

    answer = await client.ask(
        RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="new", topic="T", queueId=0
    )

    assert (answer.code, answer.ext_fields["offset"]) == (ResponseCode.SUCCESS, "0")


async def test_a_queues_offsets_are_reported(client: Client) -> None:
    for _ in range(3):
        await client.send("T")

    lowest = await client.ask(RequestCode.GET_MIN_OFFSET, topic="T", queueId=0)
    highest = await client.ask(RequestCode.GET_MAX_OFFSET, topic="T", queueId=0)
    early = await client.ask(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="T", queueId=0, timestamp=0
    )
    late = await client.ask(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="T", queueId=0, timestamp=1 << 60
    )

    offsets = [answer.ext_fields["offset"] for answer in (lowest, highest, early, late)]
    assert offsets == ["0", "3", "0", "3"]


async def test_consume_stats_report_the_backlog(client: Client) -> None:
    for _ in range(3):
        await client.send("T")
    await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0, commitOffset=1
    )

    answer = await client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="g")

    queue = json_body(answer)["offsetTable"]['{"brokerName":"broker-a","queueId":0,"topic":"T"}']
    assert (queue["brokerOffset"], queue["consumerOffset"]) == (3, 1)


async def test_connections_of_a_group_are_listed(client: Client) -> None:
    offline = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
    await client.heartbeat(consumer_groups={"g": {"T": "A"}}, producer_groups=("pg",))

    online = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
    producers = await client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="pg")

    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    body = json_body(online)
    assert body["connectionSet"][0]["clientId"] == "client-1"
    assert body["subscriptionTable"]["T"]["tagsSet"] == ["A"]
    assert json_body(producers)["connectionSet"][0]["clientId"] == "client-1"


async def test_an_active_group_is_told_where_to_continue(client: Client) -> None:
    for _ in range(3):
        await client.send("T")
    reset: dict[str, Any] = {"topic": "T", "group": "g", "timestamp": 0, "isForce": "true"}
    unknown = await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **reset)
    await client.pull("T", group="g")
    offline = await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **reset)
    notices = Notices()
    consumer = listening_client(client.address, notices)
    await consumer.heartbeat(consumer_groups={"g": {"T": "*"}})
    await notices.next()

    answer = await client.ask(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        topic="T",
        group="g",
        timestamp=-1,
        isForce="true",
    )

    assert unknown.code == ResponseCode.SYSTEM_ERROR
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert answer.code == ResponseCode.SUCCESS
    report = await notices.next()
    assert report.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    table = json_body(report)["offsetTable"]
    assert table['{"brokerName":"broker-a","queueId":0,"topic":"T"}'] == 3
    await consumer.shutdown()


async def test_an_active_group_receives_an_offset_for_each_queue_in_one_notice(
    client: Client,
) -> None:
    for queue_id in (0, 0, 0, 1):
        await client.send("T", queue_id=queue_id)

    async def ask(*offsets: tuple[int, int]) -> RemotingCommand:
        body = java_json.encode({"topic": "T", "group": "g", "offsets": [list(e) for e in offsets]})
        return await client.ask(RequestCode.RESET_OFFSETS, body)

    await client.pull("T", group="g")
    offline = await ask((0, 1))
    notices = Notices()
    consumer = listening_client(client.address, notices)
    await consumer.heartbeat(consumer_groups={"g": {"T": "*"}})
    await notices.next()
    answer = await ask((0, 2), (1, 1))
    too_far, no_queue = await ask((0, 9)), await ask((70, 0))

    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert answer.code == ResponseCode.SUCCESS
    report = await notices.next()
    assert report.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert report.body == answer.body
    assert sorted(json_body(report)["offsetTable"].values()) == [1, 2]
    assert {too_far.code, no_queue.code} == {ResponseCode.SYSTEM_ERROR}
    await consumer.shutdown()


@pytest.mark.parametrize(
    ("values", "offsets"),
    [
        ({"timestamp": 0}, [0, 0]),
        ({"timestamp": -1}, [3, 1]),
        ({"timestamp": 0, "isForce": "false"}, [0, 0]),
        ({"timestamp": -1, "isForce": "false"}, [2, 1]),
        ({"timestamp": 0, "queueId": 0, "offset": 1}, [1, -1]),
        ({"timestamp": -1, "queueId": 1, "offset": -1}, [2, 1]),
    ],
)
async def test_a_5_x_tool_resets_a_group_that_is_not_connected(
    broker: Broker, client: Client, values: dict[str, Any], offsets: list[int]
) -> None:
    for queue_id in (0, 0, 0, 1):
        await client.send("T", queue_id=queue_id)
    await client.pull("T", group="g")
    broker.storage.offsets.commit("g", "T", 0, 2)
    fields = {"topic": "T", "group": "g", "isForce": "true", **values}
    request = RemotingCommand.request(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        {name: str(value) for name, value in fields.items()},
    )
    request.version = V5_3_1

    answer = await client.remoting.request(client.address, request, 5.0)

    assert answer.code == ResponseCode.SUCCESS
    assert [broker.storage.offsets.query("g", "T", queue_id) for queue_id in range(2)] == offsets
    queue_id = values.get("queueId", 0)
    key = f'{{"brokerName":"broker-a","queueId":{queue_id},"topic":"T"}}'
    assert json_body(answer)["offsetTable"][key] == offsets[queue_id]


async def test_an_orderly_consumer_locks_its_queues(client: Client) -> None:
    queue = {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
    mine = {"clientId": "one", "consumerGroup": "g", "mqSet": [queue]}
    theirs = {**mine, "clientId": "two"}

    locked = await client.ask(RequestCode.LOCK_BATCH_MQ, java_json.encode(mine))
    refused = await client.ask(RequestCode.LOCK_BATCH_MQ, java_json.encode(theirs))
    await client.ask(RequestCode.UNLOCK_BATCH_MQ, java_json.encode(mine))
    after = await client.ask(RequestCode.LOCK_BATCH_MQ, java_json.encode(theirs))

    assert json_body(locked) == {"lockOKMQSet": [queue]}
    assert json_body(refused) == {"lockOKMQSet": []}
    assert json_body(after) == {"lockOKMQSet": [queue]}


async def test_a_group_is_changed_and_deleted_over_the_wire(client: Client) -> None:
    body = java_json.encode({"groupName": "g", "consumeEnable": False, "retryMaxTimes": 3})
    assert (
        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    ).code == ResponseCode.SUCCESS
    await client.send("T")
    assert (await client.pull("T", group="g")).code == ResponseCode.NO_PERMISSION

    listed = await client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert json_body(listed)["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 3
    await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", cleanOffset="true")
    listed = await client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert "g" not in json_body(listed)["subscriptionGroupTable"]


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": "bad/name"},
        {"topic": "TBW102"},
        {"topic": "T", "readQueueNums": 0},
        {"topic": "T", "writeQueueNums": 100_000},
        {"topic": "T", "perm": 8},
        {"topic": "T", "topicFilterType": "NONE"},
    ],
)
async def test_an_invalid_topic_is_rejected_with_an_explanation(
    client: Client, fields: dict[str, Any]
) -> None:
    right: dict[str, Any] = {
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }

    answer = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **{**right, **fields})

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert "\n" not in answer.remark


async def test_the_configuration_is_read_but_not_changed_over_the_wire(
    broker: Broker, client: Client
) -> None:
    read = await client.ask(RequestCode.GET_BROKER_CONFIG)
    changed = await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"storePathRootDir=/tmp/x\n")

    assert f"listenPort={broker.listen_port}\n".encode() in read.body
    assert changed.code == ResponseCode.NO_PERMISSION


async def test_runtime_info_reports_the_counters(client: Client) -> None:
    await client.send("T")
    await client.pull("T")

    table = json_body(await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]

    assert table["msgPutTotalTodayNow"] == "1"
    assert table["msgGetTotalTodayNow"] == "1"
    assert table["brokerVersionDesc"] == "V4_9_7"
    assert len(table["putTps"].split(" ")) == 3
    assert all(isinstance(value, str) for value in table.values())


async def test_the_vip_port_serves_everything_except_pulls(broker: Broker) -> None:
    client = Client(f"127.0.0.1:{broker.listen_port - 2}")

    assert (await client.send("T")).code == ResponseCode.SUCCESS
    assert (await client.pull("T")).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    await client.shutdown()


async def test_an_unknown_request_is_answered_as_unknown(client: Client) -> None:
    answer = await client.ask(9999)

    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 9999 not supported"


async def test_a_watcher_sees_a_message_stored_delivered_and_acknowledged(client: Client) -> None:
    notices = Notices()
    watcher = listening_client(client.address, notices)
    watch = await watcher.ask(RequestCode.TRACE_WATCH, b'{"topic":"T"}')

    sent = await client.send("T", b"body", tags="A", keys="k")
    await client.send("other")
    await client.pull("T")
    await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0, commitOffset=1
    )

    assert watch.code == ResponseCode.SUCCESS
    events: list[dict[str, Any]] = []
    while len(events) < 3:
        batch = json_body(await notices.next())
        assert batch["watchId"] == watch.ext_fields["watchId"]
        assert batch["dropped"] == "0"
        events += batch["events"]
    assert [event["stage"] for event in events] == ["stored", "delivered", "acknowledged"]
    assert {event["topic"] for event in events} == {"T"}
    assert events[0]["offsetMsgId"] == sent.ext_fields["msgId"]
    assert events[0]["tags"] == events[1]["tags"] == "A"
    assert events[1]["group"] == "g"
    assert {(event["queueOffset"], event["messageId"]) for event in events} == {
        ("0", sent.ext_fields["msgId"])
    }
    await watcher.shutdown()


async def test_an_unreadable_filter_is_rejected(client: Client) -> None:
    answer = await client.ask(RequestCode.TRACE_WATCH, b'{"sample":0}')

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert "sample" in answer.remark


async def disconnect(client: Client, *groups: str) -> RemotingCommand:
    body = java_json.encode({"groups": list(groups)}) if groups else b""
    return await client.ask(RequestCode.DISCONNECT_CLIENT, body, clientId="worker", group="g")


async def test_a_client_is_not_disconnected_if_it_is_in_an_unnamed_group(
    broker: Broker, client: Client
) -> None:
    worker = Client(client.address)
    await worker.heartbeat("worker", consumer_groups={"g": {"T": "*"}}, producer_groups=("pg",))

    report = await disconnect(client)
    refused = await disconnect(client, "g")
    unreadable = await client.ask(
        RequestCode.DISCONNECT_CLIENT, b"[]", clientId="worker", group="g"
    )
    assert broker.clients.consumers.find("g") is not None
    closed = await disconnect(client, "g", "pg")
    await until_async(lambda: broker.clients.consumers.find("g") is None, "the client's leaving")
    gone = await disconnect(client, "g", "pg")
    await worker.heartbeat("worker", consumer_groups={"g": {"T": "*"}})

    (row,) = json_body(report)["connections"]
    assert (row["consumerGroups"], row["producerGroups"]) == (["g"], ["pg"])
    assert (refused.code, unreadable.code) == (ResponseCode.SYSTEM_ERROR,) * 2
    assert "pg" in (refused.remark or "")
    assert json_body(closed) == json_body(report)
    assert json_body(gone) == {"connections": []}
    assert broker.clients.consumers.find("g") is not None, "it may come back"
    await worker.shutdown()


async def test_a_client_does_not_disconnect_itself(broker: Broker, client: Client) -> None:
    await client.heartbeat("worker", consumer_groups={"g": {"T": "*"}})

    answer = await disconnect(client, "g")

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert broker.clients.consumers.find("g") is not None
