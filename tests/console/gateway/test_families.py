"""Families of a whole store: what the indexes find equals what the log holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.message import names, properties
from broker_core.message.ids import parse_offset_msg_id
from broker_core.protocol.codes import RequestCode
from broker_core.verify.records import Record, integer, parse
from console.family import relatives
from console.family.relatives import Kin, relatives_of
from console.gateway.answers import BrokerQueue
from console.gateway.errors import NotFoundError
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.gateway import gateway_to
from tests.console.gateway.support import ORDERS, ask
from tests.support.broker import running_broker
from tests.support.builders import batch_item
from tests.support.client import Client
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from broker_core.protocol.command import RemotingCommand
    from console.gateway.answers import QueueStatus
    from console.gateway.ports import Gateway

COUNT = 1_000
LOOKED_AT = 200
"""The log is compared whole; so many families, as many of each kind, are asked for."""
KINDS = ("normal", "delay", "transaction", "retry", "dead", "sql", "batch", "order")
TOPIC, GROUP = "Orders", "billing"
PREPARED, COMMIT = 4, 8


class Stored(NamedTuple):
    """A record of a family, as either side sees it."""

    kin: str
    topic: str
    queue_id: int
    queue_offset: int
    store_ms: int


def key_of(number: int) -> str:
    return f"0A0102030000{number:020X}"


async def send(client: Client, number: int, **more: str) -> RemotingCommand:
    table = {"KEYS": f"order-{number}", "UNIQ_KEY": key_of(number), **more}
    return await client.ask(
        RequestCode.SEND_MESSAGE_V2,
        b"body",
        a="pg",
        b=TOPIC,
        c="TBW102",
        d=4,
        e=number % 2,
        g=1,
        h=0,
        j=0,
        f=PREPARED if "TRAN_MSG" in more else 0,
        i=properties.encode(table),
        k="false",
        m="false",
    )


async def make(client: Client, number: int, kind: str) -> None:
    """Send a message, and do with it what makes it one of its kind."""
    more: dict[str, dict[str, str]] = {
        "delay": {"DELAY": "1"},
        "transaction": {"TRAN_MSG": "true", "PGROUP": "pg"},
        "sql": {"colour": "red"},
        "order": {"__SHARDINGKEY": "a"},
    }
    if kind == "batch":
        table = properties.encode({"UNIQ_KEY": key_of(number)})
        batch: dict[str, Any] = {
            "a": "pg",
            "b": TOPIC,
            "c": "TBW102",
            "d": 4,
            "e": 0,
            "f": 0,
            "g": 1,
            "h": 0,
        }
        item = batch_item(b"body", table.encode())
        await client.ask(RequestCode.SEND_BATCH_MESSAGE, item, **batch, m="true")
        return
    answer = await send(client, number, **more.get(kind, {}))
    assert answer.code == 0, answer.remark
    place = parse_offset_msg_id(answer.ext_fields["msgId"])
    assert place is not None
    at = place.commit_log_offset
    if kind == "transaction":
        half: dict[str, Any] = {
            "tranStateTableOffset": answer.ext_fields["queueOffset"],
            "commitLogOffset": at,
        }
        outcome: dict[str, Any] = {"producerGroup": "pg", "commitOrRollback": COMMIT}
        await client.ask(RequestCode.END_TRANSACTION, **half, **outcome)
    elif kind in {"retry", "dead"}:
        level = 1 if kind == "retry" else -1
        back: dict[str, Any] = {
            "offset": at,
            "group": GROUP,
            "delayLevel": level,
            "originTopic": TOPIC,
        }
        await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)
    elif kind == "order":
        # Its dead letter was sent again, for what it matters here.
        await send(client, number, TREBUCHET_REPLAY="1")


def records_of(directory: Path) -> Iterator[Record]:
    """Read the log as it lies on the disk, by the code of the verifier and nothing of the store."""
    for path in sorted((directory / "store" / "commitlog").iterdir()):
        data, at, begin = path.read_bytes(), 0, int(path.name)
        while at + 8 <= len(data) and (size := integer(data, at, 4)) > 0:
            if integer(data, at + 4, 4) == -626843481:
                yield parse(data[at : at + size], begin + at, 1)
            at += size


def families_of(records: Iterator[Record]) -> dict[str, set[Stored]]:
    families: dict[str, set[Stored]] = {}
    for each in records:
        key = each.properties.get(names.PROPERTY_UNIQ_KEY)
        if key is None or each.topic == names.RMQ_SYS_TRANS_HALF_TOPIC:
            continue
        family = families.setdefault(key, set())
        kin = {
            names.RMQ_SYS_SCHEDULE_TOPIC: Kin.DEFERRED,
            names.retry_topic(GROUP): Kin.RETRY,
            names.dlq_topic(GROUP): Kin.DEAD,
        }.get(each.topic, Kin.AGAIN if any(one.kin == Kin.ITSELF for one in family) else Kin.ITSELF)
        family.add(Stored(kin, each.topic, each.queue_id, each.queue_offset, each.store_timestamp))
    return families


def found_family(gateway: Gateway, number: int, queue_id: int, offset: int) -> set[Stored]:
    asked = gateway.browse.at(TOPIC, BrokerQueue("broker-a", queue_id), offset)
    assert asked is not None, number
    found = relatives_of(asked)
    assert found.problems == []
    return {
        Stored(kin, each.topic, each.queue_id, each.queue_offset, each.store_ms)
        for kin, each, _group in found.rows
    }


async def ends(gateway: Gateway, topic: str) -> tuple[QueueStatus, ...]:
    try:
        return await ask(gateway.topics.status, topic)
    except NotFoundError:
        return ()


async def test_families_of_all_kinds_equal_what_an_independent_reader_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path, maxIndexNum=20_000) as broker:
        port = broker.configuration.broker.namesrv_listen_port
        brokers = RemoteBrokers([f"127.0.0.1:{port}"], PATIENCE_S)
        gateway = gateway_to(brokers)
        monkeypatch.setattr(relatives, "gateway", lambda: gateway)
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await ask(gateway.topics.save, ORDERS, ["broker-a"])
        queue: dict[str, Any] = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": 0,
            "commitOffset": 0,
        }
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **queue)
        for begin in range(0, COUNT, 50):
            numbers = range(begin, begin + 50)
            await asyncio.gather(*(make(client, one, KINDS[one % len(KINDS)]) for one in numbers))

        # One kind is delayed, one retried, one sent again: all of that has to have arrived.
        each_kind = COUNT // len(KINDS)
        expected_ends = {TOPIC: COUNT + each_kind, names.retry_topic(GROUP): each_kind}
        async with asyncio.timeout(PATIENCE_S):
            for topic, end in expected_ends.items():
                while sum(each.max_offset for each in await ends(gateway, topic)) < end:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)  # the broker tells nobody
        place: dict[str, tuple[int, int]] = {}
        for queue_id in (0, 1):
            offset = 0
            while batch := (
                await ask(
                    gateway.repair.copies, TOPIC, BrokerQueue("broker-a", queue_id), offset, 32
                )
            ).messages:
                for each in batch:
                    stored = each.stored
                    place.setdefault(stored.uniq_key, (queue_id, stored.queue_offset))
                    offset = stored.queue_offset + 1
        found = {
            key_of(number): await ask(found_family, gateway, number, *place[key_of(number)])
            for number in range(LOOKED_AT)
        }
        await client.shutdown()
        await gateway.messages.close()
        await ask(brokers.close)

    expected = families_of(records_of(tmp_path))
    assert len(expected) == COUNT
    assert {len(family) for family in expected.values()} == {1, 2, 3}
    assert found == {key: expected[key] for key in found}
