"""A slave without a master: its own tasks and the master's (see docs/roles.md)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.client import Client, json_body, messages
from tests.support.clock import ManualClock
from tests.support.producer import COMMIT, Producer
from tests.support.raw_remoting import topic_fields
from tests.support.time_steps import pass_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker

BEYOND = 20
MESSAGES = 3
COMMITS = 1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    """A slave whose store has data of a master: three messages, one delayed, one half."""
    async with running_broker(tmp_path, clock=clock) as master:
        producer = Producer(f"127.0.0.1:{master.listen_port}")
        for number in range(MESSAGES):
            await producer.send("T", b"%d" % number)
        await producer.send("T", b"later", DELAY="3")
        await producer.half(UNIQ_KEY="U1")
        await producer.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="g",
            topic="T",
            queueId=0,
            commitOffset=1,
        )
        await producer.shutdown()
    async with running_broker(tmp_path, clock=clock, brokerRole="SLAVE", brokerId=1) as slave:
        yield slave


async def test_a_slave_accepts_no_messages(client: Client) -> None:
    sent = await client.send("T")

    assert sent.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "messages are put to the slave" in (sent.remark or "")


async def test_the_stores_state_shows_that_it_is_a_slaves(client: Client) -> None:
    info = json_body(await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]

    assert info["storeState"] == "slave: messages come from the master"


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("made"), b""),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}, b""),
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {},
            java_json.encode({"groupName": "made"}),
        ),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"}, b""),
    ],
)
async def test_topics_and_groups_are_changed_on_the_master(
    client: Client, broker: Broker, code: RequestCode, fields: dict[str, Any], body: bytes
) -> None:
    topics, groups = dict(broker.storage.topics.table), dict(broker.storage.groups.table)

    answer = await client.ask(code, body, **fields)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "please execute it from master broker" in (answer.remark or "")
    assert (broker.storage.topics.table, broker.storage.groups.table) == (topics, groups)


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (RequestCode.UPDATE_DELAY_OFFSET, {"level": 3, "offset": 1}, b""),
        (
            RequestCode.UPDATE_CONSUMER_FILTER,
            {},
            b'{"consumerGroup":"g","topic":"T","expressionType":"SQL92","expression":"a > 1"}',
        ),
        (RequestCode.DELETE_CONSUMER_FILTER, {"consumerGroup": "g", "topic": "T"}, b""),
    ],
)
async def test_delay_offsets_and_filters_are_changed_on_the_master(
    client: Client, broker: Broker, code: RequestCode, fields: dict[str, Any], body: bytes
) -> None:
    before = broker.storage.schedule.document(), broker.storage.filters.document()

    answer = await client.ask(code, body, **fields)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "change delay offsets and filters on its master" in (answer.remark or "")
    assert (broker.storage.schedule.document(), broker.storage.filters.document()) == before


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
    ],
)
async def test_messages_are_leased_from_the_master(
    client: Client, broker: Broker, code: RequestCode
) -> None:
    receipt = "0 1 60000 0 0 broker-a 0 0"
    fields: dict[str, Any] = {
        "queueId": 0,
        "offset": 0,
        "extraInfo": receipt,
        "invisibleTime": 60_000,
    }

    answer = await client.ask(code, consumerGroup="g", topic="T", **fields)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "receive and acknowledge messages on its master" in (answer.remark or "")
    assert not list(broker.storage.pop.engine.in_flight())


async def test_a_groups_mode_is_set_on_the_master(client: Client, broker: Broker) -> None:
    body = b'{"topic":"T","consumerGroup":"g","mode":"POP","popShareQueueNum":0}'

    answer = await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "please execute it from master broker" in (answer.remark or "")
    assert broker.storage.pop.modes.table == {}


async def test_a_slave_serves_reads(client: Client) -> None:
    answer = await client.pull("T")

    assert [message.body for message in messages(answer)] == [b"0", b"1", b"2"]
    assert answer.ext_fields["suggestWhichBrokerId"] == "0"


async def pull_committing(client: Client) -> None:
    await client.ask(
        RequestCode.PULL_MESSAGE,
        consumerGroup="g",
        topic="T",
        queueId=0,
        queueOffset=0,
        maxMsgNums=32,
        sysFlag=4 | COMMITS,
        commitOffset=3,
        suspendTimeoutMillis=0,
        subscription="*",
        expressionType="TAG",
        subVersion=0,
    )


async def offset_of(client: Client) -> str:
    answer = await client.ask(
        RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0
    )
    return answer.ext_fields["offset"]


async def test_a_pulls_offset_is_not_committed_but_an_explicit_one_is(
    client: Client, broker: Broker
) -> None:
    await pull_committing(client)
    assert await offset_of(client) == "1"

    await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0, commitOffset=2
    )
    assert await offset_of(client) == "2"

    await broker.foundation.role.changed("ASYNC_MASTER")
    await pull_committing(client)
    assert await offset_of(client) == "3"


async def configure_group(broker: Broker, client: Client, **more: int) -> None:
    """Configure the group as its master would, and redirect consumers to slaves."""
    await broker.foundation.role.changed("ASYNC_MASTER")
    group = java_json.encode({"groupName": "g", **more})
    answer = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)
    assert answer.code == ResponseCode.SUCCESS
    await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"slaveReadEnable=true\n")


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
async def test_a_slow_consumer_is_redirected_as_its_group_configures_and_a_fast_one_back(
    tmp_path: Path, role: str
) -> None:
    """By the memory ratio, the group reads messages that are no longer, or still, in memory."""
    for share, suggested in ((0, "7"), (40, "2")):
        directory = tmp_path / str(share)
        async with running_broker(directory, accessMessageInMemoryMaxRatio=share) as broker:
            client = Client(f"127.0.0.1:{broker.listen_port}")
            for number in range(MESSAGES):
                await client.send("T", b"%d" % number)
            await configure_group(broker, client, brokerId=2, whichBrokerWhenConsumeSlowly=7)
            if role == "SLAVE":
                await broker.foundation.role.changed("SLAVE", 1)

            answer = await client.pull("T", max_msg_nums=1)
            assert answer.ext_fields["suggestWhichBrokerId"] == suggested
            await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"slaveReadEnable=false\n")
            answer = await client.pull("T", max_msg_nums=1)
            assert answer.ext_fields["suggestWhichBrokerId"] == "0"
            await client.shutdown()


async def test_a_pull_from_beyond_the_end_is_redirected_to_the_master_with_its_offset(
    client: Client,
) -> None:
    answer = await client.pull("T", BEYOND)

    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.ext_fields["nextBeginOffset"] == str(BEYOND)
    assert answer.ext_fields["suggestWhichBrokerId"] == "0"
    assert answer.ext_fields["maxOffset"] == str(MESSAGES)


async def test_such_a_waiting_pull_is_kept_for_a_second(
    client: Client, broker: Broker, clock: ManualClock
) -> None:
    waiting = asyncio.create_task(client.pull("T", BEYOND, suspend_ms=15_000, timeout_s=60))
    while not len(broker.storage.parked_pulls):  # noqa: ASYNC110  parked pulls have no event
        await asyncio.sleep(0)

    await pass_time(clock, 900)
    assert not waiting.done()
    await pass_time(clock, 200)
    assert (await waiting).code == ResponseCode.PULL_RETRY_IMMEDIATELY


async def test_with_offset_check_a_slave_moves_a_pull_like_a_master(client: Client) -> None:
    await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"offsetCheckInSlave=true\n")

    answer = await client.pull("T", BEYOND)

    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert answer.ext_fields["nextBeginOffset"] == str(MESSAGES)


async def test_a_slave_delivers_nothing_until_it_is_master(
    client: Client, broker: Broker, clock: ManualClock
) -> None:
    await pass_time(clock, 20_000)
    assert (await client.pull("T", MESSAGES)).code == ResponseCode.PULL_NOT_FOUND

    waiting = asyncio.create_task(client.pull("T", MESSAGES, suspend_ms=15_000, timeout_s=60))
    while not len(broker.storage.parked_pulls):  # noqa: ASYNC110  parked pulls have no event
        await asyncio.sleep(0)
    await broker.foundation.role.changed("ASYNC_MASTER")
    await pass_time(clock, 100)

    assert [message.body for message in messages(await waiting)] == [b"later"]
    assert (await client.send("T")).code == ResponseCode.SUCCESS


async def test_a_slave_checks_no_producers_but_a_new_master_does(
    broker: Broker, clock: ManualClock
) -> None:
    producer = Producer(f"127.0.0.1:{broker.listen_port}")
    await producer.join()
    await pass_time(clock, 180_000)
    assert producer.questions.empty()

    await broker.foundation.role.changed("ASYNC_MASTER")
    await producer.join()
    await pass_time(clock, 60_000)
    question = await producer.question()
    ended = await producer.answer(question, COMMIT)

    assert ended.code == ResponseCode.SUCCESS
    assert [message.body for message in messages(await producer.pull("T", MESSAGES))] == [
        b"later",
        b"half",
    ]
    await producer.shutdown()


async def test_a_transaction_is_ended_at_the_master(client: Client) -> None:
    ended = await client.ask(
        RequestCode.END_TRANSACTION,
        producerGroup="pg",
        tranStateTableOffset=0,
        commitLogOffset=0,
        commitOrRollback=COMMIT,
        fromTransactionCheck="false",
        msgId="U1",
    )

    assert ended.code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_only_the_master_recalls_and_lists_timers(client: Client, broker: Broker) -> None:
    changed = await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"recallMessageEnable=true\n")
    assert changed.code == ResponseCode.SUCCESS, changed.remark

    recalled = await client.ask(RequestCode.RECALL_MESSAGE, topic="T", recallHandle="x")
    listed = await client.ask(RequestCode.GET_TIMER_MESSAGES)

    assert recalled.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert listed.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_master_that_becomes_slave_stops_its_duties(
    client: Client, broker: Broker, clock: ManualClock
) -> None:
    await broker.foundation.role.changed("ASYNC_MASTER")
    await broker.foundation.role.changed("SLAVE", 1)

    await pass_time(clock, 20_000)

    assert (await client.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (await client.pull("T", MESSAGES)).code == ResponseCode.PULL_NOT_FOUND
