"""Message histories of a whole store: index lookups by pages match the log's bytes."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.message import names, properties
from broker_core.message.ids import parse_offset_msg_id
from broker_core.protocol.codes import RequestCode
from console.gateway.errors import NotFoundError
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.gateway import gateway_to
from console.lib.moment import now_ms
from console.messages.browse import lookups
from console.messages.browse.readers import reading
from console.messages.family import recorder, relatives
from console.messages.family.recorder import recorded_events, with_recorded
from console.messages.family.relatives import relatives_of
from console.messages.family.steps import Source, steps_from_log
from console.observe.history.range import TimeRange
from tests.console.gateway.support import ORDERS, ask
from tests.support.broker import running_broker
from tests.support.builders import batch_item
from tests.support.client import Client
from tests.support.long_timeouts import PATIENCE_S
from tests.support.raw_remoting import RECORD_HEAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pytest

    from broker_core.protocol.command import RemotingCommand
    from console.gateway.answers import ConsumeProgress, GroupConnections, QueueStatus
    from console.gateway.ports import Gateway
    from console.messages.family.relatives import Relatives
    from console.messages.family.steps import Step

COUNT = 1_000
KINDS = (
    *("normal", "delay", "committed", "rolled back", "undecided", "given up"),
    *("retry", "dead", "replayed", "sql", "batch", "order"),
)
HIDDEN = {"rolled back", "undecided", "given up"}
TOPIC, GROUP = "Orders", "billing"
SQL_GROUP, SQL = "reds", "colour = 'red'"
RECORDED_OF_KIND = 2
"""Messages of a kind for which the recorder is queried, too."""
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
MAGIC = -626843481
UNTIMED = {"flushed", "replicated"}
"""The log has no times for these; every history has them."""
PASSED_BY = {"flushed", "woken", "received", "validated", "appended", "dispatched"}
"""Additional recorder events for a stored message."""


class SqlGroup(NamedTuple):
    """The gateway's answer about the group with an SQL expression."""

    progress: ConsumeProgress
    connections: GroupConnections


