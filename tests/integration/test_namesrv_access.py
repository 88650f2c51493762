"""Access control of the embedded name server: write and read permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker_core.access.rules import RULES
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.signature import Credentials
from broker_core.remoting.client import RemotingClient
from tests.support.broker import running_broker
from tests.support.client import Client, json_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from broker_core.broker import Broker
    from broker_core.namesrv.namesrv import NameServer

SECRET = "12345678"
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
ACCOUNTS: list[dict[str, Any]] = [
    {"accessKey": "administrator", "admin": True},
    {"accessKey": "other-broker", "broker": True},
    {"accessKey": "application", "defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "SUB"},
]
IDENTITY = {
    "brokerName": "broker-x",
    "brokerAddr": "127.0.0.1:20911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "127.0.0.1:20912",
    "brokerId": "0",
}
KV = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
REGISTRATIONS: dict[int, tuple[dict[str, Any], bytes]] = {
    RequestCode.REGISTER_BROKER: (IDENTITY, b""),
    RequestCode.UNREGISTER_BROKER: (IDENTITY, b""),
    RequestCode.QUERY_DATA_VERSION: (IDENTITY, b'{"counter":1,"timestamp":1}'),
}
CHANGES: dict[int, tuple[dict[str, Any], bytes]] = {
    **REGISTRATIONS,
    RequestCode.PUT_KV_CONFIG: (KV, b""),
    RequestCode.DELETE_KV_CONFIG: (KV, b""),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: ({"brokerName": "broker-a"}, b""),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: ({"brokerName": "broker-a"}, b""),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: ({"topic": "TBW102"}, b""),
    RequestCode.UPDATE_NAMESRV_CONFIG: ({}, b"orderMessageEnable=true\n"),
}
READS: dict[int, dict[str, Any]] = {
    RequestCode.GET_KV_CONFIG: {"namespace": "N", "key": "K"},
    RequestCode.GET_KVLIST_BY_NAMESPACE: {"namespace": "N"},
    RequestCode.GET_ROUTEINFO_BY_TOPIC: {"topic": "TBW102"},
    RequestCode.GET_BROKER_CLUSTER_INFO: {},
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {},
    RequestCode.GET_UNIT_TOPIC_LIST: {},
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: {},
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: {},
    RequestCode.GET_TOPICS_BY_CLUSTER: {"cluster": "DefaultCluster"},
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: {},
    RequestCode.GET_NAMESRV_CONFIG: {},
}


def name_server_of(broker: Broker) -> NameServer:
    assert broker.naming.name_server is not None
    return broker.naming.name_server


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    path = tmp_path / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    accounts = [{**each, "secretKey": SECRET} for each in ACCOUNTS]
    path.write_text(yaml.safe_dump({"accounts": accounts}))
    async with running_broker(tmp_path, aclEnable="true") as running:
        yield running


@pytest.fixture
async def client_of(broker: Broker) -> AsyncIterator[Callable[[str | None], Client]]:
    made: list[Client] = []

    def make(access_key: str | None) -> Client:
        client = Client(f"127.0.0.1:{name_server_of(broker).port}")
        if access_key is not None:
            client.remoting = RemotingClient(signer=Credentials(access_key, SECRET))
        made.append(client)
        return client

    yield make
    for client in made:
        await client.shutdown()


def state_of(broker: Broker) -> tuple[object, ...]:
    """Return everything that the changes could change."""
    name_server = name_server_of(broker)
    return (
        name_server.routes.cluster_info().encode(),
        name_server.routes.encoded_route("TBW102", is_standard=True),
        dict(name_server.kv_configs.namespace(KV["namespace"])),
        broker.configuration.namesrv.order_message_enable,
    )


async def test_each_request_to_the_name_server_is_restricted_or_open(
    broker: Broker,
) -> None:
    codes = set(map(int, name_server_of(broker).handlers()))

    assert codes == {*CHANGES, *READS}
    assert {code for code in codes if code in RULES} == set(CHANGES)


@pytest.mark.parametrize("access_key", [None, "application", "other-broker", "administrator"])
@pytest.mark.parametrize("code", CHANGES, ids=lambda code: RequestCode(code).name)
async def test_only_administrators_change_the_name_server_and_only_brokers_register(
    broker: Broker,
    client_of: Callable[[str | None], Client],
    code: int,
    access_key: str | None,
) -> None:
    fields, body = CHANGES[code]
    before = state_of(broker)

    answer = await client_of(access_key).ask(code, body, **fields)

    is_broker = access_key == "other-broker" and code in REGISTRATIONS
    if access_key == "administrator" or is_broker:
        assert answer.code == ResponseCode.SUCCESS
        return
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith(
        EXCEPTION + ("No accessKey" if access_key is None else "Need admin permission for ")
    )
    assert state_of(broker) == before


@pytest.mark.parametrize("code", READS, ids=lambda code: RequestCode(code).name)
async def test_anyone_may_read_the_name_server(
    client_of: Callable[[str | None], Client], code: int
) -> None:
    answer = await client_of(None).ask(code, **READS[code])

    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)


async def test_a_brokers_account_administers_nothing_on_the_broker(broker: Broker) -> None:
    client = Client(f"127.0.0.1:{broker.listen_port}")
    client.remoting = RemotingClient(signer=Credentials("other-broker", SECRET))
    sent = await client.send("T")
    config = await client.ask(RequestCode.GET_BROKER_CONFIG)
    await client.shutdown()

    assert sent.remark == EXCEPTION + "No default permission for topic:T"
    assert (config.remark or "").startswith(EXCEPTION + "Need admin permission for ")


@pytest.mark.parametrize(("secret", "is_known"), [(SECRET, True), ("another-one", False)])
async def test_a_broker_registers_with_its_account_at_another_name_server(
    broker: Broker,
    client_of: Callable[[str | None], Client],
    tmp_path: Path,
    secret: str,
    is_known: bool,
) -> None:
    keys: dict[str, Any] = {
        "brokerName": "broker-b",
        "embeddedNamesrv": "false",
        "namesrvAddr": f"127.0.0.1:{name_server_of(broker).port}",
        "namesrvAccessKey": "other-broker",
        "namesrvSecretKey": secret,
    }
    client = client_of(None)
    async with running_broker(tmp_path / "second", **keys) as second:
        running = json_body(await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO))
        shown = dict(second.configuration.items())
    stopped = json_body(await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO))

    assert ("broker-b" in running["brokerAddrTable"]) is is_known
    assert "broker-b" not in stopped["brokerAddrTable"]
    assert SECRET not in shown.values()
