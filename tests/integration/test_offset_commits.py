"""Which consumer offsets a broker stores for its clients."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.metadata.former_offsets import DISCARD_S
from broker_core.protocol.codes import V5_0_0, RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from tests.support.broker import running_broker
from tests.support.builders import put
from tests.support.client import Client
from tests.support.clock import ManualClock
from tests.support.long_timeouts import PATIENCE_S
from tests.support.twins import is_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker

INT64_MAX = (1 << 63) - 1
GROUP, TOPIC = "g", "T"
COMMIT, SUBSCRIPTION = 1, 4
SLAVE: dict[str, Any] = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": "127.0.0.1:1"}


@pytest.fixture(
    params=[
        "0",
        pytest.param("1", marks=pytest.mark.skipif(not is_compiled(), reason="not compiled")),
    ],
    ids=["python", "compiled"],
)
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREBUCHET_NATIVE", request.param)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock, native: None) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, clock=clock) as running:
        yield running


async def commit(
    client: Client, offset: int, topic: str = TOPIC, queue_id: int = 0
) -> RemotingCommand:
    return await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup=GROUP,
        topic=topic,
        queueId=queue_id,
        commitOffset=offset,
    )


async def query(client: Client) -> int:
    answer = await client.ask(
        RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=GROUP, topic=TOPIC, queueId=0
    )
    return int(answer.ext_fields["offset"])


async def pull(client: Client, offset: int, committed: int) -> RemotingCommand:
    return await client.ask(
        RequestCode.PULL_MESSAGE,
        consumerGroup=GROUP,
        topic=TOPIC,
        queueId=0,
        queueOffset=offset,
        maxMsgNums=32,
        sysFlag=COMMIT | SUBSCRIPTION,
        commitOffset=committed,
        suspendTimeoutMillis=0,
        subscription="*",
        expressionType="TAG",
        subVersion=0,
    )


async def fill(client: Client, count: int) -> None:
    for _ in range(count):
        assert (await client.send(TOPIC)).code == ResponseCode.SUCCESS


def stored(broker: Broker) -> int:
    return broker.storage.offsets.query(GROUP, TOPIC, 0)


@pytest.mark.parametrize("offset", [4, 50, INT64_MAX])
async def test_an_offset_beyond_the_end_of_its_queue_is_rejected(
    broker: Broker, client: Client, offset: int
) -> None:
    await fill(client, 3)
    await commit(client, 2)

    answer = await commit(client, offset)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert f"offset {offset} is beyond the end 3 of queue 0 in T" in answer.remark
    assert stored(broker) == 2
    assert (await commit(client, 3)).code == ResponseCode.SUCCESS
    assert stored(broker) == 3


@pytest.mark.parametrize("offset", [4, 50, INT64_MAX])
@pytest.mark.parametrize("before", [None, 1])
async def test_a_pull_is_served_without_the_invalid_offset_sent_with_it(
    broker: Broker, client: Client, offset: int, before: int | None
) -> None:
    await fill(client, 3)
    if before is not None:
        await commit(client, before)

    answers = [await pull(client, place, offset) for place in (0, 3)]

    codes = [ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND]
    assert [answer.code for answer in answers] == codes
    assert stored(broker) == (-1 if before is None else before)
    await pull(client, 3, 3)
    assert stored(broker) == 3


async def test_an_offset_of_a_nonexistent_topic_is_rejected_like_in_5_x(
    broker: Broker, client: Client
) -> None:
    answer = await commit(client, 50, "Missing")

    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert broker.storage.offsets.table == {}


async def read_and_recreate(client: Client, read: int, new: int) -> None:
    """Have a group read a topic, which is then deleted and recreated."""
    await client.heartbeat(consumer_groups={GROUP: {TOPIC: "*"}})
    await fill(client, read)
    await commit(client, read)
    await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
    assert (await commit(client, read)).code == ResponseCode.TOPIC_NOT_EXIST
    await fill(client, new)


async def test_offsets_of_a_deleted_topic_move_no_group_in_its_successor(
    broker: Broker, client: Client
) -> None:
    await read_and_recreate(client, 5, 9)

    answer = await commit(client, 5)
    pulled = await pull(client, 5, 5)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert pulled.code == ResponseCode.PULL_OFFSET_MOVED
    assert pulled.ext_fields["nextBeginOffset"] == "0"
    assert stored(broker) == -1
    assert await query(client) == 0
    assert (await commit(client, 5)).code == ResponseCode.SUCCESS


async def test_a_pull_that_continues_in_a_deleted_topic_skips_nothing_of_its_successor(
    broker: Broker, client: Client
) -> None:
    await read_and_recreate(client, 5, 9)

    # A client that has consumed nothing since its start has no offset to commit.
    answers = [await client.pull(TOPIC, 5), await client.pull(TOPIC, 9)]

    for answer in answers:
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert answer.ext_fields["nextBeginOffset"] == "0"
    assert (await client.pull(TOPIC, 0)).code == ResponseCode.SUCCESS
    await commit(client, 0)
    assert (await client.pull(TOPIC, 5)).code == ResponseCode.SUCCESS


async def test_a_pull_with_a_rejected_offset_is_also_led_to_the_next_topic(
    broker: Broker, client: Client
) -> None:
    await read_and_recreate(client, 50, 60)

    answer = await pull(client, 50, 50)

    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert answer.ext_fields["nextBeginOffset"] == "0"


async def test_a_pull_by_a_non_member_is_served_at_any_offset(
    broker: Broker, client: Client
) -> None:
    await read_and_recreate(client, 5, 9)
    tool = Client(client.address)

    answer = await tool.pull(TOPIC, 5)
    await tool.shutdown()

    assert answer.code == ResponseCode.SUCCESS


async def test_the_offsets_of_an_unused_topic_are_cleaned_with_its_queues(
    broker: Broker, client: Client
) -> None:
    await fill(client, 5)
    await commit(client, 5)
    broker.storage.topics.delete(TOPIC)  # as if topics.json had been lost

    await client.ask(RequestCode.CLEAN_UNUSED_TOPIC)
    await fill(client, 3)

    assert stored(broker) == -1
    assert await query(client) == 0


async def test_a_group_that_starts_at_the_next_topics_first_message_is_trusted(
    broker: Broker, client: Client
) -> None:
    await read_and_recreate(client, 5, 9)

    await commit(client, 0)
    answer = await pull(client, 7, 7)

    assert answer.code == ResponseCode.SUCCESS
    assert stored(broker) == 7


async def test_a_group_that_never_asks_is_trusted_after_a_minute(
    broker: Broker, client: Client, clock: ManualClock
) -> None:
    await read_and_recreate(client, 5, 9)
    await commit(client, 6)
    clock.advance_ms(int(DISCARD_S * 1000) - 1)
    await commit(client, 6)
    assert stored(broker) == -1

    clock.advance_ms(1)
    await commit(client, 6)

    assert stored(broker) == 6


async def test_a_tool_sets_offsets_in_a_recreated_topic(broker: Broker, client: Client) -> None:
    await read_and_recreate(client, 5, 9)
    tool = Client(client.address)

    answer = await commit(tool, 8)
    await tool.shutdown()

    assert answer.code == ResponseCode.SUCCESS
    assert stored(broker) == 8


async def test_a_deletion_is_answered_after_the_topics_offsets_have_left_the_file(
    broker: Broker, client: Client, tmp_path: Path
) -> None:
    await fill(client, 3)
    await commit(client, 2)
    broker.storage.offsets.persist()

    await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)

    text = (tmp_path / "store" / "config" / "consumerOffset.json").read_text()
    assert "T@g" not in text


async def test_a_5_x_reset_to_one_beyond_the_end_goes_to_the_end(
    broker: Broker, client: Client
) -> None:
    await fill(client, 3)
    await commit(client, 1)

    codes = []
    for offset in (5, 4):
        fields = {"topic": TOPIC, "group": GROUP, "timestamp": "-1", "isForce": "true"}
        place = {"queueId": "0", "offset": str(offset)}
        request = RemotingCommand.request(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**fields, **place}
        )
        request.version = V5_0_0
        answer = await client.remoting.request(client.address, request, PATIENCE_S)
        codes.append(answer.code)

    assert codes == [ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS]
    assert stored(broker) == 3


async def test_a_slave_stores_valid_progress_from_its_master_only(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as broker:
        for _ in range(3):
            put(broker.storage.store, topic=TOPIC)
        broker.storage.topics.create_retry(TOPIC, 4)
    async with running_broker(tmp_path, **SLAVE) as slave:
        client = Client(f"127.0.0.1:{slave.listen_port}")

        assert (await commit(client, 1_000_000)).code == ResponseCode.SUCCESS
        assert (await commit(client, INT64_MAX)).code == ResponseCode.SYSTEM_ERROR

        assert stored(slave) == 1_000_000
        await client.shutdown()


async def test_offsets_in_the_file_are_lowered_however_large_they_are(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for _ in range(3):
            put(broker.storage.store, topic=TOPIC)
    path = tmp_path / "store" / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": {"T@g": {"0": 1 << 80}, "Gone@g": {"0": 50}}}))

    async with running_broker(tmp_path) as broker:
        assert stored(broker) == 3
        assert broker.storage.offsets.query(GROUP, "Gone", 0) == 0


async def test_an_offset_stored_for_a_deleted_topic_leads_to_the_first_message(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await fill(client, 5)
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
        await fill(client, 3)
        await client.shutdown()
    path = tmp_path / "store" / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": {"T@g": {"0": 5}}}))

    async with running_broker(tmp_path) as broker:
        assert stored(broker) == 0
