"""A slave copies its master's metadata, and finds its master."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.client import Client, json_body, messages
from tests.support.pair import assert_same_stores, ha_address, until_caught_up
from tests.support.ports import free_port
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker

SECRET = "12345678"
FILES = (
    "topics",
    "subscriptionGroup",
    "consumerOffset",
    "delayOffset",
    "messageRequestMode",
    "consumerFilter",
)
FOUND_SECONDS = 30.0
"""Less than the registration interval here: only a notification can be as quick."""


def address_of(broker: Broker) -> str:
    return f"127.0.0.1:{broker.listen_port}"


def namesrv_of(broker: Broker) -> str:
    assert broker.naming.name_server is not None
    return f"127.0.0.1:{broker.naming.name_server.port}"


@asynccontextmanager
async def slave_of(directory: Path, name_server: Broker, **keys: Any) -> AsyncIterator[Broker]:
    """Run a slave that finds its master by a broker's embedded name server."""
    table = {
        "namesrvAddr": namesrv_of(name_server),
        "brokerRole": "SLAVE",
        "brokerId": 1,
        "registerNameServerPeriod": 60_000,
        **keys,
    }
    async with running_broker(directory, **table) as slave:
        yield slave


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "m") as running:
        yield running


@pytest.fixture
async def slave(tmp_path: Path, master: Broker) -> AsyncIterator[Broker]:
    async with slave_of(tmp_path / "s", master) as running:
        yield running


@pytest.fixture
async def client(master: Broker) -> AsyncIterator[Client]:
    made = Client(address_of(master))
    yield made
    await made.shutdown()


async def commit(client: Client, offset: int, group: str = "g", topic: str = "T") -> None:
    answer = await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup=group,
        topic=topic,
        queueId=0,
        commitOffset=offset,
    )
    assert answer.code == ResponseCode.SUCCESS


async def written(broker: Broker) -> dict[str, bytes]:
    """Write the configuration files of a broker and return them."""
    storage = broker.storage
    await storage.topics.writer.write()
    await storage.groups.writer.write()
    await storage.pop.modes.writer.write()
    await storage.offsets.persist_in_thread()
    await storage.filters.persist_in_thread()
    await storage.schedule.persist()
    directory = broker.foundation.config_directory
    files = {name: directory / f"{name}.json" for name in FILES}
    return {name: file.read_bytes() for name, file in files.items() if file.exists()}


async def test_a_slave_learns_where_its_master_is_and_catches_up(
    master: Broker, slave: Broker, client: Client
) -> None:
    await client.send("T")

    await until_caught_up(master, slave)

    assert slave.metadata_sync.state.master_addr == address_of(master)
    assert slave.replication.ha_slave.state().master_address == ha_address(master)


async def test_a_slaves_files_equal_its_masters(
    tmp_path: Path, master: Broker, client: Client
) -> None:
    await client.send("T")
    await client.send("T", DELAY="1")
    await client.heartbeat(consumer_groups={"g": {"T": "*"}, "h": {"T": "*"}})
    await commit(client, 1)
    await commit(client, 0, "h")
    mode = b'{"topic":"T","consumerGroup":"g","mode":"POP","popShareQueueNum":2}'
    await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, mode)
    await until_async(
        lambda: master.storage.schedule.document() == {"offsetTable": {1: 1}},
        "the delivery of the delayed message",
    )
    # After all messages; otherwise the slave's bitmaps would need the group earlier.
    await client.heartbeat(
        "filtering", consumer_groups={"f": {"T": "a > 1"}}, expression_type="SQL92"
    )
    async with slave_of(tmp_path / "s", master) as slave:
        await slave.metadata_sync.sync()

        there, here = await written(master), await written(slave)
        assert slave.metadata_sync.state.failures == {}
        assert set(there) == set(here) == set(FILES)
        assert here == there


async def test_a_slave_asks_by_itself(master: Broker, slave: Broker, client: Client) -> None:
    await client.send("made")

    await until_async(lambda: "made" in slave.storage.topics.table, "the slave's next question")
    assert slave.storage.topics.data_version == master.storage.topics.data_version


