from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.message import properties
from broker_core.message.ids import parse_offset_msg_id
from broker_core.message.topic_config import PERM_WRITE
from broker_core.native.loading import COMMAND, VARIABLE
from broker_core.protocol import java_json
from broker_core.protocol.codes import SERIALIZE_ROCKETMQ, RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from tests.support.broker import running_broker
from tests.support.builders import batch_item
from tests.support.client import Client, json_body, messages
from tests.support.twins import is_compiled
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.broker import Broker


async def test_a_sent_message_is_pulled_unchanged(client: Client) -> None:
    sent = await client.send("T", b"body", tags="A", keys="k1 k2", UNIQ_KEY="U1", WAIT="true")

    (message,) = messages(await client.pull("T"))

    assert sent.code == ResponseCode.SUCCESS
    assert (message.topic, message.queue_id, message.queue_offset) == ("T", 0, 0)
    assert message.body == b"body"
    assert message.born_timestamp == 1795252759675
    assert message.properties == {
        "TAGS": "A",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "U1",
        "CLUSTER": "DefaultCluster",
    }


async def test_a_sends_answer_has_the_offset_of_the_message(broker: Broker, client: Client) -> None:
    await client.send("T", queue_id=2)
    sent = await client.send("T", queue_id=2)

    place = parse_offset_msg_id(sent.ext_fields["msgId"])
    assert place is not None
    assert place.host == f"127.0.0.1:{broker.listen_port}"
    assert sent.ext_fields["queueId"] == "2"
    assert sent.ext_fields["queueOffset"] == "1"
    assert sent.ext_fields["MSG_REGION"] == "DefaultRegion"
    assert sent.ext_fields["TRACE_ON"] == "true"
    found = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=place.commit_log_offset)
    assert messages(found)[0].queue_offset == 1


async def test_a_send_may_have_the_long_header_form(client: Client) -> None:
    sent = await client.ask(
        RequestCode.SEND_MESSAGE,
        b"old",
        producerGroup="pg",
        topic="T",
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=0,
        sysFlag=0,
        bornTimestamp=1,
        flag=7,
        properties="",
    )

    assert sent.code == ResponseCode.SUCCESS
    (message,) = messages(await client.pull("T"))
    assert (message.body, message.flag) == (b"old", 7)


async def test_a_binary_header_gets_a_binary_answer(client: Client) -> None:
    request = RemotingCommand.request(
        RequestCode.SEND_MESSAGE_V2,
        {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"},
        b"binary",
    )
    request.serialize_type = SERIALIZE_ROCKETMQ

    sent = await client.remoting.request(client.address, request, 5.0)

    assert sent.serialize_type == SERIALIZE_ROCKETMQ
    assert sent.code == ResponseCode.SUCCESS
    assert sent.ext_fields["queueOffset"] == "0"


async def test_a_oneway_send_is_stored_and_not_answered(client: Client) -> None:
    await client.send("T")
    request = RemotingCommand.request(
        RequestCode.SEND_MESSAGE_V2,
        {"a": "pg", "b": "T", "c": "", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"},
        b"oneway",
    )
    await client.remoting.oneway(client.address, request)

    answer = await client.pull("T", 1, suspend_ms=5000)

    assert [message.body for message in messages(answer)] == [b"oneway"]


BATCH: dict[str, Any] = {
    "a": "pg",
    "b": "T",
    "c": "TBW102",
    "d": 4,
    "e": 0,
    "f": 0,
    "g": 1,
    "h": 0,
    "m": "true",
}


async def send_batch(client: Client, *bodies: bytes, **more: Any) -> RemotingCommand:
    items = b"".join(
        batch_item(body, properties.encode({"TAGS": f"t{index}"}).encode())
        for index, body in enumerate(bodies)
    )
    return await client.ask(
        RequestCode.SEND_BATCH_MESSAGE,
        items,
        **BATCH,
        **more,
    )


async def test_a_batch_is_stored_as_ordinary_messages(client: Client) -> None:
    sent = await send_batch(client, b"one", b"two", b"three", i="WAIT\x01true")

    stored = messages(await client.pull("T"))
    assert sent.code == ResponseCode.SUCCESS
    assert len(sent.ext_fields["msgId"].split(",")) == 3
    assert sent.ext_fields["queueOffset"] == "0"
    assert [message.body for message in stored] == [b"one", b"two", b"three"]
    assert [message.queue_offset for message in stored] == [0, 1, 2]
    assert [message.properties["TAGS"] for message in stored] == ["t0", "t1", "t2"]
    assert all(message.properties["CLUSTER"] == "DefaultCluster" for message in stored)


async def test_a_batch_of_delayed_messages_is_rejected(client: Client) -> None:
    sent = await send_batch(client, b"one", i="DELAY\x013")

    assert sent.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_truncated_batch_is_rejected_whole(client: Client) -> None:
    await client.send("T")

    answer = await client.ask(
        RequestCode.SEND_BATCH_MESSAGE,
        batch_item(b"one")[:-1],
        **BATCH,
    )

    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert len(messages(await client.pull("T"))) == 1


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("no/slash", ResponseCode.SYSTEM_ERROR),
        ("../../x", ResponseCode.SYSTEM_ERROR),
        ("", ResponseCode.SYSTEM_ERROR),
        ("x" * 128, ResponseCode.SYSTEM_ERROR),
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION),
    ],
)
async def test_a_topic_without_send_permission_is_rejected_with_an_explanation(
    client: Client, topic: str, code: ResponseCode
) -> None:
    answer = await client.send(topic)

    assert answer.code == code
    assert answer.remark


