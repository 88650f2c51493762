"""RocketMQ 5's Python client on the gRPC port."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.formats import record
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.certificates import certificate
from tests.support.grpc_broker import serving
from tests.support.long_timeouts import PATIENCE_S
from tests.support.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.grpc_broker import Served

PROGRAM = ROOT / "tests" / "support" / "python5_client.py"


async def run(
    served: Served, home: Path, steps: str, *options: str, **environment: object
) -> list[dict[str, Any]]:
    """Return the output of the Python client's steps."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        steps,
        served.address,
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"HOME": str(home), "PATH": "", **{k: str(v) for k, v in environment.items()}},
    )
    out, errors = await asyncio.wait_for(process.communicate(), 3 * PATIENCE_S)
    assert process.returncode == 0, errors.decode()[-2000:]
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(
        tmp_path, transactionTimeOut=500, transactionCheckInterval=500, recallMessageEnable="true"
    ) as running:
        yield running


async def test_a_remoting_consumer_reads_messages_from_the_python_client(
    served: Served, tmp_path: Path
) -> None:
    (sent,) = await run(served, tmp_path, "send")

    answers = [await served.client.pull("plain", queue_id=each) for each in range(4)]
    (body,) = [answer.body for answer in answers if answer.code == ResponseCode.SUCCESS]
    found = record.decode(memoryview(body))
    assert found.body == b"hello"
    assert found.uniq_key == sent["message_id"]
    assert (found.tags, found.keys) == ("A", "k1")
    assert found.properties["colour"] == "red"
    assert found.properties["PGROUP"] == "plain"


async def test_a_simple_consumer_acknowledges_and_receives_a_postponed_message_again(
    served: Served, tmp_path: Path
) -> None:
    outcomes = await run(served, tmp_path, "simple")

    assert outcomes == [
        {"bodies": ["A", "B"]},
        {"attempts": [1, 1]},
        {"again": True, "attempt": 2},
        {"left": 0},
    ]


async def test_a_fifo_group_receives_each_message_group_in_order(
    served: Served, tmp_path: Path
) -> None:
    body = java_json.encode({"groupName": "ordered_group", "consumeMessageOrderly": True})
    await served.client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)

    (outcome,) = await run(served, tmp_path, "fifo")

    assert outcome["by_group"] == {"group-0": ["0", "2", "4"], "group-1": ["1", "3", "5"]}


async def test_a_transaction_is_committed_rolled_back_or_checked(
    served: Served, tmp_path: Path
) -> None:
    outcomes = await run(served, tmp_path, "transaction")

    assert outcomes == [{"checked": "forgotten"}, {"bodies": ["committed", "forgotten"]}]


async def test_a_push_consumer_receives_a_failed_message_again(
    served: Served, tmp_path: Path
) -> None:
    outcomes = await run(served, tmp_path, "push")

    assert outcomes == [
        {"consumed": "retried", "attempt": 1},
        {"consumed": "retried", "attempt": 2},
    ]


async def test_a_delayed_message_is_delivered_on_time_and_a_recalled_one_never(
    served: Served, tmp_path: Path
) -> None:
    (outcome,) = await run(served, tmp_path, "delay")

    assert outcome["recalled"]
    answers = [await served.client.pull("delayed", queue_id=each) for each in range(4)]
    bodies = [
        record.decode(memoryview(view)).body
        for answer in answers
        if answer.code == ResponseCode.SUCCESS
        for view in records_in(answer.body)
    ]
    assert bodies == [b"delivered"]


def records_in(body: bytes) -> list[bytes]:
    """Return the records of a pull's answer."""
    found = []
    while body:
        size = int.from_bytes(body[:4])
        found.append(body[:size])
        body = body[size:]
    return found


async def test_a_client_sends_and_receives_over_tls(tmp_path: Path) -> None:
    certified, key = certificate(tmp_path, "broker")
    tls = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": certified,
        "tls.server.keyPath": key,
    }
    async with serving(tmp_path, **tls) as served:
        outcomes = await run(
            served, tmp_path, "simple", "tls", GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=certified
        )

    assert outcomes[0] == {"bodies": ["A", "B"]}
    assert outcomes[-1] == {"left": 0}
