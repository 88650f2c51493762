from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.delivery.sql_filter import SqlFilter
from broker_core.formats.record import decode
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.client import Client, json_body, messages
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker
    from broker_core.protocol.command import RemotingCommand

SQL = "SQL92"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, enablePropertyFilter="true") as running:
        yield running


async def send_prices(client: Client, *prices: int) -> None:
    for price in prices:
        await client.send("T", f"{price}".encode(), price=str(price))


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in messages(answer)]


async def check(client: Client, expression: str, kind: str | None = SQL) -> RemotingCommand:
    body = {
        "clientId": "c",
        "group": "g",
        "subscriptionData": {"topic": "T", "subString": expression, "expressionType": kind},
    }
    return await client.ask(RequestCode.CHECK_CLIENT_CONFIG, java_json.encode(body))


async def test_a_pull_with_an_expression_gets_the_matches(client: Client) -> None:
    await send_prices(client, 5, 15, 25, 12)

    found = await client.pull(
        "T", subscription="price BETWEEN 10 AND 20", expression_type=SQL, max_msg_nums=32
    )

    assert found.code == ResponseCode.SUCCESS
    assert bodies(found) == [b"15", b"12"]
    assert found.ext_fields["nextBeginOffset"] == "4"


async def test_a_pull_without_a_match_continues_after_the_examined_messages(client: Client) -> None:
    await send_prices(client, 5, 6)

    found = await client.pull("T", subscription="price > 10", expression_type=SQL)

    assert found.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert found.ext_fields["nextBeginOffset"] == "2"


async def test_a_parked_pull_is_answered_by_the_first_that_matches(client: Client) -> None:
    await send_prices(client, 5)
    pull = asyncio.create_task(
        client.pull("T", 1, subscription="price > 10", expression_type=SQL, suspend_ms=5_000)
    )
    other = Client(client.address)
    await send_prices(other, 6, 7, 30)

    found = await pull

    await other.shutdown()
    assert bodies(found) == [b"30"]


async def test_an_invalid_expression_is_rejected(client: Client) -> None:
    await send_prices(client, 5)

    for expression, kind in (
        ("price != 5", SQL),
        ("price LIKE '5%'", SQL),
        ("price > 1 garbage here", SQL),
        ("", SQL),
        ("price = 5", "GROOVY"),
    ):
        refused = await client.pull("T", subscription=expression, expression_type=kind)
        assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED, expression


async def test_a_subscribed_expression_filters_the_groups_pulls(client: Client) -> None:
    await send_prices(client, 5, 15)
    await client.heartbeat(
        consumer_groups={"g": {"T": "price > 10"}}, expression_type=SQL, sub_version=3
    )

    found = await client.pull("T", subscription=None, sub_version=3)

    assert bodies(found) == [b"15"]


async def test_a_pull_with_a_newer_subscription_is_answered_with_that_reason(
    broker: Broker, client: Client
) -> None:
    await send_prices(client, 5)
    groups = {"g": {"T": "price > 10"}}
    await client.heartbeat(consumer_groups=groups, expression_type=SQL, sub_version=3)

    refused = await client.pull("T", subscription=None, sub_version=4)
    assert refused.code == ResponseCode.SUBSCRIPTION_NOT_LATEST

    found = broker.storage.filters.find("T", "g")
    assert found is not None
    found.client_version = 2
    refused = await client.pull("T", subscription=None, sub_version=3)
    assert refused.code == ResponseCode.FILTER_DATA_NOT_LATEST


async def test_a_subscribed_expression_that_does_not_compile_has_no_filter(client: Client) -> None:
    await send_prices(client, 5)
    await client.heartbeat(consumer_groups={"g": {"T": "price != 10"}}, expression_type=SQL)

    refused = await client.pull("T", subscription=None)

    assert refused.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert refused.remark == (
        "The broker's consumer filter data is not exist!Your expression may be wrong! "
        "unexpected '!= 10' at character 7: write <> instead of !="
    )


