"""adminListenAddress: administration works there, and is rejected on the public ports."""

from __future__ import annotations

import socket
import stat
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker_core.access.rules import RULES
from broker_core.errors import RemotingError
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.signature import Credentials
from broker_core.remoting.client import RemotingClient
from tests.support.broker import configuration_for, running_broker
from tests.support.certificates import certificate
from tests.support.client import Client, json_body
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker

SECRET = "12345678"
ADMINISTRATIVE = sorted(
    code for code, rule in RULES.items() if rule.is_admin and not rule.is_broker
)
ONLY_5_X = {
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
}


@pytest.fixture
def listener() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
async def broker(tmp_path: Path, listener: str) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, adminListenAddress=listener) as running:
        yield running


@asynccontextmanager
async def client_of(address: str, access_key: str | None = None) -> AsyncIterator[Client]:
    client = Client(address)
    if access_key is not None:
        client.remoting = RemotingClient(signer=Credentials(access_key, SECRET))
    try:
        yield client
    finally:
        await client.shutdown()


def public_ports(broker: Broker) -> list[str]:
    return [f"127.0.0.1:{port}" for port in (broker.listen_port, broker.listen_port - 2)]


async def make_topic(client: Client, topic: str = "T") -> int:
    answer = await client.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=topic,
        defaultTopic="TBW102",
        topicFilterType="SINGLE_TAG",
        topicSysFlag="0",
        order="false",
        readQueueNums=4,
        writeQueueNums=4,
        perm=6,
    )
    return answer.code


@pytest.mark.parametrize("code", ADMINISTRATIVE, ids=lambda code: code.name)
async def test_public_ports_reject_administration_and_name_the_right_address(
    broker: Broker, listener: str, code: RequestCode
) -> None:
    async with client_of(listener) as admin:
        served = await admin.ask(code)
    assert "adminListenAddress" not in (served.remark or "")
    assert broker.naming.name_server is not None
    is_name_servers = code in broker.naming.name_server.handlers()
    name_server = f"127.0.0.1:{broker.configuration.broker.namesrv_listen_port}"
    for address in [name_server] if is_name_servers else public_ports(broker):
        async with client_of(address) as client:
            answer = await client.ask(code)

        if code in ONLY_5_X:
            assert answer.code == served.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            continue
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == (
            f"request code {code} is administrative and isn't allowed on this port; use the "
            f"administration listener at {listener} (adminListenAddress)"
        )


async def test_the_listener_administers_and_public_ports_continue_to_serve(
    broker: Broker, listener: str
) -> None:
    async with client_of(listener) as admin:
        assert await make_topic(admin, "made") == ResponseCode.SUCCESS
        shown = await admin.ask(RequestCode.GET_BROKER_CONFIG)
        assert f"adminListenAddress={listener}" in shown.body.decode()
    for address in public_ports(broker):
        async with client_of(address) as client:
            assert (await client.send("made")).code == ResponseCode.SUCCESS
            assert await make_topic(client) == ResponseCode.NO_PERMISSION


async def test_a_tool_with_the_listener_as_its_name_server_is_directed_to_it(
    broker: Broker, listener: str
) -> None:
    public = f"127.0.0.1:{broker.listen_port}"
    namesrv = f"127.0.0.1:{broker.configuration.broker.namesrv_listen_port}"
    async with client_of(public) as client:
        await client.send("T")

    for address, leads_to in ((listener, listener), (namesrv, public)):
        async with client_of(address) as client:
            cluster = json_body(await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO))
            route = json_body(await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T"))
        addresses = cluster["brokerAddrTable"]["broker-a"]["brokerAddrs"]
        assert addresses == route["brokerDatas"][0]["brokerAddrs"] == {"0": leads_to}


async def test_no_broker_registers_at_the_listener(broker: Broker, listener: str) -> None:
    async with client_of(listener) as client:
        answer = await client.ask(RequestCode.REGISTER_BROKER)

    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_without_the_key_the_broker_serves_administration_itself(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for address in public_ports(broker):
            async with client_of(address) as client:
                assert await make_topic(client) == ResponseCode.SUCCESS


async def test_the_listener_also_needs_an_account(tmp_path: Path, listener: str) -> None:
    accounts = tmp_path / "conf" / "plain_acl.yml"
    accounts.parent.mkdir()
    table = [
        {"accessKey": "administrator", "secretKey": SECRET, "admin": True},
        {"accessKey": "application", "secretKey": SECRET, "defaultTopicPerm": "PUB|SUB"},
    ]
    accounts.write_text(yaml.safe_dump({"accounts": table}))
    async with running_broker(tmp_path, aclEnable="true", adminListenAddress=listener) as broker:
        codes = []
        for account in (None, "application", "administrator"):
            async with client_of(listener, account) as client:
                codes.append(await make_topic(client))
        async with client_of(public_ports(broker)[0], "administrator") as client:
            codes.append(await make_topic(client))

    refused = ResponseCode.SYSTEM_ERROR
    assert codes == [refused, refused, ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION]


async def test_the_listener_has_the_same_tls_as_the_ports(tmp_path: Path, listener: str) -> None:
    made, key = certificate(tmp_path, "server")
    keys: dict[str, Any] = {
        "adminListenAddress": listener,
        "useTLS": "false",
        "tls.server.mode": "enforcing",
        "tls.server.certPath": made,
        "tls.server.keyPath": key,
    }
    async with running_broker(tmp_path, **keys):
        async with client_of(listener) as client:
            with pytest.raises(RemotingError):
                await make_topic(client)


async def test_a_unix_socket_serves_this_user_and_is_removed_with_the_broker(
    tmp_path: Path,
) -> None:
    path = tmp_path / "admin.sock"
    # The socket of an earlier, killed process.
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with running_broker(tmp_path, adminListenAddress=path) as broker:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with client_of(str(path)) as admin:
            assert await make_topic(admin) == ResponseCode.SUCCESS
            assert (await admin.send("T")).code == ResponseCode.SUCCESS
            beat = await admin.heartbeat(consumer_groups={"g": {"T": "*"}})
            assert beat.code == ResponseCode.SUCCESS
        async with client_of(public_ports(broker)[0]) as client:
            refused = await client.ask(RequestCode.GET_BROKER_CONFIG)
        assert f"listener at {path} (adminListenAddress)" in (refused.remark or "")

    assert not path.exists()


async def test_a_unix_socket_in_use_and_a_file_are_left_alone(tmp_path: Path) -> None:
    used, file = tmp_path / "used.sock", tmp_path / "file"
    file.write_text("kept")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(used))
        other.listen()
        for path in (used, file):
            words = f"administration listener cannot listen on {path}: address already in use"
            with pytest.raises(RemotingError, match=words):
                async with running_broker(tmp_path, adminListenAddress=path):
                    pass
        assert used.is_socket()
    assert file.read_text() == "kept"


def test_the_listener_is_off_by_default(tmp_path: Path) -> None:
    assert not configuration_for(tmp_path).broker.admin_listen_address
