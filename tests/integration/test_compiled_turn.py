"""Frequent client requests reach the compiled turn in a complete broker.

The turn checks whether the table's handlers are unwrapped: a wrapped handler silently leaves its
requests to Python, with correct answers.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from tests.support import transaction_frames
from tests.support.broker import running_broker
from tests.support.raw_remoting import (
    GET_BROKER_RUNTIME_INFO,
    PULL_MESSAGE,
    SUCCESS,
    RawClient,
    create_topic,
    parse_records,
    pull_fields,
)
from tests.support.send_frames import fields_of, send
from tests.support.transaction_frames import PLAIN
from tests.support.twins import is_compiled

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="no compiled turn: python -m broker_core.native.build"
)
TOPIC = "Orders"
TRANSACTIONS = 20
BODY_BYTES, BODIES = 4096, 32
LATE_PULLS = 150
"""This many answers exceed all buffers between the broker and a client."""


async def test_a_brokers_sends_pulls_half_messages_and_commits_are_compiled(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as broker:
        before, after = await asyncio.to_thread(served, broker.listen_port)
    # Python handles the first message of a queue.
    assert "handler" not in after, after
    assert after.get("queue", 0) == before.get("queue", 0), after


def served(port: int) -> tuple[dict[str, int], dict[str, int]]:
    """Send, pull and commit, twice; return Python's requests before and after the second time."""
    create_topic(port, TOPIC, queues=1)
    with RawClient(port) as client:
        a_round(client)
        before = left(client)
        a_round(client)
        return before, left(client)


def a_round(client: RawClient) -> None:
    client.send_bytes(send(fields_of(TOPIC, 0, ""), b"plain", 1))
    assert client.read_answer().code == SUCCESS
    assert client.ask(PULL_MESSAGE, pull_fields(TOPIC, 0, 0)).code == SUCCESS
    for number in range(TRANSACTIONS):
        client.send_bytes(transaction_frames.half(TOPIC, 0, PLAIN, b"half", number))
        answer = client.read_answer()
        assert answer.code == SUCCESS, answer
        place = int(answer.fields["msgId"][-16:], 16)
        fields = transaction_frames.end_fields(int(answer.fields["queueOffset"]), place)
        client.send_bytes(transaction_frames.end(fields, number))


async def test_answers_read_late_arrive_whole_and_in_order(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as broker:
        await asyncio.to_thread(read_late, broker.listen_port)


def read_late(port: int) -> None:
    """Send and pull without reading, then read."""
    create_topic(port, TOPIC, queues=1)
    with RawClient(port) as client:
        for number in range(BODIES):
            body = bytes([number]) * BODY_BYTES
            client.send_bytes(send(fields_of(TOPIC, 0, ""), body, 1))
            assert client.read_answer().code == SUCCESS
        found = client.ask(PULL_MESSAGE, pull_fields(TOPIC, 0, 0)).body
        assert [each.body for each in parse_records(found)] == [
            bytes([number]) * BODY_BYTES for number in range(BODIES)
        ]
        opaques = []
        for _ in range(LATE_PULLS):
            client.send_bytes(send(fields_of(TOPIC, 0, ""), b"x", 1))
            opaques.append(1)
            opaques.append(client.send_request(PULL_MESSAGE, pull_fields(TOPIC, 0, 0)))
        answers = [client.read_answer() for _ in opaques]
    assert [answer.opaque for answer in answers] == opaques
    assert all(answer.body == found for answer in answers[1::2])
    assert {answer.code for answer in answers} == {SUCCESS}


def left(client: RawClient) -> dict[str, int]:
    table = json.loads(client.ask(GET_BROKER_RUNTIME_INFO).body)["table"]
    words = table["plainRequestsLeft"].split()
    return {reason: int(count) for reason, count in (word.split("=") for word in words)}
