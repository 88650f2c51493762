"""Families of a whole store: what the pages find by indexes equals what the log's bytes say."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.message import names, properties
from broker_core.message.ids import parse_offset_msg_id
from broker_core.protocol.codes import RequestCode
from console.family import relatives
from console.family.relatives import relatives_of
from console.family.steps import steps_from_log
from console.gateway.answers import BrokerQueue
from console.gateway.errors import NotFoundError
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.gateway import gateway_to
from tests.console.gateway.support import ORDERS, ask
from tests.support.broker import running_broker
from tests.support.builders import batch_item
from tests.support.client import Client
from tests.support.patience import PATIENCE_S
from tests.support.raw_remoting import RECORD_HEAD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from broker_core.protocol.command import RemotingCommand
    from console.family.steps import Step
    from console.gateway.answers import QueueStatus
    from console.gateway.ports import Gateway

COUNT = 1_000
KINDS = (
    *("normal", "delay", "committed", "rolled back", "undecided", "retry", "dead", "replayed"),
    *("sql", "batch", "order"),
)
HIDDEN = {"rolled back", "undecided"}
TOPIC, GROUP = "Orders", "billing"
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
MAGIC = -626843481
UNTIMED = {"dispatched", "flushed", "replicated"}
"""Nothing in the log says when these were; every family has them."""


class Logged(NamedTuple):
    """A record of the log, read by nobody's code but this file's."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    born_ms: int
    store_ms: int
    reconsume_times: int
    prepared_offset: int
    properties: dict[str, str]


class Found(NamedTuple):
    """A stage of a family, as either side sees it; without times where the log has none."""

    stage: str
    begin_ms: int | None = None
    end_ms: int | None = None
    place: str = ""


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
    half = {"TRAN_MSG": "true", "PGROUP": "pg"}
    more: dict[str, dict[str, str]] = {
        "delay": {"DELAY": "1"},
        "committed": half,
        "rolled back": half,
        "undecided": half,
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
    if kind in {"committed", "rolled back"}:
        where: dict[str, Any] = {
            "tranStateTableOffset": answer.ext_fields["queueOffset"],
            "commitLogOffset": at,
        }
        decision = COMMIT if kind == "committed" else ROLLBACK
        outcome: dict[str, Any] = {"producerGroup": "pg", "commitOrRollback": decision}
        await client.ask(RequestCode.END_TRANSACTION, **where, **outcome)
    elif kind in {"retry", "dead", "replayed"}:
        level = 1 if kind == "retry" else -1
        back: dict[str, Any] = {
            "offset": at,
            "group": GROUP,
            "delayLevel": level,
            "originTopic": TOPIC,
        }
        await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)
    if kind == "replayed":
        await send(client, number, TREBUCHET_REPLAY="1")


