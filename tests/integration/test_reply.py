from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.message import properties
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.client import Client, messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection

TOPIC = "DefaultCluster_REPLY_TOPIC"


class Asking(Client):
    """A client that sent a request message and waits for the reply."""

    def __init__(self, address: str) -> None:
        super().__init__(address, {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._pushed})
        self.pushed: list[RemotingCommand] = []
        self.code = ResponseCode.SUCCESS

    def _pushed(self, command: RemotingCommand, _: Connection) -> RemotingCommand:
        self.pushed.append(command)
        return command.answer(self.code)


@pytest.fixture
async def asking(broker: Broker) -> AsyncIterator[Asking]:
    made = Asking(f"127.0.0.1:{broker.listen_port}")
    await made.heartbeat("asking-client", producer_groups=("asking-group",))
    yield made
    await made.shutdown()


async def reply(client: Client, to: str | None = "asking-client", **more: str) -> RemotingCommand:
    table = {"CORRELATION_ID": "c-1", "TTL": "3000", "MSG_TYPE": "reply", "UNIQ_KEY": "U", **more}
    if to is not None:
        table["REPLY_TO_CLIENT"] = to
    return await client.ask(
        RequestCode.SEND_REPLY_MESSAGE_V2,
        b"the answer",
        a="replying-group",
        b=TOPIC,
        c="TBW102",
        d="4",
        e="0",
        f="0",
        g="17",
        h="0",
        i=properties.encode(table),
        j="0",
        k="false",
        m="false",
    )


@pytest.mark.parametrize("value", ["r\0d", "r\x01d", "r\x02d"])
async def test_a_reply_with_ambiguous_properties_is_rejected(
    broker: Broker, client: Client, asking: Asking, value: str
) -> None:
    answer = await reply(client, colour=value)

    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert (answer.remark or "").startswith("the message is illegal: ")
    assert asking.pushed == []


async def test_a_reply_is_pushed_to_its_requester(
    broker: Broker, client: Client, asking: Asking
) -> None:
    answer = await reply(client)

    (pushed,) = asking.pushed
    table = properties.decode(pushed.ext_fields["properties"])
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields["queueId"] == "0"
    assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
    assert pushed.body == b"the answer"
    assert table["CORRELATION_ID"] == "c-1"
    assert table["PUSH_REPLY_TIME"].isdigit()
    assert pushed.ext_fields["topic"] == TOPIC
    assert pushed.ext_fields["producerGroup"] == "replying-group"
    assert pushed.ext_fields["storeHost"] == broker.foundation.address
    assert pushed.ext_fields["bornHost"].startswith("127.0.0.1:")
    assert pushed.ext_fields["bornTimestamp"] == "17"
    assert pushed.ext_fields["storeTimestamp"].isdigit()


async def test_a_reply_is_also_stored(client: Client, asking: Asking) -> None:
    answer = await reply(client)

    (stored,) = messages(await client.pull(TOPIC))
    assert stored.body == b"the answer"
    assert "PUSH_REPLY_TIME" not in stored.properties
    assert answer.ext_fields["queueOffset"] == "0"
    assert len(answer.ext_fields["msgId"]) == 32


async def test_storing_can_be_switched_off(tmp_path: Path) -> None:
    async with running_broker(tmp_path, storeReplyMessageEnable="false") as broker:
        asking = Asking(f"127.0.0.1:{broker.listen_port}")
        await asking.heartbeat("asking-client", producer_groups=("asking-group",))

        answer = await reply(asking)

        assert (answer.code, answer.ext_fields["msgId"]) == (ResponseCode.SUCCESS, "0")
        assert messages(await asking.pull(TOPIC)) == []
        await asking.shutdown()


async def test_with_sync_flush_a_stored_reply_is_durable_before_it_is_answered(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, flushDiskType="SYNC_FLUSH") as broker:
        asking = Asking(f"127.0.0.1:{broker.listen_port}")
        await asking.heartbeat("asking-client", producer_groups=("asking-group",))

        answer = await reply(asking)

        assert (answer.code, answer.ext_fields["queueOffset"]) == (ResponseCode.SUCCESS, "0")
        assert broker.storage.store.flushed_where == broker.storage.store.max_commit_log_offset > 0
        assert len(messages(await asking.pull(TOPIC))) == 1
        await asking.shutdown()


async def test_a_reply_without_a_requester_is_rejected_but_stored(client: Client) -> None:
    answer = await reply(client, "gone")

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "push reply message fail, channel of <gone> not found."
    assert len(messages(await client.pull(TOPIC))) == 1


async def test_a_reply_without_an_address_is_rejected(client: Client) -> None:
    answer = await reply(client, None)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "reply message properties[REPLY_TO_CLIENT] is null"


async def test_a_client_that_does_not_accept_the_reply_is_reported(
    client: Client, asking: Asking
) -> None:
    asking.code = ResponseCode.SYSTEM_ERROR

    answer = await reply(client)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "push reply message to asking-clientfail."


async def test_a_requester_that_left_receives_no_reply(client: Client, asking: Asking) -> None:
    await asking.ask(
        RequestCode.UNREGISTER_CLIENT, clientID="asking-client", producerGroup="asking-group"
    )

    answer = await reply(client)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert asking.pushed == []


async def test_other_requests_are_served_while_a_reply_waits(broker: Broker) -> None:
    is_taken = asyncio.Event()
    release = asyncio.Event()

    async def slow(command: RemotingCommand, _: Connection) -> RemotingCommand:
        is_taken.set()
        await release.wait()
        return command.answer(ResponseCode.SUCCESS)

    address = f"127.0.0.1:{broker.listen_port}"
    asking = Client(address, {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: slow})
    await asking.heartbeat("asking-client", producer_groups=("asking-group",))
    replying = Client(address)
    waiting = asyncio.create_task(reply(replying))
    await is_taken.wait()

    assert (await replying.send("T")).code == ResponseCode.SUCCESS
    assert not waiting.done()
    release.set()

    assert (await waiting).code == ResponseCode.SUCCESS
    await replying.shutdown()
    await asking.shutdown()


async def test_a_reply_may_have_the_long_header_form(client: Client, asking: Asking) -> None:
    answer = await client.ask(
        RequestCode.SEND_REPLY_MESSAGE,
        b"old",
        producerGroup="g",
        topic=TOPIC,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=0,
        sysFlag=0,
        bornTimestamp=1,
        flag=0,
        properties=properties.encode({"REPLY_TO_CLIENT": "asking-client"}),
    )

    assert answer.code == ResponseCode.SUCCESS
    assert asking.pushed[0].body == b"old"