async def test_consumers_filter_by_a_propertys_prefix_suffix_or_part(
    client: Client,
) -> None:
    await send_prices(client, 123, 234, 341)

    for expression, expected in (
        ("price STARTSWITH '1'", [b"123"]),
        ("price NOT ENDSWITH '4'", [b"123", b"341"]),
        ("price CONTAINS '34'", [b"234", b"341"]),
    ):
        found = await client.pull(
            "T", subscription=expression, expression_type=SQL, max_msg_nums=32
        )
        assert bodies(found) == expected, expression


async def test_a_client_may_validate_its_expression(client: Client) -> None:
    assert (await check(client, "a = 1")).code == ResponseCode.SUCCESS
    assert (await check(client, "A || B", None)).code == ResponseCode.SUCCESS
    refused = await check(client, "a != 1")
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert refused.remark == (
        "Invalid MessageSelector. unexpected '!= 1' at character 3: write <> instead of !="
    )


async def test_the_groups_filter_is_kept_in_its_file(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enablePropertyFilter="true") as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.heartbeat(consumer_groups={"g": {"T": "a > 1"}}, expression_type=SQL)
        await client.ask(RequestCode.UNREGISTER_CLIENT, clientID="client-1", consumerGroup="g")
        await client.shutdown()

    text = (tmp_path / "store" / "config" / "consumerFilter.json").read_text()
    kept = json.loads(text)["filterDataByTopic"]["T"]["groupFilterData"]["g"]

    assert kept["expression"] == "a > 1"
    assert kept["dead"] is True


async def test_without_the_key_expressions_are_rejected(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await send_prices(client, 15)
        await client.heartbeat(consumer_groups={"g": {"T": "price > 10"}}, expression_type=SQL)

        answers = [
            await check(client, "a = 1"),
            await client.pull("T", subscription="a = 1", expression_type=SQL),
            await client.pull("T", subscription=None),
        ]
        await client.shutdown()

    assert {answer.code for answer in answers} == {ResponseCode.SYSTEM_ERROR}
    assert {answer.remark for answer in answers} == {
        "The broker does not support consumer to filter message by SQL92"
    }


async def test_retried_messages_are_filtered_if_requested(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path, enablePropertyFilter="true", filterSupportRetry="true"
    ) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.heartbeat(consumer_groups={"g": {"T": "price > 10"}}, expression_type=SQL)
        retry = "%RETRY%g"
        for price in (5, 15):
            await client.send(retry, f"{price}".encode(), RETRY_TOPIC="T", price=f"{price}")

        found = await client.pull(retry)
        await client.shutdown()

    assert bodies(found) == [b"15"]


EXTENDED: dict[str, Any] = {
    "enablePropertyFilter": "true",
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
}


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the prices of the records that a filter reads from now on."""
    prices: list[bytes] = []
    by_record = SqlFilter.by_record

    def looking(sql: SqlFilter, record: memoryview) -> bool:
        prices.append(decode(record).body)
        return by_record(sql, record)

    monkeypatch.setattr(SqlFilter, "by_record", looking)
    return prices


async def test_bitmaps_avoid_reading_records_that_do_not_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path, **EXTENDED) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await send_prices(client, 1, 11)
        await client.heartbeat(consumer_groups={"g": {"T": "price > 10"}}, expression_type=SQL)
        born_before_now(broker)
        prices = looked_at(monkeypatch)
        await send_prices(client, 5, 15, 6, 16)

        answer = await client.pull("T", subscription=None, max_msg_nums=32)

        assert bodies(answer) == [b"11", b"15", b"16"]
        # Records from before the filter have no bitmaps.
        assert prices == [b"1", b"11", b"15", b"16"]
        await client.shutdown()


def born_before_now(broker: Broker) -> None:
    """Apply the filter's bits to messages sent in this millisecond."""
    found = broker.storage.filters.find("T", "g")
    assert found is not None
    found.born_time -= 1


async def test_bitmaps_are_created_while_they_are_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path, **EXTENDED) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.heartbeat(consumer_groups={"g": {"T": "price > 10"}}, expression_type=SQL)
        born_before_now(broker)
        prices = looked_at(monkeypatch)
        await send_prices(client, 5, 15)
        await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"enableCalcFilterBitMap=false\n")
        await send_prices(client, 6, 16)
        await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"enableCalcFilterBitMap=true\n")
        await send_prices(client, 7, 17)

        answer = await client.pull("T", subscription=None, max_msg_nums=32)

        assert bodies(answer) == [b"15", b"16", b"17"]
        assert prices == [b"15", b"6", b"16", b"17"]
        await client.shutdown()