async def test_a_body_larger_than_the_limit_is_rejected(tmp_path: Path) -> None:
    async with running_broker(tmp_path, maxMessageSize=1000) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")

        assert (await client.send("T", bytes(1000))).code == ResponseCode.SUCCESS
        refused = await client.send("T", bytes(1001))

        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert refused.remark
        assert "1000B" in refused.remark
        await client.shutdown()


async def test_a_missing_queue_is_rejected(client: Client) -> None:
    answer = await client.send("T", queue_id=4)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert "queueId[4] is illegal" in answer.remark


async def test_a_negative_queue_id_lets_the_broker_choose(client: Client) -> None:
    answer = await client.send("T", queue_id=-1)

    assert answer.code == ResponseCode.SUCCESS
    assert 0 <= int(answer.ext_fields["queueId"]) < 4


async def test_without_automatic_creation_an_unknown_topic_is_rejected(tmp_path: Path) -> None:
    async with running_broker(tmp_path, autoCreateTopicEnable="false") as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")

        assert (await client.send("T")).code == ResponseCode.TOPIC_NOT_EXIST
        await client.shutdown()


@pytest.mark.parametrize(
    ("code", "body", "fields", "expected"),
    [
        (RequestCode.SEND_MESSAGE_V2, b"x", {"b": "no/slash"}, ResponseCode.SYSTEM_ERROR),
        (RequestCode.SEND_MESSAGE_V2, b"x", {"e": "9"}, ResponseCode.SYSTEM_ERROR),
        (RequestCode.SEND_MESSAGE_V2, b"x", {"e": "x"}, ResponseCode.SYSTEM_ERROR),
        (
            RequestCode.SEND_MESSAGE_V2,
            b"x",
            {"i": "k\x01" + "v" * 32_768},
            ResponseCode.MESSAGE_ILLEGAL,
        ),
        (RequestCode.SEND_MESSAGE_V2, b"x", {"i": "DELAY\x01x"}, ResponseCode.SYSTEM_ERROR),
        (RequestCode.SEND_BATCH_MESSAGE, b"cut", {}, ResponseCode.MESSAGE_ILLEGAL),
        (RequestCode.SEND_REPLY_MESSAGE_V2, b"x", {}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_rejected_send_has_the_fields_that_producers_read_from_every_answer(
    client: Client,
    code: RequestCode,
    body: bytes,
    fields: dict[str, str],
    expected: ResponseCode,
) -> None:
    header = {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}

    answer = await client.ask(code, body, **dict[str, Any]({**header, **fields}))

    assert answer.code == expected
    assert answer.remark
    assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
    assert answer.ext_fields["TRACE_ON"] == "true"


async def test_a_missing_field_is_named(client: Client) -> None:
    answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"", a="pg", b="T", c="TBW102")

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "the request has no queueId"


@pytest.mark.parametrize(("accept_from", "code"), [(1, 0), (1 << 52, 1)])
async def test_a_broker_accepts_messages_from_its_start_time_on(
    tmp_path: Path, accept_from: int, code: int
) -> None:
    keys = {"startAcceptSendRequestTimeStamp": accept_from}
    async with running_broker(tmp_path, **dict[str, Any](keys)) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")

        answer = await client.send("T")

        assert answer.code == code
        assert "unable to service, until" in (answer.remark or "unable to service, until")
        await client.shutdown()


@pytest.mark.parametrize(
    ("letter", "name", "value"),
    [
        ("f", "sysFlag", 1 << 31),
        ("h", "flag", -(1 << 31) - 1),
        ("j", "reconsumeTimes", 1 << 31),
        ("g", "bornTimestamp", 1 << 63),
    ],
)
async def test_a_number_too_large_for_a_record_is_named(
    client: Client, letter: str, name: str, value: int
) -> None:
    fields: dict[str, Any] = dict.fromkeys("efhj", 0)
    fields |= {"a": "pg", "b": "T", "c": "TBW102", "d": 4, "g": 1}

    answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"x", **fields | {letter: value})

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"the request's {name} is not a number" in (answer.remark or "")


async def test_a_negative_flag_is_a_flag(client: Client) -> None:
    fields: dict[str, Any] = {"a": "pg", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0}
    fields |= {"g": 1, "h": -1}

    answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"x", **fields)

    assert answer.code == ResponseCode.SUCCESS
    assert messages(await client.pull("T"))[0].flag == -1