def records_of(directory: Path) -> Iterator[Logged]:
    """Read the log as it lies on the disk."""
    for path in sorted((directory / "store" / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while at + RECORD_HEAD.size <= len(data):
            head = RECORD_HEAD.unpack_from(data, at)
            if head[0] <= 0:
                break
            if head[1] == MAGIC:
                yield record_of(data, at, head)
            at += head[0]


def record_of(data: bytes, at: int, head: tuple[Any, ...]) -> Logged:
    after = at + RECORD_HEAD.size
    after += 4 + int.from_bytes(data[after : after + 4])
    topic_end = after + 1 + data[after]
    texts_end = topic_end + 2 + int.from_bytes(data[topic_end : topic_end + 2])
    texts = data[topic_end + 2 : texts_end].decode().split("\x02")
    table = dict(text.split("\x01", 1) for text in texts if text)
    topic = data[after + 1 : topic_end].decode()
    places, times = (head[3], head[5], head[6]), (head[8], head[10])
    return Logged(topic, *places, *times, head[12], head[13], table)


def families_of(records: Iterator[Logged]) -> dict[str, list[Logged]]:
    """Return the records of each message, in the order of the log."""
    families: dict[str, list[Logged]] = {}
    for each in records:
        if each.properties.get("UNIQ_KEY"):
            families.setdefault(each.properties["UNIQ_KEY"], []).append(each)
    return families


def expected_stages(family: list[Logged]) -> set[Found]:
    """Return what must be told of a message by what is written of it."""
    own = [each for each in family if each.topic == TOPIC]
    halves = [each for each in family if each.topic == names.RMQ_SYS_TRANS_HALF_TOPIC]
    waiting = [each for each in family if each.topic == names.RMQ_SYS_SCHEDULE_TOPIC]
    retries = [each for each in family if each.topic == names.retry_topic(GROUP)]
    root, *copies = own
    first_ms = min(
        each.store_ms
        for each in [root, *waiting]
        if each.properties.get("REAL_TOPIC", TOPIC) == TOPIC
    )
    stages = {Found(stage) for stage in UNTIMED}
    stages.add(Found("sent", min(root.born_ms, first_ms), first_ms))
    stages.add(Found("stored", root.store_ms, None, place_of(root)))
    stages |= {Found("withheld", None, None, str(each.commit_log_offset)) for each in halves}
    for each in waiting:
        arrived = root
        if each.properties["REAL_TOPIC"] != TOPIC:
            [arrived] = retries
            stages.add(Found("given_back", each.store_ms))
        stages.add(Found("deferred", each.store_ms, arrived.store_ms, place_of(each)))
    stages |= {Found("retry", each.store_ms, None, place_of(each)) for each in retries}
    for each in copies:
        is_replay = "TREBUCHET_REPLAY" in each.properties
        name = "replayed" if is_replay else "stored_again"
        stages.add(Found(name, each.store_ms, None, place_of(each)))
    for each in family:
        if each.topic == names.dlq_topic(GROUP):
            stages.add(Found("dead", each.store_ms, None, place_of(each)))
    return stages


def place_of(record: Logged) -> str:
    return f"{record.topic} {record.queue_id} {record.queue_offset} {record.commit_log_offset}"


def found_stages(gateway: Gateway, number: int, queue_id: int, offset: int) -> set[Found]:
    """Return what the page of a message tells of the log."""
    asked = gateway.browse.at(TOPIC, BrokerQueue("broker-a", queue_id), offset)
    assert asked is not None, number
    relatives_found = relatives_of(asked)
    assert relatives_found.problems == []
    return {stage_of(step) for step in steps_from_log(relatives_found, (), None)}


def stage_of(step: Step) -> Found:
    begin_ms, end_ms = (
        None if at_us is None else at_us // 1_000 for at_us in (step.begin_us, step.end_us)
    )
    place = ""
    if step.facts:
        facts = dict(step.facts)
        queue_id, queue_offset = re.findall(r"\d+", facts["Queue"])[-2:]
        place = f"{facts['Topic']} {queue_id} {queue_offset} {facts['Place in the CommitLog']}"
    elif step.stage == "withheld":
        [place] = re.findall(r"\d+", step.how)
    return Found(step.stage, begin_ms, end_ms, place)


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

        kinds = Counter(KINDS[number % len(KINDS)] for number in range(COUNT))
        shown = COUNT - sum(kinds[kind] for kind in HIDDEN) + kinds["replayed"]
        expected_ends = {TOPIC: shown, names.retry_topic(GROUP): kinds["retry"]}
        async with asyncio.timeout(PATIENCE_S):
            for topic, end in expected_ends.items():
                while sum(each.max_offset for each in await ends(gateway, topic)) < end:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)  # the broker tells nobody
        expected = families_of(records_of(tmp_path))
        places = {
            key: (family[0].queue_id, family[0].queue_offset)
            for key, records in expected.items()
            if (family := [each for each in records if each.topic == TOPIC])
        }
        shown_ones = [number for number in range(COUNT) if key_of(number) in places]
        found = dict(
            zip(
                shown_ones,
                await asyncio.gather(
                    *(
                        ask(found_stages, gateway, each, *places[key_of(each)])
                        for each in shown_ones
                    )
                ),
                strict=True,
            )
        )
        await client.shutdown()
        await gateway.messages.close()
        await ask(brokers.close)

    assert len(expected) == COUNT
    # What is not committed has no place that a family could be asked for by.
    hidden = {number for number in range(COUNT) if KINDS[number % len(KINDS)] in HIDDEN}
    assert set(found) == set(range(COUNT)) - hidden
    for number, stages in found.items():
        assert stages == expected_stages(expected[key_of(number)]), KINDS[number % len(KINDS)]
