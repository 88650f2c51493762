"""GET_BROKER_HA_STATUS: the status of a pair."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.client import Client, json_body
from tests.support.pair import ha_address, running_slave, until_caught_up
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker


@asynccontextmanager
async def client_of(broker: Broker) -> AsyncIterator[Client]:
    client = Client(f"127.0.0.1:{broker.listen_port}")
    try:
        yield client
    finally:
        await client.shutdown()


async def status(broker: Broker) -> dict[str, Any]:
    async with client_of(broker) as client:
        answer = await client.ask(RequestCode.GET_BROKER_HA_STATUS)
    assert answer.code == ResponseCode.SUCCESS
    body: dict[str, Any] = json_body(answer)
    return body


async def test_a_master_without_slaves_works(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as master:
        report = await status(master)

        assert report["master"] is True
        assert (report["haConnectionInfo"], report["inSyncSlaveNums"]) == ([], 0)


async def test_a_pair_reports_which_member_has_which_data(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "m") as master,
        running_slave(tmp_path / "s", master) as slave,
        client_of(master) as client,
    ):
        await client.send("T")
        await until_caught_up(master, slave)
        end = master.storage.store.max_commit_log_offset
        await until_async(
            lambda: (
                [one.acknowledged_offset for one in master.replication.ha_master.connections()]
                == [end]
            ),
            "the slave's report",
        )

        of_master, of_slave = await status(master), await status(slave)

    (link,) = of_master["haConnectionInfo"]
    assert of_master["masterCommitLogMaxOffset"] == end
    assert of_master["inSyncSlaveNums"] == 1
    assert (link["slaveAckOffset"], link["diff"], link["behindMillis"]) == (end, 0, 0)
    assert link["inSync"] is True
    client_info = of_slave["haClientRuntimeInfo"]
    assert of_slave["master"] is False
    assert (of_slave["brokerRole"], of_slave["brokerId"]) == ("SLAVE", 1)
    assert (client_info["activated"], client_info["maxOffset"]) == (True, end)
    assert client_info["masterAddr"] == ha_address(master)
    # By this address a page finds the slave among the master's connections.
    assert client_info["localAddr"] == link["addr"]


async def test_a_slave_without_a_master_explains_why(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path, brokerRole="SLAVE", brokerId=1, haMasterAddress="127.0.0.1:1"
    ) as slave:
        await until_async(
            lambda: slave.replication.ha_slave.state().failures > 0, "the first attempt's end"
        )
        report = (await status(slave))["haClientRuntimeInfo"]

        assert report["activated"] is False
        assert "no connection" in report["reason"]


async def runtime_info(broker: Broker) -> dict[str, str]:
    async with client_of(broker) as client:
        answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert answer.code == ResponseCode.SUCCESS
    table: dict[str, str] = json_body(answer)["table"]
    return table


async def test_a_pairs_runtime_info_reports_each_members_delay(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "m") as master,
        running_slave(tmp_path / "s", master) as slave,
        client_of(master) as client,
    ):
        slave.metadata_sync.follow(f"127.0.0.1:{master.listen_port}")
        await client.send("T")
        await until_caught_up(master, slave)
        await until_async(
            lambda: (
                [each.behind_bytes for each in master.replication.ha_master.connections()] == [0]
            ),
            "the slave's report",
        )
        await slave.metadata_sync.sync()
        of_master, of_slave = await runtime_info(master), await runtime_info(slave)

    link = slave_rows(of_master)
    assert (of_master["brokerRole"], of_master["brokerId"]) == ("ASYNC_MASTER", "0")
    assert (of_master["haSlaveNums"], of_master["haInSyncSlaveNums"]) == ("1", "1")
    assert [row.partition(", last contact")[0] for row in link] == ["in sync, lag 0 B 0.0 s"]
    assert (of_slave["brokerRole"], of_slave["brokerId"]) == ("SLAVE", "1")
    assert of_slave["haMasterAddress"] == ha_address(master)
    assert of_slave["haState"] == "following"
    assert of_slave["haLag"] == "0 B 0.0 s"
    assert of_slave["haLastContact"].endswith(" s ago")
    assert not slave_rows(of_slave)


async def test_runtime_info_of_a_slave_without_its_master_explains_why(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path, brokerRole="SLAVE", brokerId=1, haMasterAddress="127.0.0.1:1"
    ) as slave:
        await until_async(
            lambda: slave.replication.ha_slave.state().failures > 0, "the first attempt's end"
        )
        report = await runtime_info(slave)

    assert "no connection" in report["haReason"]
    assert not {"haLag", "haLastContact", "haSlaveNums"} & report.keys()


def slave_rows(table: dict[str, str]) -> list[str]:
    return [value for key, value in table.items() if key.startswith("haSlave_")]
