"""kill -9 of the broker while a gRPC consumer holds messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker_core.grpc_messages.enums import Code
from broker_core.grpc_messages.receiving import (
    AckMessageEntry,
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
)
from broker_core.grpc_messages.sending import SendMessageRequest
from broker_core.grpc_messages.times import duration_of
from tests.support.broker_process import BrokerProcess
from tests.support.client import Client
from tests.support.grpc_broker import create_topics, handle_of, received
from tests.support.grpc_cases import GROUP, PLAIN, GrpcCaller, message
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.grpc_messages.shared import Message


async def test_a_kill_loses_no_lease_or_acknowledgement(tmp_path: Path) -> None:
    port = free_port()
    broker = BrokerProcess(tmp_path, grpcListenPort=port)
    await asyncio.to_thread(broker.start)
    try:
        client, caller = Client(f"127.0.0.1:{broker.port}"), GrpcCaller(f"127.0.0.1:{port}")
        await create_topics(client)
        for body in (b"done", b"open"):
            await caller.call(SendMessageRequest([message(body=body)]))
        leased: dict[bytes, str] = {}
        while len(leased) < 2:
            leased |= {each.body: handle_of(each) for each in await received(caller)}
        entry = AckMessageEntry("0100", leased[b"done"])
        acknowledged = await caller.status(AckMessageRequest(GROUP, PLAIN, [entry]))
        changed = await caller.status(
            ChangeInvisibleDurationRequest(GROUP, PLAIN, leased[b"open"], duration_of(1_000))
        )
        await client.shutdown()
        await caller.shutdown()

        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        caller = GrpcCaller(f"127.0.0.1:{port}")
        again: list[Message] = []
        while not again:
            again = await received(caller)
        await caller.shutdown()
    finally:
        await asyncio.to_thread(broker.kill)

    assert (acknowledged.code, changed.code) == (Code.OK, Code.OK)
    assert [each.body for each in again] == [b"open"]
