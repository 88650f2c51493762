"""A name server whose configuration is changed over the wire, then restarted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.ports import accepts
from tests.support.raw_remoting import SUCCESS, RawClient, create_topic
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

PUT_KV_CONFIG = 100
GET_ROUTE = 105
UPDATE_NAMESRV_CONFIG = 318
GET_NAMESRV_CONFIG = 319
ORDERED = b'"orderTopicConf":"broker-a:4"'


def ask(port: int, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> bytes:
    with RawClient(port) as client:
        answer = client.ask(code, fields, body)
    assert answer.code == SUCCESS, answer
    return answer.body


def shown(port: int) -> list[str]:
    return ask(port, GET_NAMESRV_CONFIG).decode().splitlines()


def test_a_switch_of_the_embedded_name_server_survives_a_restart(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.file.write_text(broker.file.read_text() + "# ours\norderMessageEnable=false\n")
    broker.start()
    create_topic(broker.port, "T")
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
    ask(broker.namesrv_port, PUT_KV_CONFIG, order)
    assert ORDERED not in ask(broker.namesrv_port, GET_ROUTE, {"topic": "T"})

    ask(broker.namesrv_port, UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n")
    assert ORDERED in ask(broker.namesrv_port, GET_ROUTE, {"topic": "T"})
    assert broker.stop() == 0
    broker.start()
    try:
        assert "orderMessageEnable=true" in shown(broker.namesrv_port)
        assert ORDERED in ask(broker.namesrv_port, GET_ROUTE, {"topic": "T"})
        assert broker.file.read_text().endswith("# ours\norderMessageEnable=true\n")
    finally:
        broker.stop()


@pytest.mark.parametrize("has_file_key", [True, False])
def test_a_switch_of_a_standalone_name_server_survives_a_restart(
    tmp_path: Path, has_file_key: bool
) -> None:
    alone = BrokerProcess(tmp_path, kvConfigPath=tmp_path / "kvConfig.json")
    alone.module = ["broker_core", "namesrv"]
    if has_file_key:
        alone.file.write_text(alone.file.read_text() + "productEnvName=before\n")
    for expected in ("before" if has_file_key else "center", "after"):
        alone.launch()
        until(lambda: accepts(alone.port), "the name server to listen")
        assert f"productEnvName={expected}" in shown(alone.port)
        ask(alone.port, UPDATE_NAMESRV_CONFIG, body=b"productEnvName=after\n")
        assert "productEnvName=after" in shown(alone.port)
        assert alone.stop() == 0


def test_only_a_name_server_asks_for_accounts(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts.yml"
    accounts.write_text("accounts: []\nglobalWhiteRemoteAddresses: []\n")
    alone = BrokerProcess(
        tmp_path, kvConfigPath=tmp_path / "kvConfig.json", aclEnable="true", aclFile=accounts
    )
    alone.module = ["broker_core", "namesrv"]
    alone.launch()
    try:
        until(lambda: accepts(alone.port), "the name server to listen")
        order = {"namespace": "N", "key": "T", "value": "V"}
        with RawClient(alone.port) as client:
            refused = client.ask(PUT_KV_CONFIG, order)
            shows = client.ask(GET_NAMESRV_CONFIG)
        accounts.write_text("accounts: []\nglobalWhiteRemoteAddresses: [127.0.0.1]\n")

        def is_let_in() -> bool:
            with RawClient(alone.port) as client:
                return client.ask(PUT_KV_CONFIG, order).code == SUCCESS

        until(is_let_in, "the changed accounts to take effect")
    finally:
        assert alone.stop() == 0

    assert refused.code == 1
    assert "No accessKey is configured" in (refused.remark or "")
    assert shows.code == SUCCESS
