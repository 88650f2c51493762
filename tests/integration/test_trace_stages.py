"""The stages of messages as a watcher sees them, from received to acknowledged or skipped."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from broker_core.message import properties
from broker_core.message.names import retry_topic
from broker_core.protocol.codes import RequestCode
from tests.support.broker import running_broker
from tests.support.client import Client, messages
from tests.support.pair import running_slave
from tests.support.trace_watch import Watched
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(
        tmp_path, flushDiskType="SYNC_FLUSH", enablePropertyFilter="true"
    ) as running:
        yield running


@pytest.fixture
async def watched(client: Client) -> AsyncIterator[Watched]:
    made = Watched(client.address)
    yield made
    await made.shutdown()


async def commit(client: Client, queue_offset: int) -> None:
    await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup="g",
        topic="T",
        queueId=0,
        commitOffset=queue_offset,
    )


async def test_a_message_is_traced_from_received_to_acknowledged_in_microseconds(
    client: Client, watched: Watched
) -> None:
    await client.send("T")
    await watched.begin(topic="T")
    waiting = asyncio.ensure_future(client.pull("T", 1, suspend_ms=30_000))  # noqa: TID251
    await asyncio.sleep(0)

    await client.send("T", UNIQ_KEY="U")
    await waiting
    await commit(client, 2)

    events = await watched.next(5)
    by_stage = {event["stage"]: event for event in events if event.get("uniqKey") == "U"}
    assert {"stored", "flushed", "delivered", "acknowledged"} <= set(by_stage)
    steps = by_stage["stored"]["steps"]
    assert list(steps) == ["received", "validated", "appended", "dispatched"]
    assert sorted(steps.values()) == list(steps.values())
    assert by_stage["flushed"]["together"] == 1
    assert by_stage["delivered"]["source"] == "memory"
    assert by_stage["delivered"]["totalUs"] >= by_stage["flushed"]["totalUs"] > 0
    assert by_stage["acknowledged"]["totalUs"] >= by_stage["acknowledged"]["latencyUs"]
    assert {event["messageId"] for event in by_stage.values()} == {"U"}
    assert [event["atUs"] for event in events] == sorted(
        (event["atUs"] for event in events), key=int
    )


@pytest.mark.parametrize(
    ("more", "stage"),
    [({"TRAN_MSG": "true", "PGROUP": "pg"}, "withheld"), ({"DELAY": "18"}, "deferred")],
)
async def test_a_waiting_put_has_its_steps_and_is_on_disk_like_any_other(
    client: Client, watched: Watched, more: dict[str, str], stage: str
) -> None:
    await watched.begin(topic="T", stages=["received", "flushed"])

    sent = await client.ask(
        RequestCode.SEND_MESSAGE_V2,
        b"waits",
        a="pg",
        b="T",
        c="TBW102",
        d=4,
        e=0,
        f=4 if stage == "withheld" else 0,
        g=1,
        h=0,
        i=properties.encode({"UNIQ_KEY": "U", **more}),
        j=0,
    )

    waits, flushed = await watched.next(2)
    assert sent.code == 0
    assert (waits["stage"], flushed["stage"]) == (stage, "flushed")
    assert list(waits["steps"]) == ["received", "validated", "appended", "dispatched"]
    assert flushed["latencyUs"] > 0
    places = [
        (each["messageId"], each["topic"], each["commitLogOffset"]) for each in (waits, flushed)
    ]
    assert places[0] == places[1]


@pytest.mark.parametrize(("level", "stage"), [(0, "deferred"), (-1, "dead")])
async def test_a_copied_message_without_a_key_is_reported_as_that_message(
    client: Client, watched: Watched, level: int, stage: str
) -> None:
    await client.heartbeat(consumer_groups={"g": {"T": "*"}})
    await client.send("T")
    await watched.begin(stages=["given_back", stage, "delivered", "flushed"])
    message = messages(await client.pull("T"))[0]

    await client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        group="g",
        offset=message.commit_log_offset,
        delayLevel=level,
    )

    delivered, *others = await watched.next(4 if stage == "deferred" else 3)
    assert {event["stage"] for event in others} == {stage, "flushed"} | (
        {"given_back"} if stage == "deferred" else set()
    )
    assert {event["messageId"] for event in others} == {delivered["messageId"]}


async def test_a_delivery_reports_its_member_bytes_and_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The page cache is empty.
    monkeypatch.setattr("broker_core.storage.OsFile.pread_resident", lambda *_: None)
    async with running_broker(tmp_path, accessMessageInMemoryMaxRatio=0) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        watched = Watched(client.address)
        await client.heartbeat("member-1", consumer_groups={"g": {"T": "*"}})
        await client.send("T", b"cold", UNIQ_KEY="U")
        await watched.begin(topic="T", stages=["delivered"])

        pulled = await client.pull("T")

        (event,) = await watched.next(1)
        assert (event["group"], event["clientId"]) == ("g", "member-1")
        assert (event["storeSize"], event["bodySize"]) == (len(pulled.body), len(b"cold"))
        assert event["source"] == "disk"
        await watched.shutdown()
        await client.shutdown()


async def test_a_waiting_pull_is_woken_by_the_new_message(
    broker: Broker, client: Client, watched: Watched
) -> None:
    await client.send("T")
    await watched.begin(topic="T", stages=["woken"])
    waiting = asyncio.ensure_future(client.pull("T", 1, suspend_ms=30_000))  # noqa: TID251
    await until_async(lambda: len(broker.storage.parked_pulls) == 1, "a pull to wait")

    await client.send("T", UNIQ_KEY="U")
    await waiting

    (event,) = await watched.next(1)
    assert (event["uniqKey"], event["group"], event["queueOffset"]) == ("U", "g", "1")
    assert event["latencyUs"] > 0


@pytest.mark.parametrize(
    ("subscription", "by"),
    [
        ({"subscription": "A"}, "tag"),
        ({"subscription": "a > 1", "expression_type": "SQL92"}, "sql"),
    ],
)
async def test_messages_skipped_by_a_filter_are_reported_with_the_reason(
    client: Client, watched: Watched, subscription: dict[str, Any], by: str
) -> None:
    await client.send("T", tags="B", a="1", UNIQ_KEY="over")
    await client.send("T", tags="A", a="2", UNIQ_KEY="taken")
    await client.send("T", tags="B", a="1", UNIQ_KEY="over, too")
    await watched.begin(topic="T", group="g")

    await client.pull("T", max_msg_nums=8, **subscription)

    events = await watched.next(3)
    assert [(event["stage"], event["uniqKey"], event.get("filteredBy")) for event in events] == [
        ("delivered", "taken", None),
        ("filtered", "over", by),
        ("filtered", "over, too", by),
    ]


async def test_messages_skipped_by_a_bitmap_are_distinguished_from_examined_records(
    tmp_path: Path,
) -> None:
    async with running_broker(
        tmp_path,
        enablePropertyFilter="true",
        enableConsumeQueueExt="true",
        enableCalcFilterBitMap="true",
    ) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        watched = Watched(client.address)
        # From before the filter: it has no bitmap.
        await client.send("T", price="1", UNIQ_KEY="looked at")
        await client.heartbeat(consumer_groups={"g": {"T": "price > 10"}}, expression_type="SQL92")
        # The filter's bits count for messages sent in this millisecond.
        found = broker.storage.filters.find("T", "g")
        assert found is not None
        found.born_time -= 1
        for price in (5, 15, 6):
            await client.send("T", price=str(price), UNIQ_KEY=f"price {price}")
        await watched.begin(topic="T", stages=["delivered", "filtered"])

        await client.pull("T", max_msg_nums=8, subscription=None)

        events = await watched.next(4)
        assert [
            (event["stage"], event["uniqKey"], event.get("filteredBy")) for event in events
        ] == [
            ("delivered", "price 15", None),
            ("filtered", "looked at", "sql"),
            ("filtered", "price 5", "bitmap"),
            ("filtered", "price 6", "bitmap"),
        ]
        await watched.shutdown()
        await client.shutdown()


async def test_a_slave_with_a_message_is_reported(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "m") as master,
        running_slave(tmp_path / "s", master),
    ):
        client = Client(f"127.0.0.1:{master.listen_port}")
        watched = Watched(client.address)
        await client.send("T")
        await watched.begin(topic="T", stages=["replicated"])
        # A slave's reports count for messages stored after its first report to a watched broker.
        async with asyncio.timeout(60):
            for number in range(1_000):
                await client.send("T", UNIQ_KEY=f"U{number}")
                if watched.events:
                    break
                await asyncio.sleep(0.01)

        event = watched.events[0]
        assert event["client"].startswith("127.0.0.1:")
        assert event["uniqKey"].startswith("U")
        assert event["latencyUs"] > 0
        await watched.shutdown()
        await client.shutdown()


async def test_a_console_send_that_repeats_a_dead_letter_is_a_replay(
    client: Client, watched: Watched
) -> None:
    await watched.begin(stages=["replayed"])

    await client.send("T", TREBUCHET_REPLAY="run-7")

    (event,) = await watched.next(1)
    assert event["replay"] == "run-7"


async def test_a_sample_applies_to_all_stages_and_both_twins(
    client: Client, watched: Watched
) -> None:
    keys = [f"key of message {number}" for number in range(32)]
    chosen = [key for key in keys if crc32(key.encode()) % 4 == 0]
    await watched.begin(topic="T", sample=4)

    for key in keys:
        await client.send("T", UNIQ_KEY=key)
    await client.pull("T", max_msg_nums=32)
    await commit(client, 32)

    events = await watched.next(4 * len(chosen))
    assert 2 <= len(chosen) <= 16
    assert Counter((event["stage"], event["uniqKey"]) for event in events) == Counter(
        (stage, key)
        for stage in ("stored", "flushed", "delivered", "acknowledged")
        for key in chosen
    )


async def test_a_dead_retry_is_kept_for_later_queries(client: Client, watched: Watched) -> None:
    await client.heartbeat(consumer_groups={"g": {"T": "*"}})
    await client.send(retry_topic("g"), b"poison", UNIQ_KEY="U")
    await client.ask(
        RequestCode.SEND_MESSAGE_V2,
        b"poison",
        a="CLIENT_INNER_PRODUCER",
        b=retry_topic("g"),
        c="TBW102",
        d=4,
        e=0,
        f=0,
        g=1,
        h=0,
        i="UNIQ_KEY\x01U\x02",
        j=16,
        m="false",
    )

    events = await watched.recorded(ask="errors")

    assert [(event["stage"], event["messageId"]) for event in events] == [("dead", "U")]
