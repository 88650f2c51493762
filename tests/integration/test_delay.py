from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.formats import batch
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.client import Client, json_body, messages
from tests.support.clock import ManualClock
from tests.support.time_steps import pass_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker
    from broker_core.protocol.command import RemotingCommand


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, clock=clock) as running:
        yield running


async def test_a_delayed_message_reaches_a_waiting_consumer_when_it_is_due(
    client: Client, clock: ManualClock
) -> None:
    await client.send("T", b"plain")
    sent = await client.send("T", b"later", DELAY="2", TAGS="A")
    waiting = asyncio.create_task(client.pull("T", 1, suspend_ms=15_000, timeout_s=20))

    await pass_time(clock, 4_900)
    assert not waiting.done()
    await pass_time(clock, 200)

    (message,) = messages(await waiting)
    assert sent.code == ResponseCode.SUCCESS
    assert (message.topic, message.queue_id, message.body) == ("T", 0, b"later")
    assert message.properties["DELAY"] == "2"
    assert message.store_timestamp - clock.now_ms() <= 0


async def test_the_answer_names_the_requested_queue(client: Client) -> None:
    await client.send("T")

    sent = await client.send("T", queue_id=3, DELAY="1")

    assert sent.ext_fields["queueId"] == "3"
    assert sent.ext_fields["queueOffset"] == "0"


async def test_a_level_above_the_last_waits_as_long_as_the_last(
    broker: Broker, client: Client
) -> None:
    await client.send("T", DELAY="99")

    (message,) = messages(await client.pull("SCHEDULE_TOPIC_XXXX", queue_id=17))

    assert message.properties["DELAY"] == "18"


@pytest.mark.parametrize("level", ["0", "-1"])
async def test_a_missing_level_is_not_a_delay(client: Client, level: str) -> None:
    await client.send("T", b"now", DELAY=level)

    assert [message.body for message in messages(await client.pull("T"))] == [b"now"]


async def test_a_non_numeric_level_is_rejected(client: Client) -> None:
    sent = await client.send("T", DELAY="soon")

    assert sent.code == ResponseCode.SYSTEM_ERROR
    assert "DELAY" in (sent.remark or "")


async def test_a_batch_cannot_be_delayed(client: Client) -> None:
    await client.send("T")
    item = b"".join(value.to_bytes(4, "big") for value in (23, 0, 0, 0, 1)) + b"x" + bytes(2)
    assert len(list(batch.decode(item))) == 1

    answer = await client.ask(
        RequestCode.SEND_BATCH_MESSAGE,
        item,
        a="pg",
        b="T",
        c="TBW102",
        d="4",
        e="0",
        f="0",
        g="1",
        h="0",
        i="DELAY\x011",
        m="true",
    )

    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_each_levels_progress_can_be_queried(client: Client, clock: ManualClock) -> None:
    await client.send("T", DELAY="1")
    await client.send("T", DELAY="3")
    await client.send("T", DELAY="3")
    await pass_time(clock, 2_000)

    offsets = await client.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    info = json_body(await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]

    assert offsets.body == b'{"offsetTable":{1:1}}'
    assert info["scheduleMessageOffset_1"] == "1,1"


async def test_deliveries_are_counted(broker: Broker, client: Client, clock: ManualClock) -> None:
    await client.send("T", DELAY="1")
    await pass_time(clock, 3_000)

    stats = broker.storage.stats
    assert stats.group_get_nums["SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"].value == 1
    assert stats.topic_put_nums["SCHEDULE_TOPIC_XXXX"].value == 1
    assert stats.topic_put_nums["T"].value == 1
    for name, key in (
        ("QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@0"),
        ("QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@0@SCHEDULE_CONSUMER"),
    ):
        answer = await client.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
        assert json_body(answer)["statsDay"]["sum"] == 1


async def test_counting_deliveries_can_be_switched_off(tmp_path: Path, clock: ManualClock) -> None:
    async with running_broker(tmp_path, clock=clock, enableScheduleMessageStats="false") as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.send("T", DELAY="1")
        await pass_time(clock, 2_000)

        assert len(messages(await client.pull("T"))) == 1
        assert "T" not in broker.storage.stats.topic_put_nums
        assert broker.storage.stats.topic_put_nums["SCHEDULE_TOPIC_XXXX"].value == 1
        await client.shutdown()


async def test_a_restart_delivers_waiting_messages(tmp_path: Path, clock: ManualClock) -> None:
    async with running_broker(tmp_path, clock=clock) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.send("T", b"delivered", DELAY="1")
        await pass_time(clock, 2_000)
        await client.send("T", b"waits", DELAY="2")
        await client.shutdown()
    assert b"{1:1" in (tmp_path / "store" / "config" / "delayOffset.json").read_bytes()
    clock.advance_ms(3_600_000)

    async with running_broker(tmp_path, clock=clock) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        answer = await client.pull("T", 1, suspend_ms=5_000, timeout_s=10)

        assert [message.body for message in messages(answer)] == [b"waits"]
        assert len(messages(await client.pull("T"))) == 2
        await client.shutdown()


async def move(client: Client, level: object, offset: object) -> RemotingCommand:
    return await client.ask(RequestCode.UPDATE_DELAY_OFFSET, level=level, offset=offset)


async def test_a_level_moved_ahead_skips_and_one_moved_back_delivers_again(
    tmp_path: Path, client: Client, clock: ManualClock
) -> None:
    for number in range(3):
        await client.send("T", b"%d" % number, DELAY="2")
    ahead = await move(client, 2, 2)
    kept = (tmp_path / "store" / "config" / "delayOffset.json").read_bytes()
    await pass_time(clock, 5_100)
    first = [message.body for message in messages(await client.pull("T"))]

    back = await move(client, 2, 1)
    await pass_time(clock, 100)

    assert (ahead.code, back.code) == (ResponseCode.SUCCESS,) * 2
    assert (json_body(ahead), json_body(back)) == ({"from": 0, "to": 2}, {"from": 3, "to": 1})
    assert b"{2:2" in kept
    assert first == [b"2"]
    again = [message.body for message in messages(await client.pull("T"))]
    assert again == [b"2", b"1", b"2"]


@pytest.mark.parametrize(
    ("level", "offset", "text"),
    [
        (2, 2, "delay level 2 has the offsets from 0 to 1"),
        (3, 1, "delay level 3 has the offsets from 0 to 0"),
        (19, 0, "there is no delay level 19"),
        (0, 0, "there is no delay level 0"),
        (2, -1, "offset"),
        ("two", 0, "level"),
    ],
)
async def test_an_offset_outside_the_levels_queue_is_rejected(
    client: Client, level: object, offset: object, text: str
) -> None:
    await client.send("T", DELAY="2")

    answer = await move(client, level, offset)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert text in (answer.remark or "")
    offsets = await client.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert offsets.body == b'{"offsetTable":{}}'


async def test_a_moved_level_continues_there_after_a_restart(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with running_broker(tmp_path, clock=clock) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        for number in range(3):
            await client.send("T", b"%d" % number, DELAY="3")
        await move(client, 3, 1)
        await client.shutdown()
    clock.advance_ms(60_000)

    async with running_broker(tmp_path, clock=clock) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await pass_time(clock, 100)
        assert [each.body for each in messages(await client.pull("T"))] == [b"1", b"2"]
        await client.shutdown()
