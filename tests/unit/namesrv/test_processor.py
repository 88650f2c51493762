from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from broker_core.config.namesrv import NamesrvConfig
from broker_core.errors import RequestRefusedError
from broker_core.namesrv.kv_configs import KvConfigs
from broker_core.namesrv.processor import NameServerProcessor
from broker_core.namesrv.routes import RouteTable
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.storage import FileStorage
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.remoting.connection import Connection

BROKER = {
    "brokerName": "b",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "c",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
}
WRAPPER = (
    b'{"dataVersion":{"counter":3,"timestamp":17},"topicConfigTable":{"T":{"order":false,"perm":6,'
    b'"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,'
    b'"writeQueueNums":8}}}'
)
REGISTRATION = b'{"filterServerList":[],"topicConfigSerializeWrapper":' + WRAPPER + b"}"


def a_connection() -> Any:
    return Mock(remote_address="127.0.0.1:1")


class NameServerUnderTest:
    """The processor with a real table and file."""

    def __init__(self, path: Path, **switches: Any) -> None:
        config = NamesrvConfig(**switches)
        self.kept: dict[str, str] = {}
        self.kv_configs = KvConfigs(FileStorage(), path)
        self.routes = RouteTable(ManualClock(), config)
        self.processor = NameServerProcessor(
            self.routes,
            self.kv_configs,
            config,
            {"listenPort": "9876"},
            self.kept.update,
            lambda request, _: request.ext_fields.get("AccessKey") == "broker",
        )
        self.connection = a_connection()

    def ask(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        version: int = 407,
        connection: object = None,
    ) -> RemotingCommand:
        request = RemotingCommand(code, 0, 7, version, "JAVA", None, fields or {}, body)
        peer = cast("Connection", connection or self.connection)
        answer = self.processor.handlers()[code](request, peer)
        assert isinstance(answer, RemotingCommand)
        assert answer.opaque == 7
        return answer

    def register(self, fields: dict[str, str] | None = None, body: bytes = REGISTRATION) -> None:
        answer = self.ask(RequestCode.REGISTER_BROKER, {**BROKER, **(fields or {})}, body)
        assert answer.code == ResponseCode.SUCCESS


@pytest.fixture
def name_server(tmp_path: Path) -> NameServerUnderTest:
    return NameServerUnderTest(tmp_path / "kvConfig.json")


def test_a_route_uses_the_dialect_of_the_clients_version(
    name_server: NameServerUnderTest,
) -> None:
    name_server.register()

    def route(version: int, **fields: str) -> bytes:
        answer = name_server.ask(105, {"topic": "T", **fields}, version=version)
        assert answer.code == ResponseCode.SUCCESS
        return answer.body

    assert b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in route(401)
    assert b'"brokerAddrs":{0:"10.0.0.1:10911"}' in route(400)
    assert b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in route(317, acceptStandardJsonOnly="true")
    assert b" " not in route(317)


def test_an_unknown_topic_has_no_route(name_server: NameServerUnderTest) -> None:
    answer = name_server.ask(105, {"topic": "X"})

    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert (answer.remark or "").startswith(
        "No topic route info in name server for the topic: X\nSee "
    )


@pytest.mark.parametrize("is_told", [True, False])
def test_order_queues_are_reported_when_that_is_enabled(tmp_path: Path, is_told: bool) -> None:
    name_server = NameServerUnderTest(tmp_path / "kv.json", order_message_enable=is_told)
    name_server.kv_configs.put("ORDER_TOPIC_CONFIG", "T", "b:8")
    name_server.register()

    body = name_server.ask(105, {"topic": "T"}).body

    assert (b'"orderTopicConf":"b:8"' in body) is is_told


def test_a_registration_is_answered_with_the_order_topics(
    name_server: NameServerUnderTest,
) -> None:
    assert name_server.ask(103, BROKER, REGISTRATION).body == b""
    name_server.kv_configs.put("ORDER_TOPIC_CONFIG", "T", "b:8")

    assert name_server.ask(103, BROKER, REGISTRATION).body == b'{"table":{"T":"b:8"}}'


