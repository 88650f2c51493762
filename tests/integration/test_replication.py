"""Our slave with our master."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.builders import batch_item, read_all
from tests.support.certificates import certificate
from tests.support.client import Client, json_body
from tests.support.faulty_storage import FaultyStorage
from tests.support.gate import Gate
from tests.support.pair import (
    assert_same_logs,
    assert_same_stores,
    running_slave,
    until_caught_up,
)
from tests.support.ports import free_port
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.broker import Broker
    from broker_core.protocol.command import RemotingCommand


async def send_some(broker: Broker, count: int, *, size: int = 300, topic: str = "T") -> None:
    client = Client(f"127.0.0.1:{broker.listen_port}")
    try:
        for number in range(count):
            sent = await client.send(
                topic,
                b"%08d" % number + b"x" * (size - 8),
                queue_id=number % 4,
                tags=f"tag{number % 3}",
                keys=f"k{number} other",
                UNIQ_KEY=f"U{number}",
            )
            assert sent.code == ResponseCode.SUCCESS
    finally:
        await client.shutdown()


async def test_a_slave_follows_live(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "m") as master,
        running_slave(tmp_path / "s", master) as slave,
    ):
        await send_some(master, 200)

        await until_caught_up(master, slave)
        assert_same_stores(master, slave)
        store = slave.storage.store
        assert store.max_offset_in_queue("T", 0) == 50
        (found,) = store.query_message("T", "k7", 32, 0, 1 << 60)
        assert b"00000007" in bytes(found)


async def test_an_empty_slave_starts_at_the_masters_last_file(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m", mappedFileSizeCommitLog=1 << 18) as master:
        await send_some(master, 1000, size=600)
        begin = master.storage.store.files.log.files[-1].file_from_offset
        assert begin > 0
        async with running_slave(tmp_path / "s", master, mappedFileSizeCommitLog=1 << 18) as slave:
            await until_caught_up(master, slave)

            assert slave.storage.store.min_commit_log_offset == begin
            assert_same_stores(master, slave)
            await send_some(master, 1000, size=600)
            await until_caught_up(master, slave)
            assert_same_stores(master, slave)
            queue = slave.storage.store.min_offset_in_queue("T", 0)
            assert 0 < queue < slave.storage.store.max_offset_in_queue("T", 0) == 500


async def test_an_empty_slave_gets_everything_if_the_master_is_configured_so(
    tmp_path: Path,
) -> None:
    size = 1 << 18
    async with running_broker(
        tmp_path / "m", syncFromLastFile="false", mappedFileSizeCommitLog=size
    ) as master:
        await send_some(master, 1500, size=600)
        async with running_slave(tmp_path / "s", master, mappedFileSizeCommitLog=size) as slave:
            await until_caught_up(master, slave)

            assert slave.storage.store.min_commit_log_offset == 0
            assert_same_stores(master, slave)


async def test_a_sync_master_answers_when_its_slave_has_the_message(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m", brokerRole="SYNC_MASTER") as master:
        client = Client(f"127.0.0.1:{master.listen_port}")
        try:
            alone = await client.send("T")
            async with running_slave(tmp_path / "s", master) as slave:
                await until_caught_up(master, slave)
                both = await client.send("T")
                there = slave.storage.store.max_offset_in_queue("T", 0)
            gone = await client.send("T")
        finally:
            await client.shutdown()

    assert alone.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert alone.ext_fields["queueOffset"] == "0"
    assert alone.ext_fields["msgId"]
    assert both.code == ResponseCode.SUCCESS
    assert there == 2
    assert gone.code == ResponseCode.SLAVE_NOT_AVAILABLE


async def send_one(broker: Broker) -> RemotingCommand:
    client = Client(f"127.0.0.1:{broker.listen_port}")
    try:
        return await client.send("T")
    finally:
        await client.shutdown()


async def test_a_batchs_answer_names_all_its_messages_even_without_a_slave(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m", brokerRole="SYNC_MASTER") as master:
        client = Client(f"127.0.0.1:{master.listen_port}")
        try:
            await client.send("T")
            sent = await client.ask(
                RequestCode.SEND_BATCH_MESSAGE,
                batch_item(b"one") + batch_item(b"two"),
                a="pg",
                b="T",
                c="TBW102",
                d="4",
                e="0",
                f="0",
                g="1",
                h="0",
                i="",
                j="0",
                k="false",
                m="true",
            )
        finally:
            await client.shutdown()

    assert sent.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert len(sent.ext_fields["msgId"].split(",")) == 2
    assert sent.ext_fields["queueOffset"] == "1"


async def test_both_flush_modes_and_a_slave_that_acknowledges_its_disk(tmp_path: Path) -> None:
    async with (
        running_broker(
            tmp_path / "m", brokerRole="SYNC_MASTER", flushDiskType="SYNC_FLUSH"
        ) as master,
        running_slave(tmp_path / "s", master, haAckMode="flushed") as slave,
    ):
        await until_async(
            lambda: master.replication.ha_master.in_sync_slaves(0) == 1, "the slave to report"
        )
        sent = await send_one(master)

        assert sent.code == ResponseCode.SUCCESS
        end = slave.storage.store.max_commit_log_offset
        assert slave.storage.store.flushed_where == end > 0


async def test_a_slave_has_nothing_that_its_master_would_lose_in_a_power_cut(
    tmp_path: Path,
) -> None:
    storage = FaultyStorage()
    async with (
        running_broker(tmp_path / "m", storage=storage, flushDiskType="SYNC_FLUSH") as master,
        running_slave(tmp_path / "s", master) as slave,
    ):
        await send_some(master, 1)
        await until_caught_up(master, slave)
        before = slave.storage.store.max_commit_log_offset
        gate = Gate(storage, "fdatasync")
        with contextlib.ExitStack() as stack:
            stack.callback(gate.open.set)
            sending = asyncio.create_task(send_one(master))
            await gate.until_entered()
            for _ in range(20):
                await asyncio.sleep(0)

            (connection,) = master.replication.ha_master.connections()
            assert connection.transferred_offset == before
            assert master.storage.store.max_commit_log_offset > before
        assert (await sending).code == ResponseCode.SUCCESS
        await until_caught_up(master, slave)


async def test_restarts_of_either_continue_at_their_position(tmp_path: Path) -> None:
    ports: dict[str, Any] = {"listenPort": free_port(), "namesrvListenPort": free_port()}
    async with running_broker(tmp_path / "m", **ports) as master:
        await send_some(master, 50)
        for _ in range(2):
            async with running_slave(tmp_path / "s", master) as slave:
                await until_caught_up(master, slave)
                await send_some(master, 30)
    async with (
        running_broker(tmp_path / "m", **ports) as again,
        running_slave(tmp_path / "s", again) as slave,
    ):
        await send_some(again, 30)
        await until_caught_up(again, slave)
        assert_same_stores(again, slave)
        assert slave.storage.store.max_offset_in_queue("T", 1) == 37


async def test_a_slave_with_another_clusters_log_acknowledges_nothing_and_explains_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path / "other") as other:
        await send_some(other, 60)
        async with running_slave(tmp_path / "s", other) as slave:
            await until_caught_up(other, slave)
    async with running_broker(tmp_path / "m", brokerRole="SYNC_MASTER") as master:
        await send_one(master)
        async with running_slave(tmp_path / "s", master) as slave:
            await until_async(
                lambda: slave.replication.ha_slave.state().failures > 0, "the refusal"
            )
            sent = await send_one(master)

            assert sent.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert "not following the master" in caplog.text
    assert "its log diverges from that of the master" in caplog.text


async def test_a_wiped_slave_gets_the_masters_data(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m") as master:
        await send_some(master, 40)
        async with running_slave(tmp_path / "s", master) as slave:
            await until_caught_up(master, slave)
        shutil.rmtree(tmp_path / "s")
        await send_some(master, 40)
        async with running_slave(tmp_path / "s", master) as slave:
            await until_caught_up(master, slave)
            assert_same_stores(master, slave)


def damage(broker: Broker, commit_log_offset: int, size: int) -> None:
    """Change bytes of a running broker's log as a bad disk does."""
    (name, *_) = sorted((broker.storage.store.files.paths.commit_log).iterdir())
    with name.open("r+b") as file:
        file.seek(commit_log_offset)
        data = file.read(size)
        file.seek(commit_log_offset)
        file.write(bytes(byte ^ 0x40 for byte in data))