async def test_a_pull_at_the_end_waits_for_the_next_message(client: Client) -> None:
    await client.send("T")
    waiting = asyncio.create_task(client.pull("T", 1, suspend_ms=10_000, timeout_s=8.0))

    await client.send("T", b"next")

    assert [message.body for message in messages(await waiting)] == [b"next"]


async def test_a_pull_with_a_long_subscription_does_not_wait(client: Client) -> None:
    """A parked pull keeps its request: many long ones would fill the memory."""
    await client.send("T")

    answer = await client.pull("T", 1, subscription="A||" * 5_000, suspend_ms=60_000)

    assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_a_pull_that_must_not_wait_is_answered_immediately(client: Client) -> None:
    await client.send("T")

    answer = await client.pull("T", 1)

    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert answer.ext_fields["nextBeginOffset"] == "1"
    assert answer.ext_fields["maxOffset"] == "1"


async def test_a_pull_beyond_the_end_learns_where_to_continue(client: Client) -> None:
    await client.send("T")

    answer = await client.pull("T", 9)

    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert answer.ext_fields["nextBeginOffset"] == "1"


async def test_a_tag_filter_returns_only_its_tags_and_skips_the_others(client: Client) -> None:
    for tags in ("A", "B", "A", "C"):
        await client.send("T", tags.encode(), tags=tags)

    answer = await client.pull("T", subscription="A || C")
    nothing = await client.pull("T", subscription="D")

    assert [message.body for message in messages(answer)] == [b"A", b"A", b"C"]
    assert answer.ext_fields["nextBeginOffset"] == "4"
    assert nothing.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert nothing.ext_fields["nextBeginOffset"] == "4"


async def test_a_parked_pull_waits_past_messages_that_its_filter_skips(
    broker: Broker, client: Client
) -> None:
    await client.send("T")
    waiting = asyncio.create_task(
        client.pull("T", 1, subscription="A", suspend_ms=10_000, timeout_s=8.0)
    )
    while not len(broker.storage.parked_pulls):  # noqa: ASYNC110  parked pulls have no event
        await asyncio.sleep(0)
    await client.send("T", b"skipped", tags="B")
    await client.send("T", b"wanted", tags="A")

    answer = await waiting

    assert [message.body for message in messages(answer)] == [b"wanted"]


async def test_a_pull_of_an_unknown_topic_creates_none(client: Client) -> None:
    answer = await client.pull("nowhere")

    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_push_consumer_must_have_sent_a_heartbeat(client: Client) -> None:
    await client.send("T")

    answer = await client.ask(
        RequestCode.PULL_MESSAGE,
        consumerGroup="g",
        topic="T",
        queueId=0,
        queueOffset=0,
        maxMsgNums=32,
        sysFlag=0,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subVersion=1,
    )

    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_messages_offsets_and_topics_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.send("T", b"kept")
        await client.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="g",
            topic="T",
            queueId=0,
            commitOffset=1,
        )
        await client.shutdown()

    async with running_broker(tmp_path) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        assert [message.body for message in messages(await client.pull("T"))] == [b"kept"]
        offset = await client.ask(
            RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0
        )
        assert offset.ext_fields["offset"] == "1"
        await client.shutdown()