def test_a_slave_learns_its_masters_address(name_server: NameServerUnderTest) -> None:
    name_server.register()

    slave = {**BROKER, "brokerId": "1", "brokerAddr": "10.0.0.2:10911"}

    assert name_server.ask(103, slave, REGISTRATION).ext_fields == {
        "haServerAddr": "10.0.0.1:10912",
        "masterAddr": "10.0.0.1:10911",
    }


def test_there_are_four_forms_of_registration(name_server: NameServerUnderTest) -> None:
    crc32 = str(zlib.crc32(REGISTRATION) & 0x7FFFFFFF)
    name_server.register({"bodyCrc32": crc32, "compressed": "false"})
    assert name_server.routes.topics() == ["T"]
    name_server.register({"brokerName": "empty", "brokerAddr": "10.0.0.5:10911"}, b"")
    old = name_server.ask(
        103, {**BROKER, "brokerName": "old", "brokerAddr": "10.0.0.6:10911"}, WRAPPER, version=36
    )

    assert old.code == ResponseCode.SUCCESS
    route = name_server.routes.route("T")
    assert route is not None
    assert [each.broker_name for each in route.queue_datas] == ["b", "old"]


@pytest.mark.parametrize(
    ("fields", "body", "remark"),
    [
        ({"bodyCrc32": "1"}, REGISTRATION, "crc32 not match"),
        ({}, b"{", "cannot be read"),
        ({"compressed": "true"}, REGISTRATION, "cannot be read"),
        ({"brokerId": "x"}, REGISTRATION, "brokerId is not a number"),
        ({"brokerId": "-5"}, REGISTRATION, "brokerId"),
        ({"brokerId": str(1 << 31)}, REGISTRATION, "brokerId"),
        ({"brokerAddr": "192.0.0.192:10911"}, REGISTRATION, "metadata service"),
        ({"brokerAddr": "169.254.169.254.nip.io:10911"}, REGISTRATION, "metadata service"),
        ({"brokerAddr": "0.0.0.0:10911"}, REGISTRATION, "clients cannot connect to"),
        ({"brokerAddr": "10.0.0.1"}, REGISTRATION, "clients cannot connect to"),
        ({"brokerAddr": "10.0.0.1:70000"}, REGISTRATION, "clients cannot connect to"),
        ({"brokerAddr": ":10911"}, REGISTRATION, "clients cannot connect to"),
        (
            {"brokerAddr": "[::ffff:169.254.169.254]:10911"},
            REGISTRATION,
            "clients cannot connect to",
        ),
        ({"haServerAddr": "10.0.0.1:22"}, REGISTRATION, "clients cannot connect to"),
        ({}, b'{"filterServerList":["169.254.169.254:8080"]}', "clients cannot connect to"),
    ],
)
def test_an_invalid_registration_is_rejected(
    name_server: NameServerUnderTest, fields: dict[str, str], body: bytes, remark: str
) -> None:
    with pytest.raises(RequestRefusedError, match=remark) as refusal:
        name_server.ask(103, {**BROKER, **fields}, body)

    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert name_server.routes.topics() == []


def test_a_broker_that_unregisters_is_gone(name_server: NameServerUnderTest) -> None:
    name_server.register()

    assert name_server.ask(104, BROKER).code == ResponseCode.SUCCESS
    assert name_server.ask(104, BROKER).code == ResponseCode.SUCCESS

    assert name_server.ask(206).body == b'{"topicList":[]}'
    assert name_server.ask(106).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


def test_a_stranger_neither_takes_over_nor_ends_a_brokers_route(
    name_server: NameServerUnderTest,
) -> None:
    name_server.register()
    stranger = a_connection()
    elsewhere = {**BROKER, "brokerAddr": "10.0.0.66:10911"}

    for code, fields in ((103, elsewhere), (104, BROKER)):
        with pytest.raises(RequestRefusedError) as refusal:
            name_server.ask(code, fields, REGISTRATION, connection=stranger)
        assert refusal.value.code == ResponseCode.NO_PERMISSION

    route = name_server.routes.route("T")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911"}


