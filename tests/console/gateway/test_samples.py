"""The contract of SampleGateway, and the answers of RocketMQ's own broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from console.gateway.answers import BrokerNode
from console.gateway.errors import RequestFailedError, UnreadableAnswerError
from console.gateway.requests.samples import GROUPS_PER_SAMPLE, TURN_MS, broker_sample, size_of
from console.gateway.sample import (
    BrokerSample,
    ClientsSample,
    GroupSample,
    VersionsSample,
    decoded,
    encoded,
)
from tests.console.gateway.support import BILLING, ORDERS, ask, send

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand
    from console.gateway.ports import Gateway

NODE = BrokerNode("DefaultCluster", "broker-a", 0, "127.0.0.1:10911")
NOW_MS = 1_795_251_600_000


async def take_sample(gateway: Gateway) -> BrokerSample:
    [(node, sample)] = (await ask(gateway.samples.take)).items()
    assert node.broker_name == "broker-a"
    assert isinstance(sample, BrokerSample)
    return sample


async def test_a_sample_has_the_queue_ends_and_the_groups_progress(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=3)
    await gateway.messages.join(BILLING)
    await gateway.messages.commit(
        (await gateway.messages.route("Orders")).read_queues[1],  # type: ignore[union-attr]
        "billing",
        2,
    )
    # A commit has no answer, but a later request on the same connection does.
    await gateway.messages.members(
        (await gateway.messages.route("Orders")).read_queues[1],  # type: ignore[union-attr]
        "billing",
    )

    sample = await take_sample(gateway)

    [topic] = [each for each in sample.topics if each.name == "Orders"]
    assert {row[0]: row[2] for row in topic.rows()}.get(1) == 3
    [progress] = [each for each in sample.progress if each.group == "billing"]
    [(queue, offset, end, since)] = [row for row in progress.rows() if row[0] == 1]
    assert (queue, offset, end) == (1, 2, 3)
    assert since > 0
    assert {each.name: each.members for each in sample.groups}["billing"] == 1
    assert sample.counters["put"] == 3
    assert sample.is_whole


async def test_a_saved_sample_is_read_back_unchanged(gateway: Gateway) -> None:
    sample = await take_sample(gateway)

    assert decoded(encoded(sample)) == sample


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"topics": [["T", 1, [1, 2]]]}'])
def test_an_invalid_sample_is_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decoded(data)


class OtherBroker:
    """Answers as RocketMQ 4.9 does."""

    def __init__(self, code: int = ResponseCode.REQUEST_CODE_NOT_SUPPORTED) -> None:
        self.requests: list[int] = []
        # The versions of the members of each group; None for an unknown version.
        self.groups: dict[str, list[int] | None] = {"billing": [407]}
        self._code = code

    async def ask(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        self.requests.append(command.code)
        if command.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            body: object = {"table": RUNTIME}
        elif command.code == RequestCode.GET_BROKER_CONSUME_STATS:
            parts = [{"offsetTable": OFFSETS}]
            body = {"consumeStatsList": [{group: parts} for group in self.groups]}
        elif command.code == RequestCode.GET_CONSUMER_CONNECTION_LIST:
            group = command.ext_fields["consumerGroup"]
            members = self.groups.get(group)
            if members is None:
                return command.answer(ResponseCode.NO_PERMISSION, "no")
            if not members:
                return command.answer(ResponseCode.CONSUMER_NOT_ONLINE, "none")
            body = {
                "connectionSet": [
                    {"clientId": f"{number}", "language": "JAVA", "version": version}
                    for number, version in enumerate(members)
                ]
            }
        else:
            return command.answer(self._code, "no")
        return command.answer(ResponseCode.SUCCESS, body=java_json.encode(body))


RUNTIME = {
    "bootTimestamp": "1795240000000",
    "putMessageTimesTotal": "12",
    "msgGetTotalTodayNow": "7",
    "commitLogMinOffset": "0",
    "commitLogMaxOffset": "4096",
    "commitLogDiskRatio": "0.25",
    "earliestMessageTimeStamp": str(NOW_MS - 5_000),
    "remainHowManyDataToFlush": "1.5 KiB",
}
OFFSETS = {
    java_json.message_queue_key("Orders", "broker-a", 0): {
        "brokerOffset": 9,
        "consumerOffset": 4,
        "lastTimestamp": NOW_MS - 60_000,
    }
}


async def test_another_broker_gets_two_requests_and_one_per_member_in_turn() -> None:
    other = OtherBroker()

    sample = await broker_sample(other.ask, NODE, NOW_MS)

    assert other.requests[1:] == [
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
    ]
    assert sample.counters == {"put": 12, "got": 7}
    assert sample.gauges == {
        "logBytes": 4096,
        "oldestAgeMs": 5_000,
        "flushBehind": 1536,
        "diskUsed": 250_000,
        "diskTotal": 1_000_000,
    }
    [progress] = sample.progress
    assert list(progress.rows()) == [(0, 4, 9, NOW_MS - 60_000)]
    assert sample.groups == [GroupSample("billing", 1)]
    assert sample.clients == []
    # The broker doesn't report other topics' contents or details of messages and members.
    assert not sample.is_whole
    assert (sample.large, sample.keys, sample.clocks, sample.cold_reads) == (None,) * 4


async def test_another_brokers_group_members_are_known_if_permitted() -> None:
    other = OtherBroker()
    other.groups = {"billing": [407, 407, 455], "alone": [], "secret": None}

    sample = await broker_sample(other.ask, NODE, NOW_MS)

    assert {each.name: each.members for each in sample.groups} == {
        "alone": 0,
        "billing": 3,
        "secret": None,
    }
    assert sample.clients == [
        ClientsSample("billing", {"JAVA v4_9_7": 2, "JAVA v5_2_1": 1}, {}, [])
    ]
    assert sample.consumers == [VersionsSample("billing", {"JAVA v4_9_7": 2, "JAVA v5_2_1": 1})]


async def test_many_groups_take_turns_and_each_is_served() -> None:
    other = OtherBroker()
    other.groups = {f"group-{number}": [407] for number in range(2 * GROUPS_PER_SAMPLE + 1)}
    known: set[str] = set()
    for turn in range(3):
        other.requests.clear()
        sample = await broker_sample(other.ask, NODE, NOW_MS + turn * TURN_MS)
        requests = other.requests.count(RequestCode.GET_CONSUMER_CONNECTION_LIST)
        found = {each.name for each in sample.groups if each.members is not None}
        assert len(found) == requests <= GROUPS_PER_SAMPLE
        assert len(sample.groups) == len(other.groups)
        known |= found

    assert known == set(other.groups)


async def test_a_rejection_does_not_mean_another_broker() -> None:
    with pytest.raises(RequestFailedError):
        await broker_sample(OtherBroker(ResponseCode.NO_PERMISSION).ask, NODE, NOW_MS)


async def test_an_answer_that_is_not_a_sample_is_named() -> None:
    with pytest.raises(UnreadableAnswerError):
        await broker_sample(OtherBroker(ResponseCode.SUCCESS).ask, NODE, NOW_MS)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0 B", 0), ("12", 12), ("2.0 MiB", 2 << 20), ("1 XB", None), ("", None), (None, None)],
)
def test_sizes_are_read_with_their_unit(text, size) -> None:
    assert size_of(text) == size
