"""Clients that don't answer the broker's requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.message import properties
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
    from broker_core.remoting.connection import Connection

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
MQ = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
ASKED = (
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, clock=clock) as running:
        yield running


class Silent(Client):
    """A client that never answers."""

    def __init__(self, address: str) -> None:
        super().__init__(address, {**dict.fromkeys(ASKED, self._take), 40: lambda *_: None})
        self.is_requested = asyncio.Event()

    async def _take(self, _: RemotingCommand, __: Connection) -> None:
        self.is_requested.set()


@pytest.fixture
async def silent(broker: Broker) -> AsyncIterator[Silent]:
    made = Silent(f"127.0.0.1:{broker.listen_port}")
    await made.heartbeat(
        "silent", consumer_groups={"g": {"T": "*"}}, producer_groups=("asking-group",)
    )
    yield made
    await made.shutdown()


def reply(client: Client) -> asyncio.Task[RemotingCommand]:
    return asyncio.create_task(
        client.ask(
            RequestCode.SEND_REPLY_MESSAGE_V2,
            b"the answer",
            timeout_s=60,
            a="replying-group",
            b=REPLY_TOPIC,
            c="TBW102",
            d="4",
            e="0",
            f="0",
            g="17",
            h="0",
            i=properties.encode({"REPLY_TO_CLIENT": "silent", "CORRELATION_ID": "c"}),
        )
    )


async def test_a_reply_that_is_not_accepted_within_ten_seconds_is_rejected_and_stored(
    client: Client, silent: Silent, clock: ManualClock
) -> None:
    replying = reply(client)
    await silent.is_requested.wait()
    await pass_time(clock, 9_900)
    assert not replying.done()

    await pass_time(clock, 200)

    answer = await replying
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "push reply message to silentfail."
    assert len(messages(await client.pull(REPLY_TOPIC))) == 1


async def test_a_client_that_leaves_with_a_pending_reply_is_not_waited_for(
    client: Client, silent: Silent
) -> None:
    replying = reply(client)
    await silent.is_requested.wait()

    await silent.shutdown()

    assert (await asyncio.wait_for(replying, 5)).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    "code", [RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY]
)
async def test_a_consumer_has_ten_seconds_to_answer_a_tool(
    client: Client, silent: Silent, clock: ManualClock, code: RequestCode
) -> None:
    sent = await client.send("T")
    header: dict[str, Any] = {"consumerGroup": "g", "clientId": "silent"}
    header["msgId"] = sent.ext_fields["msgId"]
    asking = asyncio.create_task(client.ask(code, timeout_s=60, **header))
    await silent.is_requested.wait()
    await pass_time(clock, 9_900)
    assert not asking.done()

    await pass_time(clock, 200)

    answer = await asking
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert answer.remark is not None
    assert answer.remark.startswith("consumer <g> <silent> Timeout: ")


async def test_a_consumer_without_a_status_is_left_out_after_five_seconds(
    client: Client, silent: Silent, clock: ManualClock
) -> None:
    def status(request: RemotingCommand, _: Connection) -> RemotingCommand:
        body = f'{{"messageQueueTable":{{{MQ}:3}}}}'
        return request.answer(ResponseCode.SUCCESS, body=body.encode())

    talking = Client(
        client.address,
        {RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: status, 40: lambda *_: None},
    )
    await talking.heartbeat("talking", consumer_groups={"g": {"T": "*"}})
    others = [Silent(client.address) for _ in range(2)]
    for number, other in enumerate(others):
        await other.heartbeat(f"silent-{number}", consumer_groups={"g": {"T": "*"}})
    asking = asyncio.create_task(
        client.ask(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, timeout_s=60, topic="T", group="g"
        )
    )
    for one in (silent, *others):
        await one.is_requested.wait()

    await pass_time(clock, 5_100)

    assert json_body(await asking)["consumerTable"] == {"talking": {MQ: 3}}
    await talking.shutdown()
    for other in others:
        await other.shutdown()