def test_a_signed_registration_moves_a_broker(name_server: NameServerUnderTest) -> None:
    name_server.register()
    signed = {**BROKER, "AccessKey": "broker", "brokerAddr": "10.0.0.9:911"}

    assert name_server.ask(103, signed, REGISTRATION, connection=a_connection()).code == 0
    route = name_server.routes.route("T")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.9:911"}
    assert name_server.ask(104, signed, connection=a_connection()).code == 0
    assert name_server.routes.topics() == []


def test_a_version_query_on_a_new_connection_requests_a_registration(
    name_server: NameServerUnderTest,
) -> None:
    name_server.register()
    known = b'{"counter":3,"timestamp":17}'

    assert name_server.ask(322, BROKER, known).ext_fields == {"changed": "false"}
    answer = name_server.ask(322, BROKER, known, connection=a_connection())

    assert answer.ext_fields == {"changed": "true"}


def test_a_data_version_is_compared(name_server: NameServerUnderTest) -> None:
    same, other = b'{"counter":3,"timestamp":17}', b'{"counter":4,"timestamp":17}'
    unknown = name_server.ask(322, BROKER, same)
    assert (unknown.ext_fields, unknown.body) == ({"changed": "true"}, b"")
    name_server.register()

    assert name_server.ask(322, BROKER, same).ext_fields == {"changed": "false"}
    changed = name_server.ask(322, BROKER, other)
    assert (changed.ext_fields, changed.body) == ({"changed": "true"}, same)
    with pytest.raises(RequestRefusedError, match="not a DataVersion"):
        name_server.ask(322, BROKER, b"[]")


def test_kv_configs_are_stored_read_listed_and_deleted(name_server: NameServerUnderTest) -> None:
    entry = {"namespace": "n", "key": "k"}

    missing = name_server.ask(101, entry)
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: n Key: k")
    assert name_server.ask(219, entry).code == ResponseCode.QUERY_NOT_FOUND
    name_server.ask(100, {**entry, "value": "v"})
    assert name_server.ask(101, entry).ext_fields == {"value": "v"}
    assert name_server.ask(219, entry).body == b'{"table":{"k":"v"}}'
    name_server.ask(102, entry)
    assert name_server.ask(101, entry).code == ResponseCode.QUERY_NOT_FOUND
    with pytest.raises(RequestRefusedError, match="namespace or key is null"):
        name_server.ask(100, {"namespace": "n", "value": "v"})


def test_permissions_are_wiped_and_added(name_server: NameServerUnderTest) -> None:
    name_server.register()

    assert name_server.ask(205, {"brokerName": "b"}).ext_fields == {"wipeTopicCount": "1"}
    assert b'"perm":4' in name_server.ask(105, {"topic": "T"}).body
    assert name_server.ask(327, {"brokerName": "b"}).ext_fields == {"addTopicCount": "1"}
    assert b'"perm":6' in name_server.ask(105, {"topic": "T"}).body
    assert name_server.ask(205, {"brokerName": "x"}).ext_fields == {"wipeTopicCount": "0"}


def test_topics_are_listed_in_every_order(name_server: NameServerUnderTest) -> None:
    name_server.register()

    assert name_server.ask(206).body == b'{"topicList":["T"]}'
    assert name_server.ask(224, {"cluster": "c"}).body == b'{"topicList":["T"]}'
    assert name_server.ask(224, {"cluster": "x"}).body == b'{"topicList":[]}'
    assert name_server.ask(304).body == (b'{"brokerAddr":"10.0.0.1:10911","topicList":["c","b"]}')
    for code in (311, 312, 313):
        assert name_server.ask(code).body == b'{"topicList":[]}'
    name_server.ask(216, {"topic": "T", "clusterName": "x"})
    assert name_server.ask(206).body == b'{"topicList":["T"]}'
    name_server.ask(216, {"topic": "T"})
    assert name_server.ask(206).body == b'{"topicList":[]}'


SHOWN = {
    "deleteTopicWithBrokerRegistration": "false",
    "enableAllTopicList": "true",
    "enableTopicList": "true",
    "listenPort": "9876",
    "orderMessageEnable": "false",
    "productEnvName": "center",
    "returnOrderTopicConfigToBroker": "true",
}


