"""Many viewers: some don't read or reconnect; bursts, permissions, levels and the recorder."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml

from broker_core.message import properties
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.signature import Credentials
from broker_core.remoting.client import RemotingClient
from tests.support import send_frames
from tests.support.broker import running_broker
from tests.support.client import Client
from tests.support.clock import ManualClock
from tests.support.raw_remoting import request
from tests.support.time_steps import pass_time
from tests.support.trace_watch import Watched
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker

BURST = 10_000
FRAMES_AT_ONCE = 500
SECRET = "12345678"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(
        tmp_path,
        hostWatcherNumsMax=64,
        flushDiskType="SYNC_FLUSH",
        # The kernel buffers little for a viewer that doesn't read.
        serverSocketSndBufSize=65_536,
    ) as running:
        yield running


@pytest.fixture
async def watched(client: Client) -> AsyncIterator[Watched]:
    made = Watched(client.address)
    yield made
    await made.shutdown()


async def send_burst(broker: Broker, count: int, topic: str = "T") -> None:
    """Send messages as fast as they are answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.listen_port)
    for begin in range(0, count, FRAMES_AT_ONCE):
        numbers = range(begin, min(begin + FRAMES_AT_ONCE, count))
        for number in numbers:
            text = properties.encode({"UNIQ_KEY": f"U{number}"})
            writer.write(send_frames.send(send_frames.fields_of(topic, 0, text), b"", number))
        for _ in numbers:
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert b'"code":0' in await reader.readexactly(size)
    writer.close()


def offered(watched: Watched) -> dict[str, int]:
    last = watched.batches[-1]["offered"] if watched.batches else {}
    return {stage: int(count) for stage, count in last.items()}


def is_all_there(watched: Watched, **stages: int) -> bool:
    """Whether each stage has the given number of events, arrived or lost."""
    if offered(watched) != stages:
        return False
    come = sum(len(batch["events"]) for batch in watched.batches)
    return come + int(watched.batches[-1]["dropped"]) == sum(stages.values())


async def test_each_stage_of_a_burst_has_arrived_or_is_counted(
    broker: Broker, client: Client, watched: Watched
) -> None:
    capped = Watched(client.address)
    await client.send("T")
    await watched.begin(topic="T")
    await capped.begin(topic="T", eventsPerSecondMax=1_000)

    await send_burst(broker, BURST)

    for each in (watched, capped):
        await until_async(
            lambda each=each: is_all_there(each, stored=BURST, flushed=BURST),  # type: ignore[misc]
            "all events to arrive or to be counted",
        )
    assert int(capped.batches[-1]["dropped"]) > 0
    # A number is missing for each lost event, and only for those.
    numbers = [int(event["seq"]) for event in capped.events]
    assert len(set(numbers)) == len(numbers)
    assert numbers == sorted(numbers)
    assert int(capped.batches[-1]["lastSeq"]) == 2 * BURST
    await capped.shutdown()


async def test_fifty_viewers_each_receive_everything(broker: Broker, client: Client) -> None:
    viewers = [Watched(client.address) for _ in range(50)]
    await client.send("T")
    for viewer in viewers:
        await viewer.begin(topic="T", stages=["stored"])

    await send_burst(broker, 200)

    for viewer in viewers:
        assert [event["uniqKey"] for event in await viewer.next(200)] == [
            f"U{number}" for number in range(200)
        ]
        await viewer.shutdown()


async def test_a_viewer_that_does_not_read_blocks_no_other_and_learns_what_it_lost(
    broker: Broker, client: Client, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_core.trace.watch.RING_EVENTS", 1_000)
    await client.send("T")
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.listen_port, limit=1 << 16)
    writer.write(request(RequestCode.TRACE_WATCH, {}, b'{"topic":"T","stages":["stored"]}'))
    await until_async(lambda: broker.storage.tracer.watchers == 1, "the viewer to watch")
    transport = cast("asyncio.Transport", writer.transport)
    transport.pause_reading()
    await watched.begin(topic="T", stages=["stored"], eventsPerSecondMax=1)
    connections = [each for each in broker.requests.server.connections if each.unsent_bytes == 0]

    count = 0
    while all(each.is_writable for each in connections) and count < 200_000:
        await send_burst(broker, 2_000)
        count += 2_000
    await send_burst(broker, 3_000)
    count += 3_000
    await until_async(
        lambda: offered(watched).get("stored") == count, "the other viewer to be notified"
    )
    transport.resume_reading()

    come, last, dropped = 0, 0, 0
    async with asyncio.timeout(60):
        while last != count:
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size)
            come += frame.count(b'"stage":"stored"')
            text = frame.partition(b'"dropped":"')[2]
            if text:
                dropped = int(text.partition(b'"')[0])
                last = come + dropped
    assert dropped >= 2_000
    writer.close()