class Logged(NamedTuple):
    """A record of the log, parsed only by code in this file."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    born_ms: int
    store_ms: int
    reconsume_times: int
    prepared_offset: int
    body: bytes
    properties: dict[str, str]


class Found(NamedTuple):
    """A stage of a message history on either side; without a time if the log has none."""

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
    """Send a message, and perform the steps of its kind."""
    half = {"TRAN_MSG": "true", "PGROUP": "pg"}
    more: dict[str, dict[str, str]] = {
        "delay": {"DELAY": "1"},
        "committed": half,
        "rolled back": half,
        "undecided": half,
        "given up": half | {"CHECK_IMMUNITY_TIME_IN_SECONDS": "0"},
        "sql": {"colour": "red" if number % 2 else "blue"},
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
    """Read the log on disk."""
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
    body_from, after = after + 4, after + 4 + int.from_bytes(data[after : after + 4])
    body = data[body_from:after]
    topic_end = after + 1 + data[after]
    texts_end = topic_end + 2 + int.from_bytes(data[topic_end : topic_end + 2])
    texts = data[topic_end + 2 : texts_end].decode().split("\x02")
    table = dict(text.split("\x01", 1) for text in texts if text)
    topic = data[after + 1 : topic_end].decode()
    places, times = (head[3], head[5], head[6]), (head[8], head[10])
    return Logged(topic, *places, *times, head[12], head[13], body, table)


def families_of(records: Iterable[Logged]) -> dict[str, list[Logged]]:
    """Return the records of each message, in the order of the log."""
    families: dict[str, list[Logged]] = {}
    for each in records:
        if each.properties.get("UNIQ_KEY"):
            families.setdefault(each.properties["UNIQ_KEY"], []).append(each)
    return families


class Outcomes:
    """Outcomes of transactions in the log: op messages, and committed messages."""

    def __init__(self, records: list[Logged]) -> None:
        self._ended = {
            int(offset)
            for each in records
            if each.topic == names.RMQ_SYS_TRANS_OP_HALF_TOPIC
            for offset in each.body.decode().split(",")
            if offset
        }

    def of(self, family: list[Logged]) -> str:
        last = [each for each in family if each.topic == names.RMQ_SYS_TRANS_HALF_TOPIC][-1]
        if last.queue_offset not in self._ended:
            return "undecided"
        if any(each.prepared_offset == last.commit_log_offset for each in family):
            return "committed"
        topics = {each.topic for each in family}
        is_parked = names.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC in topics
        return "given_up" if is_parked else "rolled_back"


def expected_stages(family: list[Logged], outcomes: Outcomes) -> set[Found]:
    """Return the stages that a message must show, according to its records."""
    own = [each for each in family if each.topic == TOPIC]
    halves = [each for each in family if each.topic == names.RMQ_SYS_TRANS_HALF_TOPIC]
    waiting = [each for each in family if each.topic == names.RMQ_SYS_SCHEDULE_TOPIC]
    retries = [each for each in family if each.topic == names.retry_topic(GROUP)]
    root = own[0] if own else halves[0]
    first_ms = min(
        each.store_ms
        for each in [root, *halves, *waiting]
        if each.topic != names.RMQ_SYS_SCHEDULE_TOPIC or each.properties["REAL_TOPIC"] == TOPIC
    )
    stages = {Found(stage) for stage in UNTIMED}
    stages.add(Found("sent", min(root.born_ms, first_ms), first_ms))
    if own:
        stages |= {Found("stored", root.store_ms, None, place_of(root)), Found("dispatched")}
        is_red = root.properties.get("colour") == "red"
        stages.add(Found("acknowledged" if is_red else "filtered"))
    for each in halves[:1]:
        end_ms = root.store_ms if own else None
        stages.add(Found("withheld", each.store_ms, end_ms, place_of(each)))
    stages |= {Found("checked", each.store_ms, None, place_of(each)) for each in halves[1:]}
    if not own:
        stages.add(Found(outcomes.of(family)))
    for each in waiting:
        arrived = root
        if each.properties["REAL_TOPIC"] != TOPIC:
            [arrived] = retries
            stages.add(Found("given_back", each.store_ms))
        stages.add(Found("deferred", each.store_ms, arrived.store_ms, place_of(each)))
    stages |= {Found("retry", each.store_ms, None, place_of(each)) for each in retries}
    for each in own[1:]:
        is_replay = "TREBUCHET_REPLAY" in each.properties
        name = "replayed" if is_replay else "stored_again"
        stages.add(Found(name, each.store_ms, None, place_of(each)))
    for each in family:
        if each.topic == names.dlq_topic(GROUP):
            stages.add(Found("dead", each.store_ms, None, place_of(each)))
    return stages


def expected_events(family: list[Logged], outcomes: Outcomes) -> set[str]:
    """Return the events that the recorder must have for a message with these records."""
    by_topic = {each.topic: each for each in family}
    stages = set()
    if names.RMQ_SYS_TRANS_HALF_TOPIC in by_topic:
        stages |= {"withheld", outcomes.of(family)} - {"undecided", "given_up"}
    if names.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC in by_topic:
        stages.add("checked")
    if TOPIC in by_topic:
        is_red = by_topic[TOPIC].properties.get("colour") == "red"
        stages |= {"stored"} | ({"delivered", "acknowledged"} if is_red else {"filtered"})
    if names.RMQ_SYS_SCHEDULE_TOPIC in by_topic:
        stages.add("deferred")
    if names.retry_topic(GROUP) in by_topic:
        # One row with the log's values, by its name.
        stages |= {"given_back", "retry"}
    if names.dlq_topic(GROUP) in by_topic:
        stages.add("dead")
    if any("TREBUCHET_REPLAY" in each.properties for each in family):
        stages.add("replayed")
    return stages


def place_of(record: Logged) -> str:
    return f"{record.topic} {record.queue_id} {record.queue_offset} {record.commit_log_offset}"


def look(number: int, sql_group: SqlGroup) -> tuple[list[Step], Relatives]:
    """Return the stages that pages show for a message found by its unique key."""
    day = TimeRange(now_ms() - 86_400_000, now_ms() + 1, now_ms())
    found = lookups.keyed(lookups.Lookup("id", TOPIC, key_of(number), "", "", day)).messages
    relatives_found = relatives_of(found[-1])
    root = relatives_found.root
    readings = [] if root.is_half else [reading(root, SQL_GROUP, *sql_group, ())]
    from_log = steps_from_log(relatives_found, readings, None)
    return from_log, relatives_found


def noted_stages(from_log: list[Step], relatives_found: Relatives) -> set[str]:
    """Return the stages that a page shows for a message from the recorder."""
    steps = with_recorded(from_log, recorded_events(relatives_found))
    return {step.stage for step in steps if step.source is Source.RECORDER} - PASSED_BY


async def consume(client: Client, gateway: Gateway) -> SqlGroup:
    """Let a group read all queues with an SQL expression; return the gateway's answer about it."""
    await client.heartbeat(consumer_groups={SQL_GROUP: {TOPIC: SQL}}, expression_type="SQL92")
    for queue in await ends(gateway, TOPIC):
        offset = 0
        while offset < queue.max_offset:
            pulled = await client.pull(
                TOPIC,
                offset,
                queue_id=queue.queue_id,
                group=SQL_GROUP,
                subscription=SQL,
                expression_type="SQL92",
            )
            offset = int(pulled.ext_fields["nextBeginOffset"])
        await commit(client, SQL_GROUP, queue.queue_id, offset)
    return SqlGroup(
        await ask(gateway.groups.progress, SQL_GROUP),
        await ask(gateway.groups.connections, SQL_GROUP),
    )


