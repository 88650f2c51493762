from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.formats import record
from broker_core.message.ids import parse_offset_msg_id
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.client import Client, json_body, messages
from tests.support.clock import ManualClock
from tests.support.producer import COMMIT, ROLLBACK, UNKNOWN, Producer
from tests.support.time_steps import pass_time
from tests.support.trace_watch import Watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker
    from broker_core.protocol.command import RemotingCommand

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, clock=clock, transactionCheckMax=2) as running:
        yield running


@pytest.fixture
async def producer(broker: Broker) -> AsyncIterator[Producer]:
    made = Producer(f"127.0.0.1:{broker.listen_port}")
    yield made
    await made.shutdown()


async def bodies(client: Client, topic: str = "T") -> list[bytes]:
    return [message.body for message in messages(await client.pull(topic))]


async def test_commit_delivers_the_message_and_rollback_never_does(producer: Producer) -> None:
    yes = await producer.half(b"yes", UNIQ_KEY="yes")
    no = await producer.half(b"no", UNIQ_KEY="no")
    assert await bodies(producer) == []

    assert (await producer.end(yes, COMMIT)).code == ResponseCode.SUCCESS
    assert (await producer.end(no, ROLLBACK)).code == ResponseCode.SUCCESS

    (message,) = messages(await producer.pull("T"))
    assert (message.body, message.sys_flag, message.topic) == (b"yes", 8, "T")
    assert message.properties["UNIQ_KEY"] == "yes"


async def test_no_request_shows_a_half_message(broker: Broker, producer: Producer) -> None:
    sent = await producer.half(KEYS="k")
    place = parse_offset_msg_id(sent.ext_fields["msgId"])
    assert place is not None
    window = {"beginTimestamp": 0, "endTimestamp": 1 << 60, "maxNum": 32}

    assert broker.storage.topics.find(HALF_TOPIC) is not None
    assert (await producer.pull(HALF_TOPIC)).code == ResponseCode.NO_PERMISSION
    by_id = await producer.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=place.commit_log_offset)
    assert (by_id.code, by_id.body) == (ResponseCode.SYSTEM_ERROR, b"")
    for topic in ("T", HALF_TOPIC):
        for key in ("k", "U1"):
            found = await producer.ask(RequestCode.QUERY_MESSAGE, topic=topic, key=key, **window)
            assert (found.code, found.body) == (ResponseCode.QUERY_NOT_FOUND, b"")
    assert (await producer.pull("T")).body == b""


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"producerGroup": "other"}, "The producer group wrong"),
        ({"tranStateTableOffset": 7}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 1 << 50}, "Find prepared transaction message failed"),
    ],
)
async def test_a_mismatched_end_is_rejected(
    producer: Producer, wrong: dict[str, Any], remark: str
) -> None:
    sent = await producer.half()

    answer = await producer.end(sent, COMMIT, **wrong)

    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert await bodies(producer) == []


async def test_the_producer_is_checked_and_its_answer_counts(
    producer: Producer, clock: ManualClock
) -> None:
    await producer.join()
    sent = await producer.half(b"body")

    await pass_time(clock, 60_000)

    question = await producer.question()
    message = record.decode(question.body)
    assert question.is_oneway
    assert question.ext_fields["msgId"] == question.ext_fields["transactionId"] == "U1"
    place = parse_offset_msg_id(question.ext_fields["offsetMsgId"])
    assert place is not None
    assert str(place.commit_log_offset) == question.ext_fields["commitLogOffset"]
    assert (message.topic, message.queue_id, message.body) == ("T", 0, b"body")
    assert message.properties["PGROUP"] == "pg"
    assert question.ext_fields["tranStateTableOffset"] != sent.ext_fields["queueOffset"]
    assert (await producer.answer(question, COMMIT)).code == ResponseCode.SUCCESS
    assert await bodies(producer) == [b"body"]


