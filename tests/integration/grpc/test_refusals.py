"""Calls that the gRPC port rejects, with the codes that RocketMQ 5 clients expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.clock import SystemClock
from broker_core.grpc_messages.enums import Code
from broker_core.grpc_messages.receiving import (
    ChangeInvisibleDurationRequest,
    ForwardMessageToDeadLetterQueueRequest,
    ReceiveMessageRequest,
)
from broker_core.grpc_messages.routing import MessageQueue, QueryRouteRequest
from broker_core.grpc_messages.sending import EndTransactionRequest, SendMessageRequest
from broker_core.grpc_messages.shared import FilterExpression
from broker_core.grpc_messages.times import duration_of
from tests.support.grpc_broker import acknowledged, handle_of, received, serving
from tests.support.grpc_cases import GROUP, PLAIN, Refused, message, others, sends

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.grpc_broker import Served


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as running:
        yield running


async def wrong(served: Served, cases: list[Refused]) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for case in cases:
        status = await served.caller.status(case.request)
        if status.code != case.code or not status.message.startswith(case.text):
            found.append((case.name, status))
    return found


async def test_each_rule_violation_of_a_message_is_rejected_with_its_code(served: Served) -> None:
    assert await wrong(served, sends(SystemClock().now_ms())) == []

    assert served.broker.storage.store.max_commit_log_offset == 0


async def test_each_rule_violation_of_another_call_is_rejected_with_its_code(
    served: Served,
) -> None:
    assert await wrong(served, others()) == []


async def test_a_client_without_an_id_is_rejected(served: Served) -> None:
    status = await served.caller.status(QueryRouteRequest(PLAIN), headers=())

    assert (status.code, status.message) == (
        Code.CLIENT_ID_REQUIRED,
        "client id cannot be empty",
    )


async def test_a_transaction_that_was_never_started_cannot_be_ended(served: Served) -> None:
    request = EndTransactionRequest(PLAIN, "0100", "0100", 1)

    assert (await served.caller.status(request)).code == Code.INVALID_TRANSACTION_ID


async def test_a_wait_beyond_the_deadline_is_rejected(served: Served) -> None:
    request = ReceiveMessageRequest(
        GROUP, MessageQueue(PLAIN), batch_size=1, invisible_duration=duration_of(10_000)
    )

    status = await served.caller.status(request, timeout_s=2)

    assert status.code == Code.ILLEGAL_POLLING_TIME


async def test_an_unreadable_filter_is_rejected(served: Served) -> None:
    request = ReceiveMessageRequest(
        GROUP,
        MessageQueue(PLAIN),
        FilterExpression(2, "a ="),
        batch_size=1,
        invisible_duration=duration_of(10_000),
    )

    assert (await served.caller.status(request)).code == Code.ILLEGAL_FILTER_EXPRESSION


async def test_a_forged_handle_acknowledges_and_moves_nothing(served: Served) -> None:
    await served.caller.call(SendMessageRequest([message(message_id="0101")]))
    (handle,) = map(handle_of, await received(served.caller))
    fields = handle.split(" ")
    forged = {
        "start": [*fields[:0], "7", *fields[1:]],
        "pop time": [fields[0], str(int(fields[1]) + 1), *fields[2:]],
        "topic kind": [*fields[:4], "1", *fields[5:]],
        "broker": [*fields[:5], "broker-b", *fields[6:]],
        "queue": [*fields[:6], "9", *fields[7:]],
        "offset": [*fields[:7], "1", *fields[8:]],
        "place": [*fields[:8], str(int(fields[8]) + 1)],
    }
    before = served.broker.storage.store.max_commit_log_offset

    for name, parts in forged.items():
        text = " ".join(parts)
        forward = ForwardMessageToDeadLetterQueueRequest(GROUP, PLAIN, text, "0101")
        assert (await served.caller.status(forward)).code == Code.INVALID_RECEIPT_HANDLE, name
        if name == "place":
            continue  # Only forwarding reads the location.
        await acknowledged(served, text)
        change = ChangeInvisibleDurationRequest(GROUP, PLAIN, text, duration_of(1_000))
        assert (await served.caller.status(change)).code != Code.OK, name

    assert served.broker.storage.store.max_commit_log_offset == before
    assert await acknowledged(served, handle) == Code.OK
