from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.builders import put
from tests.support.client import Client, json_body, messages
from tests.support.clock import ManualClock
from tests.support.time_steps import pass_time
from tests.support.trace_watch import Watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker
    from broker_core.message.message import MessageExt
    from broker_core.protocol.command import RemotingCommand

RETRY, DEAD = "%RETRY%g", "%DLQ%g"
LEVELS = "1s 1s 3s 4s 5s 6s 7s 8s 9s 10s 11s 12s 13s 14s 15s 16s 17s 18s"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, clock=clock, messageDelayLevel=LEVELS) as running:
        yield running


async def send_back(
    client: Client, message: MessageExt, level: int = 0, **more: Any
) -> RemotingCommand:
    return await client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        **{
            "offset": message.commit_log_offset,
            "group": "g",
            "delayLevel": level,
            "originTopic": message.topic,
            "unitMode": "false",
            **more,
        },
    )


async def only(client: Client, topic: str, queue_offset: int = 0) -> MessageExt:
    (message,) = messages(await client.pull(topic, queue_offset))
    return message


async def test_a_returned_message_is_redelivered_after_the_third_level(
    client: Client, clock: ManualClock
) -> None:
    sent = await client.send("T", b"body", tags="A", keys="k", UNIQ_KEY="U")
    message = await only(client, "T")

    assert (await send_back(client, message)).code == ResponseCode.SUCCESS

    await pass_time(clock, 2_900)
    assert messages(await client.pull(RETRY)) == []
    await pass_time(clock, 200)
    again = await only(client, RETRY)
    assert (again.body, again.reconsume_times, again.tags) == (b"body", 1, "A")
    assert again.properties["RETRY_TOPIC"] == "T"
    assert again.properties["ORIGIN_MESSAGE_ID"] == sent.ext_fields["msgId"]
    assert again.properties["UNIQ_KEY"] == "U"
    assert again.born_timestamp == message.born_timestamp


async def test_each_attempt_waits_longer_and_after_sixteen_the_message_is_dead(
    broker: Broker, client: Client, clock: ManualClock
) -> None:
    sent = await client.send("T", b"poison")
    message = await only(client, "T")
    for attempt in range(16):
        assert (await send_back(client, message)).code == ResponseCode.SUCCESS
        await pass_time(clock, (3 + attempt) * 1_000 - 100)
        assert messages(await client.pull(RETRY, attempt)) == []
        await pass_time(clock, 200)
        message = await only(client, RETRY, attempt)
        assert message.reconsume_times == attempt + 1

    assert (await send_back(client, message)).code == ResponseCode.SUCCESS
    await pass_time(clock, 30_000)

    dead = await only(client, DEAD)
    assert (dead.body, dead.reconsume_times) == (b"poison", 17)
    assert dead.properties["RETRY_TOPIC"] == "T"
    assert dead.properties["ORIGIN_MESSAGE_ID"] == sent.ext_fields["msgId"]
    assert len(messages(await client.pull(RETRY))) == 16
    topic_config = broker.storage.topics.find(DEAD)
    assert topic_config is not None
    assert (topic_config.perm, topic_config.write_queue_nums) == (6, 1)
    assert broker.storage.stats.sndbck_put_nums["T@g"].value == 17


async def test_a_watcher_of_one_message_sees_it_returned_retried_and_dead(
    client: Client, clock: ManualClock
) -> None:
    watched = Watched(client.address)
    await client.send("T", b"before", UNIQ_KEY="other")
    await client.send("T", b"body", tags="A", UNIQ_KEY="U")
    await watched.begin(
        message={"topic": "T", "queueId": 0, "queueOffset": "1", "uniqKey": "U"},
        stages=["delivered", "given_back", "deferred", "acknowledged", "retried", "dead"],
    )

    message = messages(await client.pull("T"))[1]
    await send_back(client, message)
    await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0, commitOffset=2
    )
    await pass_time(clock, 3_100)
    await send_back(client, await only(client, RETRY), -1)

    events = await watched.next(7, lambda: pass_time(clock, 50))
    assert [(event["stage"], event["topic"], event.get("queueOffset")) for event in events] == [
        ("delivered", "T", "1"),
        ("given_back", "T", "1"),
        ("deferred", RETRY, None),
        ("acknowledged", "T", "1"),
        ("retried", RETRY, "0"),
        ("delivered", RETRY, "0"),
        ("dead", DEAD, "0"),
    ]
    assert {event["messageId"] for event in events} == {"U"}
    # The retry waited three seconds, however old the message was.
    assert 2_900_000 <= events[4]["latencyUs"] <= 3_200_000
    assert (events[4]["reconsumeTimes"], events[4]["reconsumeMax"]) == (1, 16)
    due_in_ms = int(events[2]["dueMs"]) - int(events[2]["timeMs"])
    assert (events[2]["delayLevel"], due_in_ms) == (3, 3_000)
    assert events[6]["group"] == "g"
    await watched.shutdown()


async def test_a_watcher_of_a_group_sees_its_retries_and_dead_letters_stored(
    client: Client, clock: ManualClock
) -> None:
    watched = Watched(client.address)
    await client.heartbeat(consumer_groups={"g": {"T": "*"}})
    await client.send("T", b"poison")
    await watched.begin(group="g", stages=["retried", "dead"])

    await send_back(client, await only(client, "T"))
    await pass_time(clock, 3_100)
    await fallback(client, 16)

    events = await watched.next(2, lambda: pass_time(clock, 50))
    assert [(event["stage"], event["topic"], event["group"]) for event in events] == [
        ("retried", RETRY, "g"),
        ("dead", DEAD, "g"),
    ]
    assert events[1]["reconsumeTimes"] == 16
    await watched.shutdown()