async def test_a_returning_group_trusts_the_bitmaps_made_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = {"g": {"T": "price > 10"}}
    async with running_broker(tmp_path, **EXTENDED) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.heartbeat(consumer_groups=groups, expression_type=SQL)
        born_before_now(broker)
        await client.ask(RequestCode.UNREGISTER_CLIENT, clientID="client-1", consumerGroup="g")
        await send_prices(client, 5, 15)
        await client.shutdown()

    async with running_broker(tmp_path, **EXTENDED) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await send_prices(client, 6, 16)
        await client.heartbeat(consumer_groups=groups, expression_type=SQL)
        prices = looked_at(monkeypatch)

        answer = await client.pull("T", subscription=None, max_msg_nums=32)

        assert bodies(answer) == prices == [b"15", b"16"]
        await client.shutdown()


async def test_the_length_of_bitmaps_is_shown_unchanged(tmp_path: Path) -> None:
    async with running_broker(tmp_path, expectConsumerNumUseFilter="64") as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")

        shown = await client.ask(RequestCode.GET_BROKER_CONFIG)

        assert b"\nbitMapLengthConsumeQueueExt=216\n" in shown.body
        await client.shutdown()


async def test_a_changed_retention_of_filters_takes_effect(
    tmp_path: Path, broker: Broker, client: Client
) -> None:
    await client.heartbeat(consumer_groups={"g": {"T": "a > 1"}}, expression_type=SQL)
    await client.ask(RequestCode.UNREGISTER_CLIENT, clientID="client-1", consumerGroup="g")
    broker.storage.filters.persist()
    assert broker.storage.filters.find("T", "g") is not None

    await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"filterDataCleanTimeSpan=0\n")
    broker.storage.filters.persist()

    assert broker.storage.filters.find("T", "g") is None


async def test_a_queues_units_are_shown_with_their_extensions(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **EXTENDED) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.heartbeat(consumer_groups={"g": {"T": "price > 10"}}, expression_type=SQL)
        born_before_now(broker)
        await send_prices(client, 5, 15)

        answer = await client.ask(
            RequestCode.QUERY_CONSUME_QUEUE,
            topic="T",
            queueId="0",
            index="0",
            count="9",
            consumerGroup="g",
        )
        await client.shutdown()

    body = json.loads(answer.body)
    first, second = body["queueData"]
    assert (first["eval"], second["eval"]) == (False, True)
    assert first["tagsCode"] == -(1 << 63)
    assert json.loads(first["extendDataJson"])["filterBitMap"] == "A" * 19 + "="
    assert first["bitMap"].split() == ["0" * 48, "0" * 64]
    positions = json.loads(body["filterData"])["bloomFilterData"]["bitPos"]
    bits = second["bitMap"].replace("\n", "")[::-1]
    assert {place for place, bit in enumerate(bits) if bit == "1"} == set(positions)


async def put_filter(
    client: Client, expression: str, *, topic: str = "T", expression_type: str = SQL
) -> RemotingCommand:
    body = {
        "consumerGroup": "g",
        "topic": topic,
        "expressionType": expression_type,
        "expression": expression,
    }
    return await client.ask(RequestCode.UPDATE_CONSUMER_FILTER, java_json.encode(body))


async def drop_filter(client: Client) -> RemotingCommand:
    return await client.ask(RequestCode.DELETE_CONSUMER_FILTER, consumerGroup="g", topic="T")