async def test_synchronous_flush_answers_after_the_flush(tmp_path: Path) -> None:
    async with running_broker(tmp_path, flushDiskType="SYNC_FLUSH") as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")

        answers = await asyncio.gather(*(client.send("T") for _ in range(50)))

        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert broker.storage.store.flushed_where == broker.storage.store.max_commit_log_offset
        assert len(messages(await client.pull("T", max_msg_nums=64))) == 32
        await client.shutdown()


async def test_a_message_is_found_by_its_keys(client: Client) -> None:
    await client.send("T", b"one", keys="order-1 paid", UNIQ_KEY="U1")
    await client.send("T", b"two", keys="order-2")

    found = await client.ask(
        RequestCode.QUERY_MESSAGE,
        topic="T",
        key="paid",
        maxNum=10,
        beginTimestamp=0,
        endTimestamp=1 << 62,
    )
    nothing = await client.ask(
        RequestCode.QUERY_MESSAGE,
        topic="T",
        key="nobody",
        maxNum=10,
        beginTimestamp=0,
        endTimestamp=1 << 62,
    )

    assert [message.body for message in messages(found)] == [b"one"]
    assert nothing.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_deleted_topic_starts_over(client: Client) -> None:
    await client.send("T", b"before")

    deleted = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    assert deleted.code == ResponseCode.SUCCESS
    assert (await client.pull("T")).code == ResponseCode.TOPIC_NOT_EXIST
    sent = await client.send("T", b"after")

    assert sent.ext_fields["queueOffset"] == "0"
    assert [message.body for message in messages(await client.pull("T"))] == [b"after"]


@pytest.mark.parametrize("twin", ["compiled", "python"])
async def test_a_waiting_pull_of_a_deleted_topic_is_sent_to_the_beginning_immediately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twin: str
) -> None:
    if twin == "compiled" and not is_compiled():
        pytest.skip(f"no compiled turn: {COMMAND}")
    monkeypatch.setenv(VARIABLE, str(int(twin == "compiled")))
    async with running_broker(tmp_path) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.send("T", b"before")
        waiting = asyncio.create_task(client.pull("T", 1, suspend_ms=60_000))
        await until_async(lambda: len(broker.storage.parked_pulls) == 1, "the pull to wait")

        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
        await client.send("T", b"after")

        answer = await waiting
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert answer.ext_fields["nextBeginOffset"] == "0"
        await client.shutdown()


@pytest.mark.parametrize("owner", ["the group's", "the topic's"])
async def test_a_waiting_pull_gets_nothing_after_its_permission_was_revoked(
    broker: Broker, client: Client, owner: str
) -> None:
    await client.send("T", b"before")
    waiting = asyncio.create_task(client.pull("T", 1, suspend_ms=60_000))
    await until_async(lambda: len(broker.storage.parked_pulls) == 1, "the pull to wait")

    if owner == "the group's":
        group = java_json.encode({"groupName": "g", "consumeEnable": False})
        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)
    else:
        await client.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic="T",
            readQueueNums=4,
            writeQueueNums=4,
            perm=PERM_WRITE,
        )
    await client.send("T", b"after")

    assert (await waiting).code == ResponseCode.PULL_NOT_FOUND
    assert (await client.pull("T", 1)).code == ResponseCode.NO_PERMISSION


async def test_a_consumer_of_a_recreated_topic_continues_at_the_beginning(
    client: Client,
) -> None:
    for _ in range(3):
        await client.send("T", b"before")
    end = await client.pull("T", 9)
    await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    await client.send("T", b"after")

    answer = await client.pull("T", 3)

    assert end.ext_fields["nextBeginOffset"] == "3"
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    begin = int(answer.ext_fields["nextBeginOffset"])
    assert [message.body for message in messages(await client.pull("T", begin))] == [b"after"]


async def test_a_topics_stats_report_its_queues_ends(client: Client) -> None:
    await client.send("T", queue_id=1)
    await client.send("T", queue_id=1)

    answer = await client.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="T")

    table = json_body(answer)["offsetTable"]
    queue = table['{"brokerName":"broker-a","queueId":1,"topic":"T"}']
    assert (queue["minOffset"], queue["maxOffset"]) == (0, 2)
    assert queue["lastUpdateTimestamp"] > 0
    assert len(table) == 4