async def test_any_live_producer_of_the_group_is_checked(
    producer: Producer, clock: ManualClock
) -> None:
    gone = Producer(producer.address)
    stranger = Producer(producer.address, "other")
    for one in (gone, stranger, producer):
        await one.join()
    await gone.half(b"orphan")
    await gone.shutdown()

    await pass_time(clock, 60_000)
    question = await producer.question()
    await producer.answer(question, ROLLBACK)

    assert stranger.questions.empty()
    await pass_time(clock, 60_000)
    assert producer.questions.empty()
    assert await bodies(producer) == []
    await stranger.shutdown()


async def test_an_unknown_state_is_not_answered_and_queried_again(
    producer: Producer, clock: ManualClock
) -> None:
    await producer.join()
    sent = await producer.half()
    place = parse_offset_msg_id(sent.ext_fields["msgId"])
    assert place is not None
    with pytest.raises(Exception, match="did not answer"):
        await producer.ask(
            RequestCode.END_TRANSACTION,
            timeout_s=0.1,
            producerGroup="pg",
            tranStateTableOffset=0,
            commitLogOffset=place.commit_log_offset,
            commitOrRollback=UNKNOWN,
        )

    await pass_time(clock, 60_000)
    first = await producer.question()
    await pass_time(clock, 60_000)
    second = await producer.question()

    times = [
        record.decode(one.body).properties["TRANSACTION_CHECK_TIMES"] for one in (first, second)
    ]
    assert times == ["1", "2"]


async def test_a_parked_transaction_is_listed_and_can_be_resumed(
    producer: Producer, clock: ManualClock
) -> None:
    await producer.join()
    await producer.half(b"parked")
    await pass_time(clock, 190_000)
    await producer.join()
    (parked,) = messages(await producer.pull("TRANS_CHECK_MAX_TIME_TOPIC"))
    while not producer.questions.empty():
        producer.questions.get_nowait()

    refused = await producer.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId="00" * 16)
    msg_id = f"7F000001{0:08X}{parked.commit_log_offset:016X}"
    resumed = await producer.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=msg_id)

    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == (
        "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: "
        "it is not a half message that was checked too often."
    )
    assert resumed.code == ResponseCode.SUCCESS
    await pass_time(clock, 60_000)
    await producer.answer(await producer.question(), COMMIT)
    assert await bodies(producer) == [b"parked"]


async def test_a_watcher_sees_a_withheld_or_deferred_message_when_it_reaches_its_topic(
    producer: Producer, clock: ManualClock
) -> None:
    events: asyncio.Queue[RemotingCommand] = asyncio.Queue()
    watcher = Client(
        producer.address, {RequestCode.TRACE_EVENTS: lambda command, _: events.put_nowait(command)}
    )
    await watcher.ask(RequestCode.TRACE_WATCH, b'{"topic":"T","stages":["stored"]}')

    half = await producer.half(b"half", UNIQ_KEY="half")
    await producer.send("T", b"later", UNIQ_KEY="later", DELAY="1")
    await producer.end(half, COMMIT)
    await pass_time(clock, 2_000)

    seen: list[str] = []
    while len(seen) < 2:
        waiting = asyncio.create_task(events.get())
        while not waiting.done():
            await pass_time(clock, 50)
        seen += [event["uniqKey"] for event in json_body(waiting.result())["events"]]
    assert seen == ["half", "later"]
    await watcher.shutdown()


async def test_a_watcher_sees_a_half_message_withheld_checked_and_decided(
    producer: Producer, clock: ManualClock
) -> None:
    watched = Watched(producer.address)
    await producer.join()
    stages = ["withheld", "checked", "committed", "stored", "rolled_back"]
    await watched.begin(topic="T", stages=stages)

    await producer.half(b"half")
    await pass_time(clock, 61_000)
    question = await producer.question()
    await producer.answer(question, COMMIT)
    no = await producer.half(b"no", UNIQ_KEY="U2")
    await pass_time(clock, 1_000)
    await producer.end(no, ROLLBACK)

    events = await watched.next(6, lambda: pass_time(clock, 50))
    assert [(event["stage"], event["uniqKey"]) for event in events] == [
        ("withheld", "U1"),
        ("checked", "U1"),
        ("committed", "U1"),
        ("stored", "U1"),
        ("withheld", "U2"),
        ("rolled_back", "U2"),
    ]
    assert events[1]["checkTimes"] == 1
    assert events[2]["latencyUs"] > 0
    assert {event["topic"] for event in events} == {"T"}
    assert [event["uniqKey"] for event in await watched.recorded(ask="errors")] == ["U2"]
    await watched.shutdown()