async def test_an_administrators_filter_applies_to_pulls_and_is_kept(
    tmp_path: Path, client: Client
) -> None:
    await send_prices(client, 5, 15, 25)
    groups = {"g": {"T": "price > 10"}}
    await client.heartbeat(consumer_groups=groups, expression_type=SQL, sub_version=3)

    answer = await put_filter(client, "price > 20")
    await client.heartbeat(consumer_groups=groups, expression_type=SQL, sub_version=3)

    assert answer.code == ResponseCode.SUCCESS
    assert bodies(await client.pull("T", subscription=None, sub_version=3)) == [b"25"]
    text = (tmp_path / "store" / "config" / "consumerFilter.json").read_text()
    assert '"expression":"price > 20"' in text
    await client.heartbeat(consumer_groups=groups, expression_type=SQL, sub_version=4)
    found = await client.pull("T", subscription=None, sub_version=4)
    assert bodies(found) == [b"15", b"25"], "a member that subscribes again has its own"


async def test_a_waiting_pull_ends_when_its_filter_changes(broker: Broker, client: Client) -> None:
    await send_prices(client, 5)
    await client.heartbeat(
        consumer_groups={"g": {"T": "price > 10"}}, expression_type=SQL, sub_version=3
    )
    other = Client(client.address)
    waiting = asyncio.create_task(
        client.pull("T", 1, subscription=None, sub_version=3, suspend_ms=60_000, timeout_s=60)
    )
    await until_async(lambda: len(broker.storage.parked_pulls) == 1, "the pull's waiting")

    await put_filter(other, "price < 10")
    ended = await waiting
    await send_prices(other, 6)
    found = await client.pull("T", 1, subscription=None, sub_version=3)

    assert ended.code == ResponseCode.PULL_NOT_FOUND
    assert bodies(found) == [b"6"]
    await other.shutdown()


async def test_an_invalid_filter_is_rejected_and_the_old_one_stays(client: Client) -> None:
    await send_prices(client, 5)
    await client.heartbeat(consumer_groups={"g": {"T": "price > 10"}}, expression_type=SQL)

    bad = await put_filter(client, "price >")
    tags = await put_filter(client, "A", expression_type="TAG")
    nowhere = await put_filter(client, "price > 1", topic="Nowhere")
    illegal = await put_filter(client, "price > 1", topic="no topic")
    long = await put_filter(client, "x" * 40_000)
    unreadable = await client.ask(RequestCode.UPDATE_CONSUMER_FILTER, b"[]")

    assert bad.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "at character" in (bad.remark or "")
    assert tags.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert nowhere.code == ResponseCode.TOPIC_NOT_EXIST
    assert {illegal.code, long.code, unreadable.code} == {ResponseCode.SYSTEM_ERROR}
    assert "clientExpressionCharsMax" in (long.remark or "")
    kept = json_body(await client.ask(RequestCode.GET_ALL_CONSUMER_FILTER))
    assert kept["filterDataByTopic"]["T"]["groupFilterData"]["g"]["expression"] == "price > 10"


async def test_a_deleted_filter_rejects_pulls_until_the_next_heartbeat(client: Client) -> None:
    await send_prices(client, 5, 15)
    groups = {"g": {"T": "price > 10"}}
    await client.heartbeat(consumer_groups=groups, expression_type=SQL, sub_version=3)

    deleted = await drop_filter(client)
    missing = await drop_filter(client)
    refused = await client.pull("T", subscription=None, sub_version=3)
    await client.heartbeat(consumer_groups=groups, expression_type=SQL, sub_version=3)
    found = await client.pull("T", subscription=None, sub_version=3)

    assert (deleted.code, missing.code) == (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
    assert refused.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert bodies(found) == [b"15"]


async def test_without_the_key_no_filter_is_stored(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await send_prices(client, 15)

        answer = await put_filter(client, "price > 1")

        await client.shutdown()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "does not support" in (answer.remark or "")
