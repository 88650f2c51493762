"""The gateway's contract: the fake of the page tests keeps the rules that a real broker has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from console.gateway.answers import GroupConfig, RuntimeInfo, TopicConfig, TopicKind
from console.gateway.client import RemotingGateway
from console.gateway.errors import (
    BrokerDownError,
    GatewayError,
    NameServerDownError,
    NotFoundError,
    RequestFailedError,
)
from console.gateway.fake import FakeGateway
from tests.support.broker import running_broker
from tests.support.client import Client
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from broker_core.broker import Broker
    from console.gateway.gateway import BrokerGateway

ORDERS = TopicConfig("Orders", 2, 2, 6)
TIMEOUT_S = 5.0


async def ask(call: Callable[..., object], *args: object, **kwargs: object):
    """Call the gateway as a view does, from another thread than the broker's loop."""
    return await asyncio.to_thread(call, *args, **kwargs)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path) as running:
        yield running


@pytest.fixture
async def real(broker: Broker) -> AsyncIterator[RemotingGateway]:
    gateway = RemotingGateway(
        [f"127.0.0.1:{broker.configuration.broker.namesrv_listen_port}"], TIMEOUT_S
    )
    yield gateway
    await ask(gateway.close)


@pytest.fixture(params=["fake", "real"])
def gateway(request: pytest.FixtureRequest) -> BrokerGateway:
    return FakeGateway() if request.param == "fake" else request.getfixturevalue("real")


async def test_one_broker_is_registered(gateway: BrokerGateway) -> None:
    cluster = await ask(gateway.cluster)

    [node] = cluster.masters
    assert node.broker_name == "broker-a"
    assert node.is_master


async def test_runtime_figures_are_known(gateway: BrokerGateway) -> None:
    [info] = (await ask(gateway.runtime)).values()

    assert isinstance(info, RuntimeInfo)
    assert info.version == "V4_9_7"
    for name in ("uptime_s", "put_tps", "get_tps", "put_today", "commit_log_disk_ratio"):
        assert getattr(info, name) is not None, name


async def test_a_saved_topic_has_its_configuration_and_empty_queues(gateway: BrokerGateway) -> None:
    await ask(gateway.save_topic, ORDERS, ["broker-a"])

    topic = (await ask(gateway.topics))["Orders"]
    status = await ask(gateway.topic_status, "Orders")

    assert topic.kind is TopicKind.NORMAL
    assert topic.configs == {"broker-a": ORDERS}
    assert [(row.queue_id, row.min_offset, row.max_offset) for row in status] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    assert all(row.last_update_ms is None for row in status)


async def test_a_changed_topic_keeps_the_change(gateway: BrokerGateway) -> None:
    await ask(gateway.save_topic, ORDERS, ["broker-a"])
    await ask(gateway.save_topic, TopicConfig("Orders", 4, 4, 4), ["broker-a"])

    config = (await ask(gateway.topics))["Orders"].configs["broker-a"]

    assert (config.write_queue_nums, config.perm) == (4, 4)


async def test_a_deleted_topic_is_gone(gateway: BrokerGateway) -> None:
    await ask(gateway.save_topic, ORDERS, ["broker-a"])
    await ask(gateway.delete_topic, "Orders")

    assert "Orders" not in await ask(gateway.topics)
    with pytest.raises(NotFoundError):
        await ask(gateway.topic_status, "Orders")


async def test_a_topic_without_traffic_has_none(gateway: BrokerGateway) -> None:
    await ask(gateway.save_topic, ORDERS, ["broker-a"])

    traffic = (await ask(gateway.topic_traffic, ["Orders"]))["Orders"]

    assert (traffic.minute_tps, traffic.hour_sum) == (0.0, 0)


async def test_a_saved_group_is_listed_and_offline(gateway: BrokerGateway) -> None:
    config = GroupConfig("billing", retry_max_times=3)
    await ask(gateway.save_group, config, ["broker-a"])

    groups = await ask(gateway.groups)
    connections = await ask(gateway.connections, "billing")

    assert groups["billing"].configs == {"broker-a": config}
    assert not connections.is_online


async def test_committed_offsets_are_the_groups_progress(gateway: BrokerGateway) -> None:
    await ask(gateway.save_topic, ORDERS, ["broker-a"])
    await ask(gateway.save_group, GroupConfig("billing"), ["broker-a"])
    await ask(gateway.commit_offsets, "billing", "Orders", {("broker-a", 0): 0})

    progress = await ask(gateway.progress, "billing")
    groups = await ask(gateway.topic_groups, "Orders")

    assert [(row.queue_id, row.consumer_offset) for row in progress.queues] == [(0, 0), (1, None)]
    assert progress.lag == 0
    assert groups == ("billing",)