def shown(name_server: NameServerUnderTest) -> dict[str, str]:
    text = name_server.ask(RequestCode.GET_NAMESRV_CONFIG).body.decode()
    return dict(line.split("=", 1) for line in text.splitlines())


def change(name_server: NameServerUnderTest, text: str) -> None:
    answer = name_server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode())
    assert answer.code == ResponseCode.SUCCESS


def test_a_switch_can_be_changed_shown_and_kept(name_server: NameServerUnderTest) -> None:
    assert shown(name_server) == SHOWN

    change(name_server, "productEnvName=test\norderMessageEnable=TRUE\nlistenPort=9876\n")

    assert shown(name_server) == SHOWN | {"productEnvName": "test", "orderMessageEnable": "true"}
    assert name_server.kept == {"productEnvName": "test", "orderMessageEnable": "TRUE"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *(
            (f"{key}=/tmp/x", ResponseCode.NO_PERMISSION)
            for key in ("kvConfigPath", "rocketmqHome")
        ),
        ("configStorePath=/tmp/x", ResponseCode.NO_PERMISSION),
        ("listenPort=1", ResponseCode.NO_PERMISSION),
        ("clusterTest=true", ResponseCode.NO_PERMISSION),
        ("fileReservedTime=1", ResponseCode.NO_PERMISSION),
        ("enableTopicList=maybe", ResponseCode.SYSTEM_ERROR),
        ("productEnvName=a b", ResponseCode.SYSTEM_ERROR),
    ],
)
def test_any_other_key_and_an_invalid_value_change_nothing(
    name_server: NameServerUnderTest, text: str, code: int
) -> None:
    with pytest.raises(RequestRefusedError) as refusal:
        change(name_server, f"orderMessageEnable=true\n{text}\n")

    assert refusal.value.code == code
    assert shown(name_server) == SHOWN
    assert name_server.kept == {}


def test_order_queues_are_reported_from_the_change_on(name_server: NameServerUnderTest) -> None:
    name_server.kv_configs.put("ORDER_TOPIC_CONFIG", "T", "b:8")
    name_server.register()
    assert b"orderTopicConf" not in name_server.ask(105, {"topic": "T"}).body

    change(name_server, "orderMessageEnable=true")
    assert b'"orderTopicConf":"b:8"' in name_server.ask(105, {"topic": "T"}).body

    change(name_server, "orderMessageEnable=false")
    assert b"orderTopicConf" not in name_server.ask(105, {"topic": "T"}).body


def test_a_broker_receives_no_order_topics_when_they_are_off(
    name_server: NameServerUnderTest,
) -> None:
    name_server.kv_configs.put("ORDER_TOPIC_CONFIG", "T", "b:8")

    change(name_server, "returnOrderTopicConfigToBroker=false")

    assert name_server.ask(103, BROKER, REGISTRATION).body == b""
    assert name_server.processor.order_topics() == {}


@pytest.mark.parametrize("is_on", [True, False])
def test_an_unregistered_topic_is_removed_if_that_is_enabled(
    name_server: NameServerUnderTest, is_on: bool
) -> None:
    name_server.register()
    change(name_server, f"deleteTopicWithBrokerRegistration={str(is_on).lower()}")

    name_server.register(body=REGISTRATION.replace(b'"T"', b'"U"').replace(b":3,", b":4,"))
    name_server.register({"brokerName": "other", "brokerAddr": "10.0.0.9:10911"}, b"")

    assert name_server.routes.topics() == (["U"] if is_on else ["T", "U"])


@pytest.mark.parametrize(
    ("key", "codes"), [("enableAllTopicList", (206,)), ("enableTopicList", (224, 311, 312, 313))]
)
def test_lists_are_rejected_when_they_are_off(
    name_server: NameServerUnderTest, key: str, codes: tuple[int, ...]
) -> None:
    change(name_server, f"{key}=false")

    for code in (206, 224, 304, 311, 312, 313):
        if code in codes:
            with pytest.raises(RequestRefusedError, match="disable") as refusal:
                name_server.ask(code, {"cluster": "c"})
            assert refusal.value.code == ResponseCode.SYSTEM_ERROR
        else:
            assert name_server.ask(code, {"cluster": "c"}).code == ResponseCode.SUCCESS
