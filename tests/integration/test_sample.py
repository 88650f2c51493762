"""GET_BROKER_SAMPLE: all data that a collector stores about a broker, in one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.client import Client, json_body
from tests.support.clock import ManualClock
from tests.support.pair import running_slave, until_caught_up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker

SHARED_MS = 1_001


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def client(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Client]:
    async with running_broker(tmp_path, clock=clock) as broker:
        made = Client(f"127.0.0.1:{broker.listen_port}")
        yield made
        await made.shutdown()


async def sample(client: Client, clock: ManualClock) -> Any:
    """Request a sample once the previous answer is no longer shared."""
    clock.advance_ms(SHARED_MS)
    answer = await client.ask(RequestCode.GET_BROKER_SAMPLE)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return json_body(answer)


def topic_of(body: Any, name: str) -> tuple[int, list[int]]:
    [(size, queues)] = [row[1:3] for row in body["topics"] if row[0] == name]
    return size, queues


def progress_of(body: Any, group: str, topic: str) -> list[int]:
    [numbers] = [row[2] for row in body["progress"] if row[:2] == [group, topic]]
    assert isinstance(numbers, list)
    return numbers


async def test_a_topic_shows_its_queues_ends_and_its_bytes(client, clock) -> None:
    for _ in range(3):
        await client.send("T", b"hello", queue_id=2)

    body = await sample(client, clock)

    size, queues = topic_of(body, "T")
    assert queues == [2, 0, 3]
    assert size > 3 * len(b"hello")
    assert body["counters"]["put"] == 3


async def test_a_topic_without_messages_has_no_queue(client, clock) -> None:
    await client.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic="Empty",
        readQueueNums=4,
        writeQueueNums=4,
        perm=6,
    )

    assert topic_of(await sample(client, clock), "Empty") == (0, [])


async def test_progress_shows_since_when_a_message_is_unread(client, clock) -> None:
    await client.send("T")
    clock.advance_ms(5_000)
    second_at = clock.now_ms()
    await client.send("T")
    await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0, commitOffset=1
    )

    body = await sample(client, clock)

    assert progress_of(body, "g", "T") == [0, 1, 2, second_at]


async def test_a_group_that_has_read_everything_has_nothing_unread(client, clock) -> None:
    await client.send("T")
    await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0, commitOffset=1
    )

    assert progress_of(await sample(client, clock), "g", "T") == [0, 1, 1, -1]


async def test_members_are_counted_and_a_group_without_any_has_none(client, clock) -> None:
    await client.heartbeat("client-1", consumer_groups={"g": {"T": "*"}})

    connected = await sample(client, clock)
    await client.ask(
        RequestCode.UNREGISTER_CLIENT, clientID="client-1", consumerGroup="g", producerGroup=""
    )
    left = await sample(client, clock)

    assert dict(connected["groups"])["g"] == 1
    assert dict(left["groups"])["g"] == 0


async def test_half_messages_wait_and_grow_older(client, clock) -> None:
    await client.send("T", TRAN_MSG="true", PGROUP="pg", UNIQ_KEY="1")
    clock.advance_ms(3_000)

    body = await sample(client, clock)

    assert body["gauges"]["halfPending"] == 1
    assert body["gauges"]["halfAgeMs"] == 3_000 + SHARED_MS


async def test_latencies_count_every_request(client, clock) -> None:
    for _ in range(4):
        await client.send("T")

    body = await sample(client, clock)

    assert sum(body["latencies"]["put"]) == 4
    assert len(body["latencies"]["put"]) == len(body["latencyBoundsMs"]) + 1


async def test_a_flush_is_timed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, flushDiskType="SYNC_FLUSH") as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.send("T")

        body = json_body(await client.ask(RequestCode.GET_BROKER_SAMPLE))

        assert sum(body["latencies"]["flush"]) >= 1
        await client.shutdown()


async def test_the_process_and_the_disk_are_known(client, clock) -> None:
    body = await sample(client, clock)

    assert body["gauges"]["rss"] > 1_000_000
    assert body["counters"]["cpuMs"] > 0
    assert 0 < body["gauges"]["diskUsed"] <= body["gauges"]["diskTotal"]
    assert body["gauges"]["retentionMs"] == 72 * 3_600_000
    assert body["gauges"]["oldestAgeMs"] is None


async def test_queries_within_a_second_get_the_same_answer(client, clock) -> None:
    before = await client.ask(RequestCode.GET_BROKER_SAMPLE)
    await client.send("T")
    at_once = await client.ask(RequestCode.GET_BROKER_SAMPLE)
    later = await sample(client, clock)

    assert at_once.body == before.body
    assert later["counters"]["put"] == 1


async def body_of(broker: Broker) -> Any:
    asking = Client(f"127.0.0.1:{broker.listen_port}")
    answer = await asking.ask(RequestCode.GET_BROKER_SAMPLE)
    await asking.shutdown()
    return json_body(answer)


async def test_a_pair_shows_its_replication_state(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "m", minInSyncReplicas=2) as master,
        running_slave(tmp_path / "s", master) as slave,
    ):
        slave.metadata_sync.follow(f"127.0.0.1:{master.listen_port}")
        asking = Client(f"127.0.0.1:{master.listen_port}")
        await asking.send("T")
        await asking.shutdown()
        await until_caught_up(master, slave)
        await slave.metadata_sync.sync()
        of_master, of_slave = await body_of(master), await body_of(slave)

    assert of_master["gauges"]["slaves"] == 1
    assert of_master["gauges"]["replicasInSyncMin"] == 2
    assert of_master["gauges"]["replicationBehindMs"] >= 0
    assert (of_slave["brokerId"], of_slave["gauges"]["following"]) == (1, 1)
    assert of_slave["gauges"]["replicationBehind"] == 0
    assert of_slave["gauges"]["masterSilentMs"] >= 0
    assert not {"slaves", "slavesInSync", "replicasInSyncMin"} & of_slave["gauges"].keys()


async def test_a_promoted_slave_returns_its_sample_like_the_master(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "m") as master,
        running_slave(tmp_path / "s", master) as slave,
    ):
        await slave.foundation.role.changed("ASYNC_MASTER")

        assert (await body_of(slave))["brokerId"] == 0


async def test_a_master_without_slaves_has_no_lag(client, clock) -> None:
    gauges = (await sample(client, clock))["gauges"]

    assert (gauges["slaves"], gauges["slavesInSync"], gauges["epoch"]) == (0, 0, 0)
    assert "replicationBehind" not in gauges