async def test_a_viewer_continues_where_it_was_after_losing_its_connection(
    broker: Broker, client: Client, watched: Watched
) -> None:
    await client.send("T")
    await watched.begin(topic="T", stages=["stored"])
    await send_burst(broker, 10)
    await watched.next(10)
    await watched.shutdown()
    await until_async(lambda: broker.storage.tracer.watchers == 0, "the broker to miss it")
    await send_burst(broker, 5)

    again = Watched(client.address)
    lost = {"watchId": watched.watch_id, "lastSeq": "10", "received": "10"}
    await again.begin(topic="T", stages=["stored"], resume=lost)

    assert again.is_resumed
    assert again.watch_id == watched.watch_id
    assert [event["seq"] for event in await again.next(5)] == ["11", "12", "13", "14", "15"]
    assert again.batches[-1]["dropped"] == "0"
    await again.shutdown()


async def test_a_watch_of_an_earlier_process_starts_over(client: Client, watched: Watched) -> None:
    await watched.begin(resume={"watchId": "0a0b0c0d-1", "lastSeq": "10", "received": "10"})

    assert not watched.is_resumed


async def test_a_watcher_sees_readable_events_until_its_permission_is_revoked(
    tmp_path: Path,
) -> None:
    path = tmp_path / "conf" / "plain_acl.yml"
    path.parent.mkdir()

    def write(topics: list[str]) -> None:
        accounts = [
            {"accessKey": "administrator", "secretKey": SECRET, "admin": True},
            {"accessKey": "application", "secretKey": SECRET, "topicPerms": topics},
        ]
        path.write_text(yaml.safe_dump({"accounts": accounts}))

    write(["T=SUB", "secret=PUB"])
    async with running_broker(tmp_path, aclEnable="true") as broker:
        address = f"127.0.0.1:{broker.listen_port}"
        admin, watched = Client(address), Watched(address)
        admin.remoting = RemotingClient(signer=Credentials("administrator", SECRET))
        watched.sign(Credentials("application", SECRET))
        await watched.begin(stages=["stored"])

        await admin.send("secret", UNIQ_KEY="hidden")
        await admin.send("T", UNIQ_KEY="shown")
        assert [event["uniqKey"] for event in await watched.next(1)] == ["shown"]
        recorded = await watched.client.ask(RequestCode.TRACE_RECORDED)
        level = await watched.client.ask(RequestCode.TRACE_LEVEL)

        write(["T=DENY", "U=SUB"])
        assert broker.access.acl is not None
        await until_async(lambda: "U=SUB" in path.read_text(), "the file")
        await broker.access.acl.refresh()
        await admin.send("T", UNIQ_KEY="not any more")
        await admin.send("U", UNIQ_KEY="now")
        events = await watched.next(2)

        assert [event["uniqKey"] for event in events] == ["shown", "now"]
        assert recorded.code == ResponseCode.SUCCESS
        assert "Need admin permission" in (level.remark or "")
        await watched.shutdown()
        await admin.shutdown()


async def consume(client: Client) -> None:
    await client.heartbeat(consumer_groups={"g": {"T": "*"}})
    await client.pull("T", max_msg_nums=2)
    await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0, commitOffset=2
    )


async def test_unwatched_events_are_requested_afterwards(client: Client, watched: Watched) -> None:
    await client.send("T", UNIQ_KEY="first", keys="k")
    await client.send("T", UNIQ_KEY="second")
    await consume(client)
    await client.send("no such topic!", UNIQ_KEY="refused")

    slowest = await watched.recorded(ask="slowest", filter={"stages": ["delivered"]})
    place = {"topic": "T", "queueId": 0, "queueOffset": "1"}
    of_one = await watched.recorded(ask="message", filter={"message": place})
    errors = await watched.recorded(ask="errors")

    (delivered,) = slowest
    assert (delivered["fromOffset"], delivered["queueOffset"]) == ("0", "2")
    assert (delivered["messageId"], delivered["keys"]) == ("first", "k")
    assert [event["stage"] for event in of_one] == ["delivered", "acknowledged"]
    assert [(event["stage"], event["uniqKey"]) for event in errors] == [("refused", "refused")]