async def commit(client: Client, group: str, queue_id: int, offset: int) -> None:
    place: dict[str, Any] = {"topic": TOPIC, "queueId": queue_id, "commitOffset": offset}
    await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=group, **place)


def stage_of(step: Step) -> Found:
    begin_ms, end_ms = (
        None if at_us is None else at_us // 1_000 for at_us in (step.begin_us, step.end_us)
    )
    place = ""
    if step.facts:
        facts = dict(step.facts)
        queue_id, queue_offset = re.findall(r"\d+", facts["Queue"])[-2:]
        place = f"{facts['Topic']} {queue_id} {queue_offset} {facts['CommitLog location']}"
    return Found(step.stage, begin_ms, end_ms, place)


async def ends(gateway: Gateway, topic: str) -> tuple[QueueStatus, ...]:
    try:
        return await ask(gateway.topics.status, topic)
    except NotFoundError:
        return ()


async def until_all_there(gateway: Gateway) -> None:
    """Wait for the broker's background work: delays, and expired transactions."""
    kinds = Counter(KINDS[number % len(KINDS)] for number in range(COUNT))
    expected = {
        TOPIC: COUNT - sum(kinds[kind] for kind in HIDDEN) + kinds["replayed"],
        names.retry_topic(GROUP): kinds["retry"],
        names.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC: kinds["given up"],
    }
    async with asyncio.timeout(PATIENCE_S):
        for topic, end in expected.items():
            while sum(each.max_offset for each in await ends(gateway, topic)) < end:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # the broker sends no notification


async def test_histories_of_all_kinds_equal_an_independent_readers_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: dict[str, Any] = {
        "maxIndexNum": 20_000,
        "enablePropertyFilter": "true",
        # A transaction is given up after one check; a producer without an answer is never asked.
        "transactionCheckMax": 1,
        "transactionCheckInterval": 100,
        "transactionTimeOut": 3_600_000,
    }
    async with running_broker(tmp_path, **keys) as broker:
        port = broker.configuration.broker.namesrv_listen_port
        brokers = RemoteBrokers([f"127.0.0.1:{port}"], PATIENCE_S)
        gateway = gateway_to(brokers)
        for module in (relatives, recorder, lookups):
            monkeypatch.setattr(module, "gateway", lambda: gateway)
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await ask(gateway.topics.save, ORDERS, ["broker-a"])
        await client.ask(RequestCode.TRACE_LEVEL, b'{"level": "full", "minutes": 60}')
        await client.heartbeat(producer_groups=("pg",))
        await commit(client, GROUP, 0, 0)
        for begin in range(0, COUNT, 50):
            numbers = range(begin, min(COUNT, begin + 50))
            await asyncio.gather(*(make(client, one, KINDS[one % len(KINDS)]) for one in numbers))
        await until_all_there(gateway)
        sql_group = await consume(client, gateway)

        records = list(records_of(tmp_path))
        expected = families_of(records)
        found = await asyncio.gather(*(ask(look, number, sql_group) for number in range(COUNT)))
        some = found[: RECORDED_OF_KIND * len(KINDS)]
        noted = await asyncio.gather(*(ask(noted_stages, *each) for each in some))
        await client.shutdown()
        await gateway.messages.close()
        await ask(brokers.close)

    assert len(expected) == COUNT
    outcomes = Outcomes(records)
    for number, (steps, relatives_found) in enumerate(found):
        family, kind = expected[key_of(number)], KINDS[number % len(KINDS)]
        assert {stage_of(step) for step in steps} == expected_stages(family, outcomes), kind
        assert relatives_found.problems == []
        if number < len(noted):
            assert noted[number] == expected_events(family, outcomes), kind