async def test_a_watcher_sees_a_deferred_message_with_its_level_and_time(
    producer: Producer, clock: ManualClock
) -> None:
    watched = Watched(producer.address)
    await watched.begin(topic="T", stages=["deferred", "stored"])

    await producer.send("T", b"later", UNIQ_KEY="later", DELAY="1")
    await pass_time(clock, 2_000)

    deferred, stored = await watched.next(2, lambda: pass_time(clock, 50))
    assert (deferred["stage"], stored["stage"]) == ("deferred", "stored")
    assert deferred["delayLevel"] == 1
    assert int(stored["timeMs"]) >= int(deferred["dueMs"])
    assert deferred["messageId"] == stored["messageId"] == "later"
    await watched.shutdown()


async def test_transactions_may_be_forbidden(tmp_path: Path) -> None:
    async with running_broker(tmp_path, rejectTransactionMessage="true") as broker:
        producer = Producer(f"127.0.0.1:{broker.listen_port}")

        answer = await producer.half()

        assert answer.code == ResponseCode.NO_PERMISSION
        assert "sending transaction message is forbidden" in (answer.remark or "")
        await producer.shutdown()


async def test_transactions_can_be_forbidden_and_checked_differently_while_the_broker_runs(
    broker: Broker, clock: ManualClock
) -> None:
    producer = Producer(f"127.0.0.1:{broker.listen_port}")
    await producer.join()
    await producer.half()
    changes = (
        b"transactionTimeOut=1000\ntransactionCheckInterval=2000\ntransactionCheckMax=9\n"
        b"rejectTransactionMessage=true\n"
    )

    await pass_time(clock, 60_000)
    await producer.question()
    await producer.ask(RequestCode.UPDATE_BROKER_CONFIG, changes)
    refused = await producer.half(b"later", UNIQ_KEY="U2")

    assert refused.code == ResponseCode.NO_PERMISSION
    # The current wait keeps its length; later ones are changed.
    for wait_ms in (60_000, 2_000, 2_000):
        await pass_time(clock, wait_ms)
        await producer.question()
    assert producer.questions.empty()
    await producer.shutdown()


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_restart_forgets_no_transaction(
    tmp_path: Path, clock: ManualClock, flush_disk_type: str
) -> None:
    async with running_broker(tmp_path, clock=clock, flushDiskType=flush_disk_type) as broker:
        producer = Producer(f"127.0.0.1:{broker.listen_port}")
        done = await producer.half(b"done", UNIQ_KEY="done")
        await producer.end(done, COMMIT)
        await producer.half(b"undecided", UNIQ_KEY="undecided")
        await producer.shutdown()

    async with running_broker(tmp_path, clock=clock, flushDiskType=flush_disk_type) as broker:
        producer = Producer(f"127.0.0.1:{broker.listen_port}")
        await producer.join()
        await pass_time(clock, 60_000)
        question = await producer.question()
        assert record.decode(question.body).body == b"undecided"
        await producer.answer(question, COMMIT)
        assert await bodies(producer) == [b"done", b"undecided"]
        assert producer.questions.empty()
        await producer.shutdown()