async def test_the_slowest_hundred_of_ten_minutes_are_a_hundred_and_none_is_older(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as broker:
        watched = Watched(f"127.0.0.1:{broker.listen_port}")
        tracer = broker.storage.tracer

        def keep(number: int, latency_us: int) -> None:
            msg_id = f"{number:032X}"
            tracer.keep("stored", "T", 0, number, {}, offset_msg_id=msg_id, latency_us=latency_us)

        keep(0, 9_000_000)
        await pass_time(clock, 10 * 60_000 + 1)
        for number in range(1, 151):
            # Latencies in an order unrelated to that of times.
            keep(number, number * 7 % 151 * 1_000)

        slowest = await watched.recorded(ask="slowest", minutes=10)
        all_of_them = await watched.recorded(ask="slowest", minutes=10, limit=151)

        latencies = [event["latencyUs"] for event in slowest]
        assert latencies == [number * 1_000 for number in range(150, 50, -1)]
        assert len(all_of_them) == 150
        await watched.shutdown()


async def test_the_level_full_keeps_every_event_and_ends_by_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        watched = Watched(client.address)
        await watched.level(level="full", minutes=5)
        await client.send("T", UNIQ_KEY="U")

        stored = await watched.recorded(ask="message", filter={"key": "U"})
        await pass_time(clock, 5 * 60_000)
        after = await watched.level()
        await client.send("T", UNIQ_KEY="V")

        assert [event["stage"] for event in stored] == ["stored"]
        assert after["level"] == "recorder"
        assert "fullUntilMs" in after
        assert await watched.recorded(ask="message", filter={"key": "V"}) == []
        await watched.shutdown()
        await client.shutdown()


@pytest.mark.parametrize("before", ["watched", "recorder"])
async def test_the_level_before_full_is_restored(before: str, tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock, traceLevel=before) as broker:
        watched = Watched(f"127.0.0.1:{broker.listen_port}")

        at_first = await watched.level()
        await watched.level(level="full", minutes=5)
        await watched.level(level="full", minutes=1)
        await pass_time(clock, 60_000)

        assert at_first["level"] == before
        assert (await watched.level())["level"] == before
        await watched.shutdown()


async def test_at_the_level_watched_everything_is_pushed_and_nothing_kept(
    client: Client, watched: Watched
) -> None:
    await watched.begin(topic="T")
    await watched.level(level="watched")
    await client.send("T", UNIQ_KEY="seen")
    await consume(client)

    events = await watched.next(1)
    level = await watched.level()

    assert events[0]["uniqKey"] == "seen"
    assert await watched.recorded() == []
    assert (level["level"], level["entries"]) == ("watched", 0)


async def test_when_disabled_nothing_is_noted_or_pushed(client: Client, watched: Watched) -> None:
    await client.send("T", UNIQ_KEY="before")
    await consume(client)
    await watched.begin(topic="T")
    await watched.level(level="off")
    await client.send("T", UNIQ_KEY="unseen")
    await watched.level(level="recorder")
    await client.send("T", UNIQ_KEY="seen")

    events = await watched.next(1)

    assert events[0]["uniqKey"] == "seen"
    assert await watched.recorded() == []


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        (RequestCode.TRACE_LEVEL, {"level": "loud"}, "the level of the trace cannot be read"),
        (RequestCode.TRACE_LEVEL, {"level": "full"}, "requires minutes"),
        (RequestCode.TRACE_LEVEL, {"level": "off", "minutes": 5}, "requires minutes"),
        (RequestCode.TRACE_LEVEL, {"level": "full", "minutes": 61}, "cannot be read"),
        (RequestCode.TRACE_RECORDED, {"ask": "message"}, "by its place or its key"),
        (RequestCode.TRACE_RECORDED, {"limit": 10**6}, "cannot be read"),
        (RequestCode.TRACE_RECORDED, {"filter": {"properties": {"a": "1"}}}, "doesn't store"),
        (RequestCode.TRACE_WATCH, {"resume": {"watchId": "1", "lastSeq": "x"}}, "cannot be read"),
    ],
)
async def test_an_impossible_request_is_rejected_with_an_explanation(
    client: Client, code: RequestCode, body: dict[str, Any], words: str
) -> None:
    answer = await client.ask(code, json.dumps(body).encode())

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert words in (answer.remark or "")