async def test_a_group_is_deleted_with_or_without_its_offsets(gateway: BrokerGateway) -> None:
    await ask(gateway.save_topic, ORDERS, ["broker-a"])
    await ask(gateway.save_group, GroupConfig("billing"), ["broker-a"])
    await ask(gateway.commit_offsets, "billing", "Orders", {("broker-a", 0): 0})

    await ask(gateway.delete_group, "billing", remove_offset=False)
    left = (await ask(gateway.groups))["billing"]
    await ask(gateway.delete_group, "billing", remove_offset=True)

    assert left.configs == {}
    assert "billing" not in await ask(gateway.groups)


async def test_a_group_without_members_cannot_be_reset_by_time(gateway: BrokerGateway) -> None:
    await ask(gateway.save_topic, ORDERS, ["broker-a"])
    await ask(gateway.save_group, GroupConfig("billing"), ["broker-a"])

    with pytest.raises(RequestFailedError) as caught:
        await ask(gateway.reset_online, "billing", "Orders", -1)

    assert caught.value.code in {1, 206}


async def test_messages_show_in_queues_and_in_statistics(
    broker: Broker, real: RemotingGateway
) -> None:
    await ask(real.save_topic, ORDERS, ["broker-a"])
    client = Client(f"127.0.0.1:{broker.listen_port}")
    for _ in range(3):
        await client.send("Orders", queue_id=1)
    await ask(real.commit_offsets, "billing", "Orders", {("broker-a", 1): 1})

    status = await ask(real.topic_status, "Orders")
    progress = await ask(real.progress, "billing")
    at_start = await ask(real.offsets_at, "Orders", 0)
    at_end = await ask(real.offsets_at, "Orders", status[1].last_update_ms + 60_000)
    await client.shutdown()

    assert [row.message_count for row in status] == [0, 3]
    assert progress.lag == 2
    assert at_start["broker-a", 1] == 0
    assert at_end["broker-a", 1] == 3


async def test_an_online_group_shows_its_members_and_moves_by_time(
    broker: Broker, real: RemotingGateway
) -> None:
    await ask(real.save_topic, ORDERS, ["broker-a"])
    client = Client(f"127.0.0.1:{broker.listen_port}")
    await client.send("Orders", queue_id=0)
    await client.heartbeat("member-1", consumer_groups={"billing": {"Orders": "TagA"}})

    connections = await ask(real.connections, "billing")
    sent = await ask(real.reset_online, "billing", "Orders", -1)
    await client.shutdown()

    assert [member.client_id for member in connections.members] == ["member-1"]
    assert connections.members[0].broker_names == ("broker-a",)
    assert ("Orders", "TagA") in [
        (each.topic, each.sub_string) for each in connections.subscriptions
    ]
    assert sent == {("broker-a", 0): 1, ("broker-a", 1): 0}


async def test_a_broker_that_went_away_is_named_with_what_to_do(
    broker: Broker, real: RemotingGateway
) -> None:
    await ask(real.cluster)
    address = f"127.0.0.1:{free_port()}"
    real._name_servers = [address]

    with pytest.raises(NameServerDownError) as caught:
        await ask(real.topics)

    assert address in caught.value.what
    assert "TREBUCHET_NAMESRV" in caught.value.advice


async def test_a_port_that_does_not_speak_the_protocol_is_no_traceback() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    gateway = RemotingGateway([f"127.0.0.1:{port}"], 1.0)

    with pytest.raises(GatewayError) as caught:
        await ask(gateway.topics)

    await ask(gateway.close)
    server.close()
    await server.wait_closed()
    assert isinstance(caught.value, NameServerDownError | BrokerDownError)


async def test_a_peer_that_never_answers_is_given_up_in_time() -> None:
    done = asyncio.Event()

    async def keep_quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    server = await asyncio.start_server(keep_quiet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    gateway = RemotingGateway([f"127.0.0.1:{port}"], 0.1)

    with pytest.raises(NameServerDownError) as caught:
        await ask(gateway.topics)

    assert "no answer within 0.1 seconds" in caught.value.what
    await ask(gateway.close)
    done.set()
    server.close()
    await server.wait_closed()


ACCOUNTS = "accounts:\n- accessKey: console\n  secretKey: '12345678'\n  admin: true\n"


@pytest.mark.parametrize("signs", [True, False])
async def test_a_broker_with_access_control_knows_the_console_by_its_account(
    tmp_path: Path, settings, signs: bool
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    settings.TREBUCHET_BROKER_ACCESS_KEY = "console" if signs else ""
    settings.TREBUCHET_BROKER_SECRET_KEY = "12345678" if signs else None

    async with running_broker(tmp_path, aclEnable="true") as broker:
        port = broker.configuration.broker.namesrv_listen_port
        gateway = RemotingGateway([f"127.0.0.1:{port}"], TIMEOUT_S)
        if signs:
            await ask(gateway.save_topic, ORDERS, ["broker-a"])
            assert "Orders" in await ask(gateway.topics)
        else:
            with pytest.raises(GatewayError, match="AclException"):
                await ask(gateway.save_topic, ORDERS, ["broker-a"])
        await ask(gateway.close)