async def test_a_transaction_can_end_while_its_half_message_is_buffered(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with running_broker(
        tmp_path, clock=clock, transientStorePoolEnable="true", transientStorePoolSize=2
    ) as broker:
        producer = Producer(f"127.0.0.1:{broker.listen_port}")
        sent = await producer.half(b"yes")
        assert (await producer.end(sent, COMMIT)).code == ResponseCode.SUCCESS
        assert await bodies(producer) == []

        async def commit_later() -> None:
            assert await bodies(producer) == []  # the parked pull arrived before this one
            await pass_time(clock, 200)

        pulled, _ = await asyncio.gather(producer.pull("T", suspend_ms=15_000), commit_later())

        assert [message.body for message in messages(pulled)] == [b"yes"]
        await producer.shutdown()


async def test_undecided_transactions_are_listed_and_a_producer_is_checked_immediately(
    producer: Producer, clock: ManualClock
) -> None:
    await producer.join()
    for body in (b"one", b"two"):
        await producer.half(body)
    await pass_time(clock, 5_000)

    listed = json_body(await producer.ask(RequestCode.GET_HALF_MESSAGES))
    rest = json_body(await producer.ask(RequestCode.GET_HALF_MESSAGES, fromOffset=1))
    answer = await producer.ask(RequestCode.CHECK_HALF_MESSAGE, queueOffset=1)
    question = await producer.question()
    await producer.answer(question, COMMIT)

    assert answer.code == ResponseCode.SUCCESS
    assert [each["queueOffset"] for each in listed["halves"]] == [0, 1]
    first = listed["halves"][0]
    assert (first["topic"], first["group"], first["bodySize"]) == ("T", "pg", 3)
    assert (first["checkTimes"], first["ageMs"] >= 5_000) == (0, True)
    assert (listed["total"], listed["next"]) == (2, -1)
    assert [each["queueOffset"] for each in rest["halves"]] == [1]
    assert await bodies(producer) == [b"two"]
    # An extra check doesn't count.
    left = json_body(await producer.ask(RequestCode.GET_HALF_MESSAGES))
    assert [(each["queueOffset"], each["checkTimes"]) for each in left["halves"]] == [(0, 0)]


async def test_a_check_is_rejected_without_a_producer_and_without_a_transaction(
    producer: Producer,
) -> None:
    await producer.half(b"orphan")

    alone = await producer.ask(RequestCode.CHECK_HALF_MESSAGE, queueOffset=0)
    nowhere = await producer.ask(RequestCode.CHECK_HALF_MESSAGE, queueOffset=7)

    assert alone.code == ResponseCode.SYSTEM_ERROR
    assert "no producer of the transaction's group is connected" in (alone.remark or "")
    assert nowhere.code == ResponseCode.QUERY_NOT_FOUND
    assert "no undecided transaction is at 7" in (nowhere.remark or "")


async def fates(producer: Producer, **by: Any) -> list[tuple[str, str, int]]:
    found = json_body(await producer.ask(RequestCode.GET_HALF_MESSAGES, **by))
    return [(each["msgId"], each["outcome"], each["checkTimes"]) for each in found["halves"]]


async def test_half_messages_are_found_by_key_and_offset_with_their_outcome(
    producer: Producer, clock: ManualClock
) -> None:
    sent = [await producer.half(UNIQ_KEY=f"U{number}", KEYS="a k") for number in range(3)]
    await producer.end(sent[0], COMMIT)
    await producer.end(sent[1], ROLLBACK)

    assert await fates(producer, key="k") == [
        ("U0", "committed", 0),
        ("U1", "rolled_back", 0),
        ("U2", "undecided", 0),
    ]
    assert await fates(producer, queueOffset=1) == [("U1", "rolled_back", 0)]
    assert await fates(producer, key="U") == await fates(producer, queueOffset=99) == []
    refused = await producer.ask(RequestCode.GET_HALF_MESSAGES, queueOffset=-1)
    assert refused.code == ResponseCode.SYSTEM_ERROR

    await pass_time(clock, 4 * 61_000)
    assert await fates(producer, key="U2") == [("U2", "given_up", times) for times in range(3)]


async def test_a_transactions_outcome_is_known_from_the_log_after_a_restart(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as broker:
        producer = Producer(f"127.0.0.1:{broker.listen_port}")
        sent = [await producer.half(UNIQ_KEY=f"U{number}", KEYS="k") for number in range(3)]
        await producer.end(sent[0], COMMIT)
        await producer.end(sent[1], ROLLBACK)
        await producer.shutdown()
    async with running_broker(tmp_path) as broker:
        producer = Producer(f"127.0.0.1:{broker.listen_port}")
        found = await fates(producer, key="k")
        await producer.shutdown()

    assert [outcome for _key, outcome, _times in found] == ["committed", "rolled_back", "undecided"]