@pytest.mark.parametrize(
    ("position", "size"),
    [(0, 1), (3, 1), (4, 4), (28, 8), (100, 1), (0, 900)],
    ids=["huge size", "another size", "magic", "place", "body", "two records"],
)
async def test_damage_in_the_middle_of_the_masters_log_does_not_stop_its_slave(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, position: int, size: int
) -> None:
    keys: dict[str, Any] = {"haHousekeepingInterval": 1_000, "haSendHeartbeatInterval": 100}
    async with running_broker(tmp_path / "m", **keys) as master:
        await send_some(master, 40)
        queue = master.storage.store.files.queues.find("T", 0)
        assert queue is not None
        unit = queue.unit(5)
        assert unit is not None
        damage(master, unit[0] + position, size)
        async with running_slave(tmp_path / "s", master, **keys) as slave:
            await until_caught_up(master, slave)
            await send_some(master, 8)
            await until_caught_up(master, slave)

            assert_same_logs(master, slave)
            there, here = master.storage.store, slave.storage.store
            (found,) = there.files.quarantine.ranges
            assert found.offset_from == unit[0]
            assert [known[:2] for known in here.files.quarantine.ranges] == [found[:2]]
            read = read_all(here, "T")
            assert [one.queue_offset for one in read] == [n for n in range(12) if n != 5]
            for queue_id in range(4):
                assert here.max_offset_in_queue("T", queue_id) == 12
        async with running_slave(tmp_path / "s", master, **keys) as slave:
            await send_some(master, 4)
            await until_caught_up(master, slave)
            assert_same_logs(master, slave)
    assert "slave reported a damaged range" in caplog.text
    assert f"damaged range of the master skipped from={unit[0]}" in caplog.text


