"""The contract of FileGateway."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from broker_core.protocol.codes import ResponseCode
from console.broker.files.entries import entries_in
from console.gateway.answers import GroupConfig, TopicConfig
from console.gateway.errors import GatewayError, NotFoundError, RequestFailedError
from console.gateway.files import ConfigFile, GroupFilter, parse, text_of
from console.gateway.requests.files import move_delay
from console.lib.stored import BrokerQueue
from tests.console.gateway.support import ORDERS, ask, send

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand
    from console.broker.files.entries import Entries
    from console.gateway.ports import Gateway


async def entries(gateway: Gateway, file: ConfigFile) -> Entries:
    document = (await ask(gateway.files.read, file, ["broker-a"]))["broker-a"]
    assert document is not None
    return entries_in(file, document)


async def test_a_file_has_the_saved_values(gateway: Gateway) -> None:
    await ask(gateway.topics.save, TopicConfig("Orders", 4, 2, 6, order=True), ["broker-a"])
    await ask(gateway.groups.save, GroupConfig("billing", retry_max_times=3), ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=7)
    await ask(gateway.offsets.commit, "billing", "Orders", {BrokerQueue("broker-a", 1): 7})

    topics = await entries(gateway, ConfigFile.TOPICS)
    groups = await entries(gateway, ConfigFile.GROUPS)
    offsets = await entries(gateway, ConfigFile.OFFSETS)

    assert topics["Orders"] == {
        "order": True,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }
    assert (groups["billing"]["retryMaxTimes"], groups["billing"]["consumeEnable"]) == (3, True)
    assert offsets["Orders@billing"] == {"1": "7"}


@pytest.mark.parametrize("file", ConfigFile)
async def test_each_files_text_is_read_back_unchanged(gateway: Gateway, file: ConfigFile) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=7)
    await ask(gateway.offsets.commit, "billing", "Orders", {BrokerQueue("broker-a", 1): 7})

    document = (await ask(gateway.files.read, file, ["broker-a"]))["broker-a"]

    assert document is not None
    assert parse(text_of(file, document)) == document


async def test_a_topic_and_a_group_are_removed_from_one_broker(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await ask(gateway.groups.save, GroupConfig("billing"), ["broker-a"])

    await ask(gateway.files.drop_topic, "Orders", "broker-a")
    await ask(gateway.files.drop_group, "billing", "broker-a")

    assert "Orders" not in await entries(gateway, ConfigFile.TOPICS)
    assert "billing" not in await entries(gateway, ConfigFile.GROUPS)


async def test_an_unregistered_broker_has_no_files(gateway: Gateway) -> None:
    with pytest.raises(GatewayError):
        await ask(gateway.files.read, ConfigFile.TOPICS, ["broker-z"])


async def test_a_delay_level_continues_from_the_given_offset(gateway: Gateway) -> None:
    await ask(gateway.files.move_delay, 2, 0, "broker-a")

    assert await entries(gateway, ConfigFile.DELAYS) == {"2": {"offset": "0"}}
    with pytest.raises(RequestFailedError, match="delay level 2 has the offsets from 0 to 0"):
        await ask(gateway.files.move_delay, 2, 1, "broker-a")
    with pytest.raises(RequestFailedError, match="there is no delay level 99"):
        await ask(gateway.files.move_delay, 99, 0, "broker-a")


async def test_a_filter_is_compiled_stored_changed_and_deleted(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    expected = GroupFilter("billing", "Orders", "SQL92", "price > 10")
    bad = replace(expected, expression="price >")

    assert await ask(gateway.files.check_filter, expected, "broker-a") == ""
    assert "at character 8" in await ask(gateway.files.check_filter, bad, "broker-a")
    for each in (expected, replace(expected, expression="price > 20")):
        await ask(gateway.files.save_filter, each, "broker-a")
        assert await entries(gateway, ConfigFile.FILTERS) == {
            "Orders@billing": {"expression": each.expression, "expressionType": "SQL92"}
        }
    with pytest.raises(RequestFailedError, match="at character 8"):
        await ask(gateway.files.save_filter, bad, "broker-a")
    with pytest.raises(NotFoundError):
        await ask(gateway.files.save_filter, replace(expected, topic="Nowhere"), "broker-a")

    await ask(gateway.files.drop_filter, "billing", "Orders", "broker-a")

    assert await entries(gateway, ConfigFile.FILTERS) == {}
    with pytest.raises(RequestFailedError, match="no filter"):
        await ask(gateway.files.drop_filter, "billing", "Orders", "broker-a")


async def test_a_rocketmq_broker_reports_that_it_does_not_change_such_files() -> None:
    async def ask_original(
        address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        return command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type not supported")

    with pytest.raises(GatewayError, match="can't change this file"):
        await move_delay(ask_original, "127.0.0.1:10911", 1, 0)
