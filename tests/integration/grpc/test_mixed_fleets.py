"""Remoting clients and gRPC clients share topics, retries and dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.grpc_messages.enums import Code
from broker_core.grpc_messages.receiving import (
    ChangeInvisibleDurationRequest,
    ForwardMessageToDeadLetterQueueRequest,
)
from broker_core.grpc_messages.sending import SendMessageRequest
from broker_core.grpc_messages.shared import Duration, Resource
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.client import messages
from tests.support.grpc_broker import acknowledged, handle_of, received, serving
from tests.support.grpc_cases import GROUP, PLAIN, message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.message.message import MessageExt
    from tests.support.grpc_broker import Served

PULL_GROUP = "pullers"
LAST_LETTERS = -1
"""The delay level of a message that a remoting consumer sends to the dead letters."""


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as running:
        await running.client.heartbeat(consumer_groups={PULL_GROUP: {"plain": "*"}})
        yield running


async def pulled(served: Served, topic: str = "plain", queues: int = 4) -> list[MessageExt]:
    """Return a topic's messages, as a group of the remoting port pulls them."""
    answers = [
        await served.client.pull(topic, queue_id=each, group=PULL_GROUP) for each in range(queues)
    ]
    return [
        found
        for answer in answers
        if answer.code == ResponseCode.SUCCESS
        for found in messages(answer)
    ]


async def send_back(served: Served, found: MessageExt, delay_level: int) -> None:
    """Return a message that a remoting consumer couldn't process."""
    answer = await served.client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        group=PULL_GROUP,
        offset=found.commit_log_offset,
        delayLevel=delay_level,
        originTopic="plain",
        maxReconsumeTimes=16,
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_both_groups_receive_what_both_producers_send(served: Served) -> None:
    await served.client.send("plain", b"by remoting", tags="A", UNIQ_KEY="0101")
    await served.caller.call(SendMessageRequest([message(body=b"by gRPC", tag="B")]))

    leased = await received(served.caller)
    found = await pulled(served)

    assert sorted(each.body for each in leased) == [b"by gRPC", b"by remoting"]
    tags = {each.body: each.system_properties.tag for each in leased if each.system_properties}
    assert tags == {b"by gRPC": "B", b"by remoting": "A"}
    assert {(each.body, each.tags) for each in found} == {(b"by gRPC", "B"), (b"by remoting", "A")}


async def test_a_retry_of_one_group_is_not_delivered_to_the_other(served: Served) -> None:
    await served.client.send("plain", b"again", UNIQ_KEY="0101")
    (leased,) = await received(served.caller)
    (found,) = await pulled(served)

    await served.caller.call(
        ChangeInvisibleDurationRequest(GROUP, PLAIN, handle_of(leased), Duration(1))
    )
    await send_back(served, found, delay_level=1)

    (again,) = await received(served.caller)
    assert again.body == b"again"
    assert again.system_properties is not None
    assert again.system_properties.delivery_attempt == 2
    assert await acknowledged(served, handle_of(again)) == Code.OK
    assert [each.body for each in await pulled(served)] == [b"again"]
    assert await received(served.caller) == []


async def test_a_grpc_groups_dead_letter_is_pulled_by_remoting(served: Served) -> None:
    await served.client.send("plain", b"dead", UNIQ_KEY="0101")
    (leased,) = await received(served.caller)

    await served.caller.call(
        ForwardMessageToDeadLetterQueueRequest(GROUP, PLAIN, handle_of(leased), "0101")
    )

    (letter,) = await pulled(served, f"%DLQ%{GROUP.name}", queues=1)
    assert letter.body == b"dead"
    assert letter.properties["DLQ_ORIGIN_MESSAGE_ID"] == "0101"


async def test_a_remoting_groups_dead_letter_is_received_over_grpc(served: Served) -> None:
    await served.caller.call(SendMessageRequest([message(body=b"dead")]))
    (found,) = await pulled(served)

    await send_back(served, found, LAST_LETTERS)

    (letter,) = await received(served.caller, Resource("", f"%DLQ%{PULL_GROUP}"))
    assert letter.body == b"dead"