async def test_a_slave_that_doubts_valid_data_or_no_record_damages_nothing(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path / "m") as master:
        await send_some(master, 8)
        store = master.storage.store
        queue = store.files.queues.find("T", 1)
        assert queue is not None
        unit = queue.unit(1)
        assert unit is not None
        client = Client(f"127.0.0.1:{master.listen_port}")
        for doubted in (
            0,
            unit[0],
            unit[0] + 1,
            unit[0] + 90,
            store.max_commit_log_offset,
            1 << 60,
        ):
            question = {
                "clusterName": "DefaultCluster",
                "brokerName": master.configuration.broker.broker_name,
                "brokerAddr": "",
                "follows": True,
                "doubted": doubted,
            }
            answer = await client.ask(
                RequestCode.GET_REPLICATION_STATE, json.dumps(question).encode()
            )
            assert answer.code == ResponseCode.SUCCESS
            assert json_body(answer)["damaged"] == []
        await client.shutdown()
        assert store.files.quarantine.ranges == []


async def test_a_tls_port_serves_only_tls(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "master")
    server: dict[str, Any] = {
        "haTls": "true",
        "tls.server.certPath": made,
        "tls.server.keyPath": key,
    }
    trusting: dict[str, Any] = {
        "haTls": "true",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": made,
    }
    async with running_broker(tmp_path / "m", **server) as master:
        await send_some(master, 20)
        async with running_slave(tmp_path / "s", master, **trusting) as slave:
            await until_caught_up(master, slave)
            assert_same_stores(master, slave)
        async with running_slave(tmp_path / "plain", master) as slave:
            await until_async(
                lambda: slave.replication.ha_slave.state().failures > 1, "the refusal"
            )
            assert slave.storage.store.max_commit_log_offset == 0


async def test_with_too_few_in_sync_replicas_puts_are_rejected(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"brokerRole": "SYNC_MASTER", "minInSyncReplicas": "2"}
    async with running_broker(tmp_path / "m", **keys) as master:
        alone = await send_one(master)
        async with running_slave(tmp_path / "s", master) as slave:
            await until_async(
                lambda: master.storage.store.is_writable, "the master to take messages"
            )
            both = await send_one(master)
            assert slave.storage.store.max_commit_log_offset > 0

    assert alone.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert both.code == ResponseCode.SUCCESS
