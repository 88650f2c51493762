"""Timer messages over the wire: delivery, recall, restarts and listing."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.timers import recall_handle
from tests.support.broker import running_broker
from tests.support.client import Client, json_body, messages

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.message.message import MessageExt


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def received(client: Client, topic: str, count: int) -> list[MessageExt]:
    """Return the messages of a topic's first queue once there are at least `count`."""
    found: list[MessageExt] = []
    for _ in range(200):
        found = messages(await client.pull(topic))
        if len(found) >= count:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"received only {len(found)} messages")


@pytest.fixture
async def client(tmp_path: Path):
    async with running_broker(tmp_path, recallMessageEnable="true") as broker:
        one = Client(f"127.0.0.1:{broker.listen_port}")
        yield one
        await one.shutdown()


async def recall(client: Client, handle: str, topic: str = "T"):
    return await client.ask(
        RequestCode.RECALL_MESSAGE, topic=topic, recallHandle=handle, producerGroup="p"
    )


async def test_messages_are_precise_to_milliseconds_and_never_early(client: Client) -> None:
    begin = now_ms()
    target = {}
    for number in range(40):
        due = begin + 300 + number * 11
        target[f"{number}".encode()] = due
        await client.send("T", f"{number}".encode(), TIMER_DELIVER_MS=str(due))

    found: list[MessageExt] = []
    while len(found) < len(target):
        found = await received(client, "T", min(32, len(target)))
        if len(found) == 32:
            found += messages(await client.pull("T", 32))
        await asyncio.sleep(0.05)

    late = sorted(each.store_timestamp - target[each.body] for each in found)
    assert late[0] >= 0
    # On a busy machine many are late; with slots of a second almost all would be.
    assert late[len(late) // 4] <= 20, late


async def test_a_sends_answer_has_the_queue_and_a_recall_handle(client) -> None:
    due = now_ms() + 60_000
    answer = await client.send("T", b"x", queue_id=2, TIMER_DELIVER_MS=str(due), UNIQ_KEY="KEY")

    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields["queueId"] == "2"
    handle = recall_handle.decode(answer.ext_fields["recallHandle"])
    assert handle == ("T", "broker-a", due, "KEY")

    recalled = await recall(client, answer.ext_fields["recallHandle"])
    assert recalled.code == ResponseCode.SUCCESS
    assert recalled.ext_fields["msgId"] == "KEY"
    again = await recall(client, answer.ext_fields["recallHandle"])
    assert again.code == ResponseCode.ILLEGAL_OPERATION


@pytest.mark.parametrize(
    ("field", "value", "remark"),
    [
        ("topic", "U", "recall failed, topic not match"),
        ("topic", "", "recall failed, topic not match"),
        ("broker_name", "broker-b", "recall failed, broker service not available"),
        ("due_ms", 1, "recall failed, timestamp invalid"),
        ("due_ms", 99_999_999_999_999, "recall failed, timestamp invalid"),
        ("uniq_key", "KEY2", "recall failed, no pending message matches the handle"),
    ],
)
async def test_a_forged_handle_recalls_nothing(client, field: str, value, remark: str) -> None:
    answer = await client.send("T", b"x", TIMER_DELAY_MS="1000", UNIQ_KEY="KEY")
    handle = recall_handle.decode(answer.ext_fields["recallHandle"])

    refused = await recall(client, recall_handle.encode(handle._replace(**{field: value})))

    assert (refused.code, refused.remark) == (ResponseCode.ILLEGAL_OPERATION, remark)
    assert [each.body for each in await received(client, "T", 1)] == [b"x"]


async def test_a_handle_sent_for_another_topic_recalls_nothing(client: Client) -> None:
    answer = await client.send("T", b"x", TIMER_DELAY_MS="1000", UNIQ_KEY="KEY")
    await client.send("U", b"y")

    refused = await recall(client, answer.ext_fields["recallHandle"], topic="U")

    assert refused.code == ResponseCode.ILLEGAL_OPERATION
    assert [each.body for each in await received(client, "T", 1)] == [b"x"]


@pytest.mark.parametrize("text", ["", "x", "djEgVCBicm9rZXItYSAx", "!"])
async def test_a_text_that_is_no_handle_recalls_nothing(client: Client, text: str) -> None:
    await client.send("T", b"x")

    refused = await recall(client, text)

    assert refused.code == ResponseCode.ILLEGAL_OPERATION
    assert refused.remark == "recall handle is invalid"


@pytest.mark.parametrize(("allowed", "code"), [("true", 0), ("false", 14)])
async def test_a_broker_without_write_permission_recalls_unless_that_is_disabled(
    tmp_path: Path, allowed: str, code: int
) -> None:
    async with running_broker(
        tmp_path, recallMessageEnable="true", allowRecallWhenBrokerNotWriteable=allowed
    ) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        answer = await client.send("T", b"x", TIMER_DELAY_MS="60000", UNIQ_KEY="KEY")
        await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=4")

        recalled = await recall(client, answer.ext_fields["recallHandle"])

        assert recalled.code == code
        if code:
            assert recalled.remark == "recall failed, broker service not available"
        await client.shutdown()


async def test_recall_is_disabled_by_default(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        answer = await client.send("T", b"x", TIMER_DELAY_MS="60000", UNIQ_KEY="KEY")

        refused = await recall(client, answer.ext_fields["recallHandle"])

        assert refused.code == ResponseCode.NO_PERMISSION
        assert refused.remark == "recall failed, operation is forbidden"
        await client.shutdown()


async def test_a_restart_keeps_pending_and_recalled_timers(tmp_path: Path) -> None:
    async with running_broker(tmp_path, recallMessageEnable="true") as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.send("T", b"kept", TIMER_DELAY_MS="2000", UNIQ_KEY="kept")
        answer = await client.send("T", b"recalled", TIMER_DELAY_MS="2000", UNIQ_KEY="recalled")
        await client.send("T", b"now", TIMER_DELAY_MS="10")
        assert len(await received(client, "T", 1)) == 1
        assert (await recall(client, answer.ext_fields["recallHandle"])).code == 0
        await client.shutdown()

    async with running_broker(tmp_path, recallMessageEnable="true") as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        found = await received(client, "T", 2)
        await asyncio.sleep(0.3)
        assert [each.body for each in found] == [b"now", b"kept"]
        assert len(messages(await client.pull("T"))) == 2
        await client.shutdown()


async def test_pending_timers_are_listed_soonest_first_and_found_by_key(client) -> None:
    now = now_ms()
    for name, after_ms in (("c", 30_000), ("a", 10_000), ("b", 20_000)):
        await client.send(
            "T", b"body", keys=name, TIMER_DELIVER_MS=str(now + after_ms), UNIQ_KEY=f"U{name}"
        )

    listed = json_body(await client.ask(RequestCode.GET_TIMER_MESSAGES))
    found = json_body(await client.ask(RequestCode.GET_TIMER_MESSAGES, key="b"))

    assert (listed["total"], listed["nextDueMs"]) == (3, now + 10_000)
    assert [each["keys"] for each in listed["messages"]] == ["a", "b", "c"]
    assert [(each["msgId"], each["dueMs"]) for each in found["messages"]] == [("Ub", now + 20_000)]
    first = listed["messages"][0]
    assert (first["topic"], first["queueId"], first["bodySize"]) == ("T", 0, 4)
    sample = json_body(await client.ask(RequestCode.GET_BROKER_SAMPLE))
    assert sample["gauges"]["timersPending"] == 3
    assert sample["gauges"]["timerNextDueMs"] == now + 10_000
