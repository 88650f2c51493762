"""Clients of the gRPC port: their maximum number, and the broker's requests to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from broker_core.grpc_messages.clients import (
    NotifyClientTerminationRequest,
    Publishing,
    Settings,
    Subscription,
    SubscriptionEntry,
    TelemetryCommand,
    ThreadStackTrace,
    VerifyMessageResult,
)
from broker_core.grpc_messages.enums import ClientType, Code
from broker_core.grpc_messages.routing import QueryRouteRequest
from broker_core.grpc_messages.sending import SendMessageRequest
from broker_core.grpc_messages.shared import Resource, Status
from broker_core.grpc_services import clients
from broker_core.message.ids import offset_msg_id, parse_host
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.builders import read_all
from tests.support.grpc_broker import connected, serving
from tests.support.grpc_cases import GROUP, HEADERS, PLAIN, message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.grpc_broker import Served, TelemetryStream

CLIENT_ID = dict(HEADERS)["x-mq-client-id"]
PRODUCER = Settings(ClientType.PRODUCER, publishing=Publishing([PLAIN]))
CONSUMER = Settings(
    ClientType.PUSH_CONSUMER, subscription=Subscription(GROUP, [SubscriptionEntry(PLAIN)])
)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as running:
        yield running


def named(number: int) -> tuple[tuple[str, str], ...]:
    return (("x-mq-client-id", f"client-{number}"), *HEADERS[1:])


async def test_a_connection_may_have_500_clients(served: Served) -> None:
    codes = [
        (await served.caller.status(QueryRouteRequest(PLAIN), headers=named(number))).code
        for number in range(501)
    ]

    assert codes == [Code.OK] * 500 + [Code.TOO_MANY_REQUESTS]


async def test_a_connection_without_an_account_may_have_one_client(tmp_path: Path) -> None:
    acl = tmp_path / "plain_acl.yml"
    acl.write_text("accounts: [{accessKey: producer, secretKey: 12345678}]")
    acl.chmod(0o600)
    async with serving(tmp_path, aclEnable="true", aclFile=acl) as served:
        codes = [
            (await served.caller.status(QueryRouteRequest(PLAIN), headers=named(number))).code
            for number in range(2)
        ]

    assert codes == [Code.UNAUTHORIZED, Code.TOO_MANY_REQUESTS]


async def test_the_broker_accepts_as_many_grpc_clients_as_member_nums_max_allows(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, memberNumsMax=3) as served:
        codes = [
            (await served.caller.status(QueryRouteRequest(PLAIN), headers=named(number))).code
            for number in range(4)
        ]

    assert codes == [Code.OK] * 3 + [Code.TOO_MANY_REQUESTS]


async def test_settings_above_the_limit_for_all_clients_are_rejected_until_another_client_ends(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SETTINGS_BYTES_MAX", 1_000)
    large = Settings(
        ClientType.PRODUCER,
        publishing=Publishing([Resource("", f"topic-{number:04}") for number in range(40)]),
    )
    async with connected(served, large, named(1)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with connected(served, large, named(2)):
                pass
        ended = NotifyClientTerminationRequest()
        assert (await served.caller.status(ended, headers=named(1))).code == Code.OK
    async with connected(served, large, named(3)):
        pass

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "settings of all clients" in (caught.value.details() or "")


async def test_a_consumers_threads_are_shown_to_an_administrator(served: Served) -> None:
    async with connected(served, CONSUMER) as stream:
        answer, request = await asyncio.gather(
            served.client.ask(
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                consumerGroup="readers",
                clientId=CLIENT_ID,
                jstackEnable="true",
            ),
            answered(stream),
        )

    assert request.print_thread_stack_trace_command is not None
    assert answer.code == ResponseCode.SUCCESS
    assert java_json.decode(answer.body)["jstack"] == "main: waits"


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, "CR_SUCCESS"),
        (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED, None),
    ],
)
async def test_a_consumer_consumes_a_message_that_an_administrator_sends_it(
    served: Served, code: Code, result: str | None
) -> None:
    await served.caller.call(SendMessageRequest([message(body=b"once more")]))
    store = served.broker.storage.store
    (stored,) = [each for queue in range(4) for each in read_all(store, "plain", queue)]
    async with connected(served, CONSUMER) as stream:
        answer, request = await asyncio.gather(
            served.client.ask(
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                consumerGroup="readers",
                clientId=CLIENT_ID,
                msgId=offset_msg_id(parse_host(stored.store_host), stored.commit_log_offset),
            ),
            answered(stream, code),
        )

    assert request.verify_message_command is not None
    assert request.verify_message_command.message is not None
    assert request.verify_message_command.message.body == b"once more"
    if result is None:
        assert answer.code == ResponseCode.SYSTEM_ERROR
    else:
        assert java_json.decode(answer.body)["consumeResult"] == result


async def test_an_answer_with_another_nonce_is_ignored(served: Served) -> None:
    async with connected(served, CONSUMER) as stream:
        asking = asyncio.create_task(
            served.client.ask(
                RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="readers", clientId=CLIENT_ID
            )
        )
        request = await stream.read()
        assert isinstance(request, TelemetryCommand)
        assert request.print_thread_stack_trace_command is not None
        nonce = request.print_thread_stack_trace_command.nonce
        for known, text in (("another", "forged"), (nonce, "true")):
            await stream.write(TelemetryCommand(thread_stack_trace=ThreadStackTrace(known, text)))
        answer = await asking

    assert java_json.decode(answer.body)["jstack"] == "true"


async def answered(stream: TelemetryStream, code: Code = Code.OK) -> TelemetryCommand:
    """Answer the broker's next request; return the request."""
    request = await stream.read()
    assert isinstance(request, TelemetryCommand)
    answer = TelemetryCommand(Status(code, "as told"))
    if request.print_thread_stack_trace_command is not None:
        nonce = request.print_thread_stack_trace_command.nonce
        answer.thread_stack_trace = ThreadStackTrace(nonce, "main: waits")
    else:
        assert request.verify_message_command is not None
        answer.verify_message_result = VerifyMessageResult(request.verify_message_command.nonce)
    await stream.write(answer)
    return request
