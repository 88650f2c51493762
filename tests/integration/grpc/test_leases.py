"""Leases of gRPC consumers: renewal, postponement, dead letters, and a killed broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from broker_core.composition import grpc as composition_of_grpc
from broker_core.grpc_messages.clients import (
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    Settings,
    Subscription,
    SubscriptionEntry,
)
from broker_core.grpc_messages.codec import PYTHON
from broker_core.grpc_messages.enums import ClientType, Code
from broker_core.grpc_messages.receiving import (
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueRequest,
    ReceiveMessageRequest,
)
from broker_core.grpc_messages.routing import MessageQueue
from broker_core.grpc_messages.sending import SendMessageRequest
from broker_core.grpc_messages.times import duration_of
from broker_core.grpc_services.leases import LeaseService
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.builders import read_all
from tests.support.clock import ManualClock
from tests.support.grpc_broker import acknowledged, connected, handle_of, received, serving
from tests.support.grpc_cases import GROUP, HEADERS, ORDERED, PLAIN, SERVICE, message
from tests.support.time_steps import pass_time, settle
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.grpc_messages.shared import Message, Resource
    from tests.support.grpc_broker import Served

MINUTE_MS = 60_000
SCAN_MS = 5_000
RETRY, DLQ = "%RETRY%readers_plain", "%DLQ%readers"
CONSUMER = Settings(
    ClientType.PUSH_CONSUMER, subscription=Subscription(GROUP, [SubscriptionEntry(PLAIN)])
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def served(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Served]:
    async with serving(tmp_path, clock=clock) as running:
        yield running


def stored(served: Served, topic: str) -> int:
    """Return how many messages the first queue of a topic has."""
    return served.broker.storage.store.max_offset_in_queue(topic, 0)


async def postpone(
    served: Served, handle: str, *, is_suspended: bool, topic: Resource = PLAIN
) -> None:
    """Change a lease so that it ends in a second."""
    (changed,) = await served.caller.call(
        ChangeInvisibleDurationRequest(
            GROUP, topic, handle, duration_of(1_000), suspend=is_suspended
        )
    )
    assert isinstance(changed, ChangeInvisibleDurationResponse)
    assert changed.status is not None
    assert changed.status.code == Code.OK


def attempt_of(message: Message) -> int | None:
    assert message.system_properties is not None
    return message.system_properties.delivery_attempt


async def work(served: Served, clock: ManualClock, milliseconds: int) -> None:
    """Advance the time with a heartbeat of the consumer each minute."""
    for passed in range(0, milliseconds, SCAN_MS):
        clock.advance_ms(SCAN_MS)
        await settle()
        if passed % MINUTE_MS:
            continue
        assert (await served.caller.status(HeartbeatRequest())).code == Code.OK


async def test_a_lease_is_renewed_until_its_consumer_acknowledges_with_the_first_handle(
    served: Served, clock: ManualClock
) -> None:
    await served.caller.call(SendMessageRequest([message()]))
    async with connected(served, CONSUMER):
        (leased,) = await received(served.caller, auto_renew=True)
        await work(served, clock, 40 * MINUTE_MS)
        assert stored(served, RETRY) == 0

        assert await acknowledged(served, handle_of(leased)) == Code.OK
        await work(served, clock, 61 * MINUTE_MS)

    assert stored(served, RETRY) == 0


@pytest.mark.parametrize("is_topic", [True, False])
async def test_a_deleted_lease_is_no_longer_renewed(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, *, is_topic: bool
) -> None:
    services: list[LeaseService] = []

    def recorded(*given: Any) -> LeaseService:
        services.append(LeaseService(*given))
        return services[-1]

    monkeypatch.setattr(composition_of_grpc, "LeaseService", recorded)
    async with serving(tmp_path, clock=clock) as served, connected(served, CONSUMER):
        offsets = served.broker.storage.offsets
        await served.caller.call(SendMessageRequest([message()]))
        await received(served.caller, auto_renew=True)
        assert services[0].renewed_count == 1

        if is_topic:
            offsets.delete_topic(PLAIN.name)
        else:
            offsets.delete_group(GROUP.name)
        await work(served, clock, SCAN_MS)

        assert services[0].renewed_count == 0


async def test_a_lease_without_renewal_ends_on_time(served: Served, clock: ManualClock) -> None:
    await served.caller.call(SendMessageRequest([message()]))
    async with connected(served, CONSUMER):
        (leased,) = await received(served.caller)
        await work(served, clock, MINUTE_MS)

        assert stored(served, RETRY) == 1
        assert await acknowledged(served, handle_of(leased)) == Code.INVALID_RECEIPT_HANDLE


async def test_renewal_ends_after_three_hours_and_the_message_is_redelivered(
    served: Served, clock: ManualClock
) -> None:
    await served.caller.call(SendMessageRequest([message()]))
    async with connected(served, CONSUMER):
        await received(served.caller, auto_renew=True)
        await work(served, clock, 180 * MINUTE_MS)
        assert stored(served, RETRY) == 0

        # The lease that was running after three hours may last an hour.
        await work(served, clock, 61 * MINUTE_MS)

    assert stored(served, RETRY) == 1


async def test_a_leaving_clients_messages_are_redelivered_after_a_second(
    served: Served, clock: ManualClock
) -> None:
    await served.caller.call(SendMessageRequest([message()]))
    async with connected(served, CONSUMER):
        await received(served.caller, auto_renew=True)
        ended = await served.caller.status(NotifyClientTerminationRequest(GROUP))
        await pass_time(clock, 999)
        assert stored(served, RETRY) == 0
        await pass_time(clock, 1)

    assert ended.code == Code.OK
    assert stored(served, RETRY) == 1


@pytest.mark.parametrize("is_suspended", [False, True])
async def test_a_postponed_delivery_counts_as_an_attempt_unless_it_is_suspended(
    served: Served, clock: ManualClock, *, is_suspended: bool
) -> None:
    await served.caller.call(SendMessageRequest([message()]))
    (leased,) = await received(served.caller)

    await postpone(served, handle_of(leased), is_suspended=is_suspended)
    await pass_time(clock, 1_000)

    (again,) = await received(served.caller)
    assert attempt_of(again) == (1 if is_suspended else 2)


@pytest.mark.parametrize("is_suspended", [False, True])
async def test_an_ordered_groups_postponed_delivery_counts_unless_it_is_suspended(
    served: Served, clock: ManualClock, *, is_suspended: bool
) -> None:
    body = java_json.encode({"groupName": "readers", "consumeMessageOrderly": True})
    answer = await served.client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    assert answer.code == ResponseCode.SUCCESS
    await served.caller.call(SendMessageRequest([message("ordered", message_group="a")]))
    (leased,) = await received(served.caller, ORDERED)

    await postpone(served, handle_of(leased), is_suspended=is_suspended, topic=ORDERED)
    await pass_time(clock, 1_000)

    (again,) = await received(served.caller, ORDERED)
    assert attempt_of(again) == (1 if is_suspended else 2)


async def test_a_forwarded_message_is_a_dead_letter_with_its_origin(served: Served) -> None:
    await served.caller.call(SendMessageRequest([message()]))
    (leased,) = await received(served.caller)

    status = await served.caller.status(
        ForwardMessageToDeadLetterQueueRequest(GROUP, PLAIN, handle_of(leased), "0100")
    )

    assert status.code == Code.OK
    (found,) = read_all(served.broker.storage.store, DLQ)
    assert found.properties["DLQ_ORIGIN_TOPIC"] == "plain"
    assert found.properties["DLQ_ORIGIN_MESSAGE_ID"] == "0100"
    assert served.broker.storage.pop.engine.leases.count == 0
    assert await acknowledged(served, handle_of(leased)) == Code.OK


async def test_a_message_of_a_cancelled_call_goes_to_another_consumer_uncounted(
    tmp_path: Path,
) -> None:
    async with (
        serving(tmp_path) as served,
        grpc.aio.insecure_channel(served.address) as channel,
    ):
        pollers = served.broker.storage.pop.pollers
        waiting = channel.unary_stream(SERVICE + "ReceiveMessage", PYTHON.encode)(
            ReceiveMessageRequest(
                GROUP,
                MessageQueue(PLAIN),
                batch_size=32,
                invisible_duration=duration_of(60_000),
                long_polling_timeout=duration_of(20_000),
            ),
            metadata=HEADERS,
        )
        await asyncio.to_thread(until, lambda: len(pollers) == 1, "the call to wait")
        waiting.cancel()
        # On the same connection, so that the broker has processed the cancellation.
        await channel.unary_unary(SERVICE + "SendMessage", PYTHON.encode)(
            SendMessageRequest([message()]), metadata=HEADERS
        )

        (leased,) = await received(served.caller)

    assert attempt_of(leased) == 1