async def test_an_offset_does_not_move_back_unless_the_masters_did(
    slave: Broker, client: Client
) -> None:
    for _ in range(6):
        await client.send("T")
    await client.heartbeat(consumer_groups={"g": {"T": "*"}})
    await commit(client, 5)
    await slave.metadata_sync.sync()
    at_slave = Client(address_of(slave))
    await commit(at_slave, 9)
    await at_slave.shutdown()

    await commit(client, 6)
    await slave.metadata_sync.sync()
    assert slave.storage.offsets.query("g", "T", 0) == 9

    await commit(client, 2)
    await slave.metadata_sync.sync()
    assert slave.storage.offsets.query("g", "T", 0) == 2


async def test_a_masters_deletions_are_applied_by_the_slave(
    master: Broker, slave: Broker, client: Client
) -> None:
    await client.send("T")
    await client.heartbeat(consumer_groups={"g": {"T": "*"}})
    await commit(client, 1)
    await until_caught_up(master, slave)
    await slave.metadata_sync.sync()
    assert slave.storage.store.max_offset_in_queue("T", 0) == 1

    await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", cleanOffset="true")
    await slave.metadata_sync.sync()

    assert slave.storage.topics.find("T") is None
    assert slave.storage.groups.find("g") is None
    assert slave.storage.offsets.query("g", "T", 0) == -1
    assert slave.storage.store.queue_ids("T") == []


async def test_offsets_committed_to_the_slave_are_deleted_with_their_topic(
    master: Broker, slave: Broker, client: Client
) -> None:
    await client.send("T")
    await until_caught_up(master, slave)
    await slave.metadata_sync.sync()
    slave.storage.offsets.commit("here alone", "T", 0, 1)

    await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    await slave.metadata_sync.sync()

    assert slave.storage.offsets.query("here alone", "T", 0) == -1


async def test_a_filter_deleted_on_the_master_is_deleted_on_the_slave(
    master: Broker, slave: Broker, client: Client
) -> None:
    await client.send("T")
    for group in ("kept", "deleted"):
        await client.heartbeat(
            group, consumer_groups={group: {"T": "a > 1"}}, expression_type="SQL92"
        )
    await until_caught_up(master, slave)
    await slave.metadata_sync.sync()
    assert slave.storage.filters.find("T", "deleted") is not None

    await client.ask(RequestCode.DELETE_CONSUMER_FILTER, consumerGroup="deleted", topic="T")
    await slave.metadata_sync.sync()

    assert slave.storage.filters.find("T", "deleted") is None
    assert slave.storage.filters.find("T", "kept") is not None


async def test_a_topic_deleted_and_recreated_between_two_queries_has_its_own_messages(
    master: Broker, slave: Broker, client: Client
) -> None:
    for queue_id in (0, 1, 1, 2):
        await client.send("T", b"old", queue_id=queue_id)
    await until_caught_up(master, slave)
    await slave.metadata_sync.sync()

    await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    await client.send("T", b"new", queue_id=1)
    await client.send("T", b"new", queue_id=3)
    await until_caught_up(master, slave)
    at_slave = Client(address_of(slave))
    (pulled,) = messages(await at_slave.pull("T", queue_id=1))
    await at_slave.shutdown()
    assert pulled.body == b"new"

    await slave.metadata_sync.sync()
    assert_same_stores(master, slave)
    assert slave.storage.store.queue_ids("T") == [1, 3]


async def test_a_moved_master_is_found_without_waiting_for_the_period(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path / "n", brokerName="other") as name_server:
        keys: dict[str, Any] = {
            "namesrvAddr": namesrv_of(name_server),
            "registerNameServerPeriod": 60_000,
        }
        async with slave_of(tmp_path / "s", name_server) as slave:
            assert slave.metadata_sync.state.master_addr == ""
            for _ in range(2):
                async with running_broker(tmp_path / "m", **keys) as master:
                    await until_async(
                        lambda: slave.metadata_sync.state.master_addr == address_of(master),
                        "the slave to find the master",
                        seconds=FOUND_SECONDS,
                    )
                    await until_caught_up(master, slave)
                    ha_slave = slave.replication.ha_slave
                    assert ha_slave.state().master_address == ha_address(master)
                    last = address_of(master)
                # The current address is gone, so the previous one is tried.
                await slave.naming.registration.register_now()
                assert slave.metadata_sync.state.master_addr == last


async def test_a_fixed_ha_address_stays_and_metadata_is_still_copied(
    tmp_path: Path, master: Broker
) -> None:
    fixed = f"127.0.0.1:{free_port()}"
    async with slave_of(tmp_path / "s", master, haMasterAddress=fixed) as slave:
        assert slave.replication.ha_slave.state().master_address == fixed
        assert slave.metadata_sync.state.master_addr == address_of(master)


