"""Recorded requests of our own programs: a broker accepts each of them once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker_core.clock import SystemClock
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.fresh_signature import FreshSigner
from broker_core.protocol.signature import Credentials
from broker_core.remoting.client import RemotingClient
from tests.support.broker import configuration_for, running_broker
from tests.support.client import Client
from tests.support.raw_remoting import RawClient, topic_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker
    from tests.support.raw_remoting import Answer

SECRET = "12345678"
ACCOUNTS: list[dict[str, Any]] = [
    {"accessKey": "administrator", "admin": True},
    {"accessKey": "console", "admin": True, "requireFreshSignature": True},
    {"accessKey": "other-broker", "broker": True, "requireFreshSignature": True},
]
CONSOLE = Credentials("console", SECRET)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    write_accounts(tmp_path)
    async with running_broker(tmp_path, aclEnable="true") as running:
        yield running


def write_accounts(directory: Path) -> None:
    path = directory / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    accounts = [{**each, "secretKey": SECRET} for each in ACCOUNTS]
    path.write_text(yaml.safe_dump({"accounts": accounts}))


def recorded(
    code: int, fields: dict[str, str], credentials: Credentials = CONSOLE, *, age_ms: int = 0
) -> bytes:
    """Return the frame of a request as one of our programs signs it."""
    request = RemotingCommand.request(code, fields)
    request.opaque = 1
    FreshSigner(credentials, lambda: SystemClock().now_ms() - age_ms).sign(request)
    return request.encode()


async def sent(port: int, frame: bytes) -> Answer:
    def run() -> Answer:
        with RawClient(port) as client:
            client.send_bytes(frame)
            return client.read_answer()

    return await asyncio.to_thread(run)


def ports(broker: Broker) -> list[int]:
    name_server = broker.naming.name_server
    assert name_server is not None
    return [broker.listen_port, broker.listen_port - 2, name_server.port]


async def test_the_same_frame_is_rejected_the_second_time_at_every_port(broker: Broker) -> None:
    frame = recorded(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("T"))

    first = await sent(broker.listen_port, frame)
    again = [await sent(port, frame) for port in ports(broker)[:2]]

    assert first.code == ResponseCode.SUCCESS
    for answer in again:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark.endswith(
            "Check trebuchetSignature failed for accessKey=console: the request was received "
            "before; sign each attempt again"
        )


async def test_a_registration_passes_once(broker: Broker) -> None:
    fields = {
        "brokerName": "broker-x",
        "brokerAddr": "127.0.0.1:20911",
        "clusterName": "DefaultCluster",
        "haServerAddr": "127.0.0.1:20912",
        "brokerId": "0",
    }
    account = Credentials("other-broker", SECRET)
    frame = recorded(RequestCode.REGISTER_BROKER, fields, account)
    port = ports(broker)[2]

    first, again = await sent(port, frame), await sent(port, frame)

    assert first.code == ResponseCode.SUCCESS
    assert again.remark.endswith("the request was received before; sign each attempt again")


async def test_a_restart_admits_no_replayed_request(tmp_path: Path) -> None:
    write_accounts(tmp_path)
    frame = recorded(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("T"), age_ms=1)

    async with running_broker(tmp_path, aclEnable="true") as restarted:
        answer = await sent(restarted.listen_port, frame)

    assert "before the broker started" in answer.remark


async def test_administrators_need_fresh_signatures_if_the_key_is_set(tmp_path: Path) -> None:
    write_accounts(tmp_path)
    keys = {"aclEnable": "true", "adminsRequireFreshSignature": "true"}
    async with running_broker(tmp_path, clock=None, storage=None, **keys) as broker:
        answers = []
        administrator = Credentials("administrator", SECRET)
        for signer in (administrator, FreshSigner(administrator, SystemClock().now_ms)):
            client = Client(f"127.0.0.1:{broker.listen_port}")
            client.remoting = RemotingClient(signer=signer)
            answers.append(await client.ask(RequestCode.GET_BROKER_CONFIG))
            await client.shutdown()

    ordinary, fresh = answers
    assert "adminsRequireFreshSignature" in (ordinary.remark or "")
    assert fresh.code == ResponseCode.SUCCESS


async def test_our_own_registration_has_a_fresh_signature(tmp_path: Path, broker: Broker) -> None:
    """A broker registers at a name server whose account only accepts fresh signatures."""
    keys = {
        "brokerName": "broker-b",
        "embeddedNamesrv": "false",
        "namesrvAddr": f"127.0.0.1:{ports(broker)[2]}",
        "namesrvAccessKey": "other-broker",
        "namesrvSecretKey": SECRET,
    }
    async with running_broker(tmp_path / "b", clock=None, storage=None, **keys):
        client = Client(f"127.0.0.1:{ports(broker)[2]}")
        answer = await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        await client.shutdown()

    assert set(java_json.decode(answer.body)["brokerAddrTable"]) == {"broker-a", "broker-b"}


def test_the_key_is_off_by_default(tmp_path: Path) -> None:
    assert not configuration_for(tmp_path).broker.admins_require_fresh_signature