async def test_the_client_may_allow_fewer_attempts_than_the_group(client: Client) -> None:
    await client.send("T", b"poison")

    await send_back(client, await only(client, "T"), maxReconsumeTimes=0)

    assert (await only(client, DEAD)).body == b"poison"


async def test_a_groups_own_maximum_applies(client: Client) -> None:
    body = java_json.encode({"groupName": "g", "retryMaxTimes": 0})
    await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    await client.send("T", b"poison")

    await send_back(client, await only(client, "T"))

    assert (await only(client, DEAD)).body == b"poison"


async def test_a_consumer_may_declare_a_message_dead(client: Client) -> None:
    await client.send("T", b"poison")

    await send_back(client, await only(client, "T"), -1)

    dead = await only(client, DEAD)
    assert dead.reconsume_times == 1
    assert dead.properties["DELAY"] == "0"


async def test_a_consumer_may_choose_the_level(client: Client, clock: ManualClock) -> None:
    await client.send("T", b"soon")

    await send_back(client, await only(client, "T"), 1)
    await pass_time(clock, 1_100)

    assert (await only(client, RETRY)).body == b"soon"


async def test_a_group_without_retry_queues_drops_the_message(client: Client) -> None:
    body = java_json.encode({"groupName": "g", "retryQueueNums": 0})
    await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    await client.send("T")

    answer = await send_back(client, await only(client, "T"))

    assert answer.code == ResponseCode.SUCCESS
    assert messages(await client.pull("SCHEDULE_TOPIC_XXXX", queue_id=2)) == []


async def test_an_offset_without_a_message_is_rejected(client: Client) -> None:
    await client.send("T")
    message = await only(client, "T")

    answer = await send_back(client, message, offset=message.commit_log_offset + 1)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"look message by offset failed, {message.commit_log_offset + 1}"


async def test_a_half_message_cannot_be_returned(client: Client) -> None:
    await client.send("T")
    message = await only(client, "T")
    await client.send("T", b"half", TRAN_MSG="true", PGROUP="pg")

    answer = await send_back(client, message, -1, offset=message.store_size)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert messages(await client.pull(DEAD)) == []


async def test_an_unknown_group_is_rejected_if_none_is_created(tmp_path: Path) -> None:
    async with running_broker(tmp_path, autoCreateSubscriptionGroup="false") as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.send("T")

        answer = await client.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK, offset=0, group="g", delayLevel=0
        )

        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        await client.shutdown()


async def test_a_message_stored_by_rocketmq_with_a_separator_in_a_value_is_returned_unchanged(
    broker: Broker, client: Client
) -> None:
    """Clients can't send such a message to us, but an old store may contain it."""
    await client.send("T")
    put(broker.storage.store, "T", more={"colour": "r\x01d"})
    message = await only(client, "T", 1)

    answer = await send_back(client, message, level=-1)

    assert answer.code == ResponseCode.SUCCESS
    assert (await only(client, DEAD)).properties["colour"] == "r\x01d"


async def test_a_retry_topic_without_write_permission_rejects(client: Client) -> None:
    await client.send("T")
    message = await only(client, "T")
    await client.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=RETRY,
        defaultTopic="TBW102",
        readQueueNums=1,
        writeQueueNums=1,
        perm=4,
        topicFilterType="SINGLE_TAG",
        order="false",
    )

    answer = await send_back(client, message)

    assert answer.code == ResponseCode.NO_PERMISSION


async def fallback(client: Client, reconsume_times: int, **more: Any) -> RemotingCommand:
    """Send a retry as a consumer does after CONSUMER_SEND_MSG_BACK failed."""
    return await client.ask(
        RequestCode.SEND_MESSAGE_V2,
        b"body",
        a="CLIENT_INNER_PRODUCER",
        b=RETRY,
        c="TBW102",
        d="4",
        e="0",
        f="0",
        g="1",
        h="0",
        i="DELAY\x013\x02RETRY_TOPIC\x01T\x02TRAN_MSG\x01true",
        j=str(reconsume_times),
        k="false",
        m="false",
        **more,
    )


async def test_a_consumers_own_retry_is_delayed(client: Client, clock: ManualClock) -> None:
    await client.heartbeat(consumer_groups={"g": {"T": "*"}})

    assert (await fallback(client, 1)).code == ResponseCode.SUCCESS
    assert messages(await client.pull(RETRY)) == []
    await pass_time(clock, 3_100)

    message = await only(client, RETRY)
    assert (message.body, message.reconsume_times) == (b"body", 1)


async def test_a_consumers_last_retry_is_dead_immediately(client: Client) -> None:
    await client.heartbeat(consumer_groups={"g": {"T": "*"}})

    await fallback(client, 16)
    await fallback(client, 2, l="2")

    assert len(messages(await client.pull(DEAD))) == 2


async def test_returned_messages_are_counted(client: Client) -> None:
    await client.send("T")
    await send_back(client, await only(client, "T"))

    answer = await client.ask(
        RequestCode.VIEW_BROKER_STATS_DATA, statsName="SNDBCK_PUT_NUMS", statsKey="T@g"
    )

    assert answer.code == ResponseCode.SUCCESS
    assert set(json_body(answer)) == {"statsDay", "statsHour", "statsMinute"}


async def test_with_sync_flush_a_retry_is_durable_before_it_is_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path, flushDiskType="SYNC_FLUSH") as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.send("T", b"poison")
        message = await only(client, "T")

        for level in (1, -1):
            assert (await send_back(client, message, level)).code == ResponseCode.SUCCESS
            assert broker.storage.store.flushed_where == broker.storage.store.max_commit_log_offset

        assert (await only(client, DEAD)).body == b"poison"
        await client.shutdown()
