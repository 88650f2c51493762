"""The contract of FileGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.files.entries import entries_in
from console.gateway.answers import BrokerQueue, GroupConfig, TopicConfig
from console.gateway.errors import GatewayError
from console.gateway.files import ConfigFile, parse, text_of
from tests.console.gateway.support import ORDERS, ask

if TYPE_CHECKING:
    from console.files.entries import Entries
    from console.gateway.ports import Gateway


async def entries(gateway: Gateway, file: ConfigFile) -> Entries:
    document = (await ask(gateway.files.read, file, ["broker-a"]))["broker-a"]
    assert document is not None
    return entries_in(file, document)


async def test_a_file_says_what_was_saved(gateway: Gateway) -> None:
    await ask(gateway.topics.save, TopicConfig("Orders", 4, 2, 6, order=True), ["broker-a"])
    await ask(gateway.groups.save, GroupConfig("billing", retry_max_times=3), ["broker-a"])
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
async def test_the_text_of_each_file_is_read_back_as_it_was_answered(
    gateway: Gateway, file: ConfigFile
) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await ask(gateway.offsets.commit, "billing", "Orders", {BrokerQueue("broker-a", 1): 7})

    document = (await ask(gateway.files.read, file, ["broker-a"]))["broker-a"]

    assert document is not None
    assert parse(text_of(file, document)) == document


async def test_a_topic_and_a_group_go_from_one_broker(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await ask(gateway.groups.save, GroupConfig("billing"), ["broker-a"])

    await ask(gateway.files.drop_topic, "Orders", "broker-a")
    await ask(gateway.files.drop_group, "billing", "broker-a")

    assert "Orders" not in await entries(gateway, ConfigFile.TOPICS)
    assert "billing" not in await entries(gateway, ConfigFile.GROUPS)


async def test_a_broker_that_is_not_registered_has_no_files(gateway: Gateway) -> None:
    with pytest.raises(GatewayError):
        await ask(gateway.files.read, ConfigFile.TOPICS, ["broker-z"])