async def test_a_slave_that_becomes_master_registers_as_one(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "n", brokerName="other") as name_server:
        keys: dict[str, Any] = {"namesrvAddr": namesrv_of(name_server)}
        async with slave_of(tmp_path / "s", name_server) as slave:
            async with running_broker(tmp_path / "m", **keys) as master:
                await until_caught_up(master, slave)
                await slave.metadata_sync.sync()
                at_namesrv = Client(namesrv_of(name_server))
                info = json_body(await at_namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO))
                addresses = info["brokerAddrTable"]["broker-a"]["brokerAddrs"]
                assert addresses == {"0": address_of(master), "1": address_of(slave)}

            await slave.foundation.role.changed("ASYNC_MASTER")

            routes = name_server.naming.name_server
            assert routes is not None
            await until_async(
                lambda: routes.routes.master_of("broker-a").master_addr == address_of(slave),
                "the new master to register",
            )
            info = json_body(await at_namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO))
            addresses = info["brokerAddrTable"]["broker-a"]["brokerAddrs"]
            assert addresses == {"0": address_of(slave)}
            await at_namesrv.shutdown()


async def test_both_may_have_their_own_name_server(tmp_path: Path) -> None:
    """The set can be found while either is up."""
    ports = [free_port(), free_port()]
    keys: list[dict[str, Any]] = [
        {"namesrvListenPort": own, "embeddedNamesrv": "true", "namesrvAddr": f"127.0.0.1:{other}"}
        for own, other in (ports, reversed(ports))
    ]
    async with (
        running_broker(tmp_path / "m", **keys[0]) as master,
        running_broker(tmp_path / "s", brokerRole="SLAVE", brokerId=1, **keys[1]) as slave,
    ):
        await master.naming.registration.register_now()
        for broker in (master, slave):
            client = Client(namesrv_of(broker))
            info = json_body(await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO))
            addresses = info["brokerAddrTable"]["broker-a"]["brokerAddrs"]
            assert addresses == {"0": address_of(master), "1": address_of(slave)}
            await client.shutdown()
        assert slave.metadata_sync.state.master_addr == address_of(master)


def write_accounts(directory: Path) -> None:
    path = directory / "conf" / "plain_acl.yml"
    path.parent.mkdir(parents=True)
    accounts = [
        {"accessKey": "follower", "secretKey": SECRET, "broker": True},
        {"accessKey": "stranger", "secretKey": SECRET, "defaultTopicPerm": "PUB|SUB"},
    ]
    path.write_text(yaml.safe_dump({"accounts": accounts}))


@pytest.mark.parametrize(
    ("account", "refused"),
    [
        ("follower", set()),
        ("stranger", {"consumer offsets", "delay offsets", "request modes", "consumer filters"}),
        (
            "",
            {
                "topics",
                "consumer offsets",
                "delay offsets",
                "subscription groups",
                "request modes",
                "consumer filters",
                "the ends of the log",
            },
        ),
    ],
)
async def test_requests_to_a_master_with_accounts_are_signed(
    tmp_path: Path, account: str, refused: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    write_accounts(tmp_path / "m")
    keys: dict[str, Any] = {}
    if account:
        keys = {"namesrvAccessKey": account, "namesrvSecretKey": SECRET}
    async with (
        running_broker(tmp_path / "m", aclEnable="true") as master,
        slave_of(tmp_path / "s", master, **keys) as slave,
    ):
        topics = dict(slave.storage.topics.table)
        master.storage.topics.touch()
        # Without the right account the name server doesn't return it either.
        slave.metadata_sync.follow(address_of(master))

        await slave.metadata_sync.sync()

        assert set(slave.metadata_sync.state.failures) == refused
        is_taken = slave.storage.topics.data_version == master.storage.topics.data_version
        assert is_taken == ("topics" not in refused)
        assert is_taken or slave.storage.topics.table == topics
        for what in refused:
            assert f"metadata not copied, will retry kind={what}" in caplog.text
        assert SECRET not in caplog.text


async def test_an_admin_listener_does_not_stop_a_slave(tmp_path: Path) -> None:
    listener = f"127.0.0.1:{free_port()}"
    async with (
        running_broker(tmp_path / "m", adminListenAddress=listener) as master,
        slave_of(tmp_path / "s", master) as slave,
    ):
        await slave.metadata_sync.sync()

        assert slave.metadata_sync.state.failures == {}
