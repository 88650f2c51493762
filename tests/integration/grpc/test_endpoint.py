"""The gRPC port: routes, sends, clients, accounts, and shutdown."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from broker_core.broker import Broker
from broker_core.errors import ConfigError
from broker_core.grpc_messages.clients import (
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    Publishing,
    Settings,
    Subscription,
    SubscriptionEntry,
    TelemetryCommand,
)
from broker_core.grpc_messages.codec import PYTHON
from broker_core.grpc_messages.enums import AddressScheme, ClientType, Code, Permission
from broker_core.grpc_messages.routing import (
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)
from broker_core.grpc_messages.sending import SendMessageRequest, SendMessageResponse
from broker_core.grpc_messages.shared import Address, Endpoints, Resource
from broker_core.http2.limits import Http2Limits
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import configuration_for, running_broker
from tests.support.grpc_broker import serving, signed
from tests.support.grpc_cases import GROUP, HEADERS, PLAIN, SERVICE, message
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.client import Client
    from tests.support.grpc_broker import Served

DRAIN_S = Http2Limits().drain_s
ACCOUNTS = """
accounts:
  - accessKey: producer
    secretKey: 12345678
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [plain=PUB]
"""


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as running:
        yield running


async def answer_to(served: Served, settings: Settings) -> TelemetryCommand:
    """Return the broker's answer to a client's settings."""
    async with grpc.aio.insecure_channel(served.address) as channel:
        stream = channel.stream_stream(
            SERVICE + "Telemetry", PYTHON.encode, lambda data: PYTHON.decode(TelemetryCommand, data)
        )(metadata=HEADERS)
        await stream.write(TelemetryCommand(settings=settings))
        answer = await stream.read()
        assert isinstance(answer, TelemetryCommand)
        await stream.done_writing()
        return answer


@pytest.mark.parametrize("advertised", ["", "broker.example.com:443"])
async def test_a_route_leads_to_the_address_the_client_used_or_the_advertised_one(
    tmp_path: Path, advertised: str
) -> None:
    used = Endpoints(AddressScheme.DOMAIN_NAME, [Address("nat.example.com", 18_081)])
    async with serving(tmp_path, grpcAdvertisedEndpoint=advertised) as served:
        (answer,) = await served.caller.call(QueryRouteRequest(PLAIN, used))

    assert isinstance(answer, QueryRouteResponse)
    brokers = [queue.broker for queue in answer.message_queues]
    assert [queue.id for queue in answer.message_queues] == [0, 1, 2, 3]
    assert {queue.permission for queue in answer.message_queues} == {Permission.READ_WRITE}
    expected = [Address("broker.example.com", 443)] if advertised else used.addresses
    assert all(each and each.endpoints and each.endpoints.addresses == expected for each in brokers)


async def test_a_plain_group_is_assigned_the_whole_broker(served: Served) -> None:
    (answer,) = await served.caller.call(QueryAssignmentRequest(PLAIN, GROUP))

    assert isinstance(answer, QueryAssignmentResponse)
    queues = [each.message_queue for each in answer.assignments]
    assert [queue.id for queue in queues if queue] == [-1]


async def test_a_topics_kind_and_a_groups_order_survive_tools_of_4_9_and_restarts(
    tmp_path: Path,
) -> None:
    async def change(client: Client, **more: object) -> None:
        for body in (more, {}):
            group = java_json.encode({"groupName": "readers", **body})
            answer = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)
            assert answer.code == ResponseCode.SUCCESS
        answer = await client.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic="ordered",
            readQueueNums=2,
            writeQueueNums=2,
            perm=6,
        )
        assert answer.code == ResponseCode.SUCCESS

    async with serving(tmp_path) as served:
        await change(served.client, consumeMessageOrderly=True)
    async with running_broker(tmp_path) as broker:
        group = broker.storage.groups.find("readers")
        topic = broker.storage.topics.find("ordered")

    assert group is not None
    assert group.is_orderly
    assert topic is not None
    assert (topic.message_type, topic.write_queue_nums) == ("FIFO", 2)


async def test_each_message_of_a_request_has_its_entry(served: Served) -> None:
    messages = [message(message_id=f"010{number}") for number in range(3)]

    (answer,) = await served.caller.call(SendMessageRequest(messages))

    assert isinstance(answer, SendMessageResponse)
    assert answer.status is not None
    assert answer.status.code == Code.OK
    assert [each.message_id for each in answer.entries] == ["0100", "0101", "0102"]


async def test_a_producer_is_registered_by_its_settings_until_it_ends(served: Served) -> None:
    producers = served.broker.clients.producers
    settings = Settings(ClientType.PRODUCER, publishing=Publishing([PLAIN]))
    async with grpc.aio.insecure_channel(served.address) as channel:
        stream = channel.stream_stream(
            SERVICE + "Telemetry", PYTHON.encode, lambda data: PYTHON.decode(TelemetryCommand, data)
        )(metadata=HEADERS)
        await stream.write(TelemetryCommand(settings=settings))
        answer = await stream.read()
        (member,) = producers.groups["plain"].values()
        beaten = await served.caller.status(HeartbeatRequest())
        ended = await served.caller.status(NotifyClientTerminationRequest())
        assert "plain" not in producers.groups

    assert isinstance(answer, TelemetryCommand)
    assert answer.settings is not None
    assert answer.settings.metric is not None
    assert answer.settings.publishing is not None
    assert answer.settings.publishing.max_body_size == 4_194_304
    assert (member.client_id, member.language, member.version) == ("tests@1@0@abc", "PYTHON", 437)
    assert (beaten.code, ended.code) == (Code.OK, Code.OK)


async def test_a_consumer_learns_how_to_retry_and_is_removed_with_its_connection(
    served: Served,
) -> None:
    consumers = served.broker.clients.consumers
    subscription = Subscription(GROUP, [SubscriptionEntry(PLAIN)])

    answer = await answer_to(served, Settings(ClientType.PUSH_CONSUMER, subscription=subscription))

    assert answer.settings is not None
    assert answer.settings.subscription is not None
    assert answer.settings.subscription.fifo is False
    assert answer.settings.backoff_policy is not None
    assert answer.settings.backoff_policy.max_attempts == 17
    await asyncio.to_thread(until, lambda: consumers.find("readers") is None, "the group's end")


async def test_settings_without_a_role_end_the_stream(served: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer_to(served, Settings(ClientType.PRODUCER))

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    text = "there is no publishing or subscription data in settings"
    assert caught.value.details() == text


async def test_one_account_serves_both_protocols_and_an_old_signature_neither(
    tmp_path: Path,
) -> None:
    acl = tmp_path / "plain_acl.yml"
    acl.write_text(ACCOUNTS)
    acl.chmod(0o600)
    now = datetime.now(UTC)
    sent = SendMessageRequest([message()])
    async with serving(tmp_path, aclEnable="true", aclFile=acl) as served:
        status = served.caller.status
        codes = {
            "unsigned": await status(sent),
            "wrong secret": await status(sent, headers=signed("producer", "12345679")),
            "old": await status(
                sent, headers=signed("producer", "12345678", now - timedelta(minutes=16))
            ),
            "other topic": await status(
                SendMessageRequest([message("halves")]), headers=signed("producer", "12345678")
            ),
            "consumes": await status(
                QueryAssignmentRequest(PLAIN, GROUP), headers=signed("producer", "12345678")
            ),
            "allowed": await status(sent, headers=signed("producer", "12345678")),
        }

    found = {name: each.code for name, each in codes.items()}
    assert found == {
        **dict.fromkeys(
            ("unsigned", "wrong secret", "old", "other topic", "consumes"), Code.UNAUTHORIZED
        ),
        # The account may send, but the topic doesn't exist.
        "allowed": Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    }


def test_access_validators_without_signatures_and_the_port_are_mutually_exclusive(
    tmp_path: Path,
) -> None:
    configuration = configuration_for(
        tmp_path, grpcListenPort=18_081, aclEnable="true", accessValidators="nobody"
    )

    with pytest.raises(ConfigError):
        Broker(configuration)


async def test_a_shutdown_ends_streams_and_rejects_new_calls(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        channel = grpc.aio.insecure_channel(served.address)
        stream = channel.stream_stream(SERVICE + "Telemetry")(metadata=HEADERS)
        await stream.write(
            PYTHON.encode(
                TelemetryCommand(
                    settings=Settings(
                        ClientType.PRODUCER, publishing=Publishing([Resource("", "plain")])
                    )
                )
            )
        )
        assert await stream.read()

        began = asyncio.get_running_loop().time()
    took_s = asyncio.get_running_loop().time() - began

    try:
        assert await stream.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK)
    finally:
        await channel.close()
    assert took_s < DRAIN_S
