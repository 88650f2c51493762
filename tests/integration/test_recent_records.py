"""A sample's data on the newest records, and on members that differ.

Each test samples twice: the first sample defines where "new" begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.stats.recent_records import (
    CLOCK_MIN_MS,
    HEAD_AGE_MS,
    KEYED_MIN,
    LARGE_KEPT_S,
    RECORDS_A_QUEUE_MAX,
    SPAN_S,
)
from tests.support.broker import running_broker
from tests.support.client import Client, json_body
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SHARED_MS = 1_001
LIMIT = 64 * 1024


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def client(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Client]:
    async with running_broker(
        tmp_path, clock=clock, maxMessageSize=LIMIT, accessMessageInMemoryMaxRatio=40
    ) as broker:
        made = Client(f"127.0.0.1:{broker.listen_port}")
        # Messages before the first sample aren't new.
        await made.send("T", b"x" * (LIMIT - 10), keys="old")
        await sample(made, clock)
        yield made
        await made.shutdown()


async def sample(client: Client, clock: ManualClock, after_ms: int = SHARED_MS) -> Any:
    clock.advance_ms(after_ms)
    answer = await client.ask(RequestCode.GET_BROKER_SAMPLE)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return json_body(answer)


async def test_events_before_the_first_check_are_not_reported(client, clock) -> None:
    body = await sample(client, clock)

    assert [body[name] for name in ("large", "keys", "clocks", "redelivered")] == [[]] * 4


async def test_the_largest_message_is_found_by_its_offset(client, clock) -> None:
    for size in (100, LIMIT - 4_000, LIMIT - 2_000, 200):
        await client.send("T", b"x" * size, queue_id=1)

    body = await sample(client, clock)

    assert body["large"] == [["T", LIMIT - 2_000, 1, 2]]
    assert body["gauges"]["maxMessageSize"] == LIMIT


async def test_many_small_messages_do_not_count_as_large(client, clock) -> None:
    for _ in range(30):
        await client.send("T", b"x" * (LIMIT // 10))

    assert (await sample(client, clock))["large"] == []


async def test_a_large_message_is_named_for_a_minute(client, clock) -> None:
    await client.send("T", b"x" * (LIMIT - 1))
    await sample(client, clock)

    assert (await sample(client, clock, round(LARGE_KEPT_S * 500)))["large"]
    assert (await sample(client, clock, round(LARGE_KEPT_S * 600)))["large"] == []


async def test_the_most_frequent_key_has_its_share_of_all_messages_not_of_those_read(
    client, clock
) -> None:
    # Three quarters of the messages are in one queue, of which a part is read.
    for number in range(3 * RECORDS_A_QUEUE_MAX):
        await client.send("T", keys=f"hot other-{number}", queue_id=0)
    for number in range(RECORDS_A_QUEUE_MAX):
        await client.send("T", keys=f"cold-{number}", queue_id=1)

    [[topic, per_mille, key]] = (await sample(client, clock))["keys"]

    assert (topic, key) == ("T", "hot")
    assert per_mille == 750


async def test_rarely_seen_keys_show_nothing(client, clock) -> None:
    for _ in range(RECORDS_A_QUEUE_MAX):
        await client.send("T", keys="hot")

    assert KEYED_MIN > RECORDS_A_QUEUE_MAX
    assert (await sample(client, clock))["keys"] == []


async def test_different_keys_are_not_hot(client, clock) -> None:
    for number in range(3 * RECORDS_A_QUEUE_MAX):
        await client.send("T", keys=f"order-{number}", queue_id=number % 3)

    assert (await sample(client, clock))["keys"] == []


async def test_a_clock_error_is_measured_by_the_nearest_message(client, clock) -> None:
    # These clients started with the broker's clock, which has advanced since.
    clock.advance_ms(40_000)
    for _ in range(3):
        clock.advance_ms(1_000)
        await client.send("T")

    [[host, ahead_ms, topic]] = (await sample(client, clock))["clocks"]

    assert (host, topic) == ("127.0.0.1", "T")
    assert -42_500 < ahead_ms < -41_000


async def test_one_late_message_is_not_a_wrong_clock(client, clock) -> None:
    for _ in range(3):
        await client.send("T")
    clock.advance_ms(60_000)
    await client.send("T")

    found = (await sample(client, clock))["clocks"]

    assert all(abs(row[1]) < CLOCK_MIN_MS * 3 for row in found)


async def test_waits_and_redeliveries_do_not_affect_clock_estimates(client, clock) -> None:
    clock.advance_ms(60_000)
    for name in ("REAL_TOPIC", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"):
        for _ in range(3):
            await client.send("T", **{name: "x"})

    assert (await sample(client, clock))["clocks"] == []


async def test_a_corrected_clock_is_forgotten(client, clock) -> None:
    clock.advance_ms(60_000)
    for _ in range(3):
        await client.send("T")
    assert (await sample(client, clock))["clocks"]

    body: Any = None
    for _ in range(12):
        body = await sample(client, clock, round(SPAN_S * 1000 / 5))

    assert body["clocks"] == []


async def test_members_with_equal_subscriptions_are_not_named(client, clock) -> None:
    await client.heartbeat("one", consumer_groups={"g": {"T": "A || B"}})
    other = Client(client.address)
    await other.heartbeat("two", consumer_groups={"g": {"T": "B||A"}})

    body = await sample(client, clock)
    await other.shutdown()

    assert body["clients"] == []


async def test_group_members_are_counted_by_language_and_version(client, clock) -> None:
    other = Client(client.address)
    await client.heartbeat("one", consumer_groups={"g": {"T": "*"}}, producer_groups=("p",))
    await other.heartbeat("two", consumer_groups={"g": {"T": "*"}})

    body = await sample(client, clock)
    await other.shutdown()
    await client.ask(RequestCode.UNREGISTER_CLIENT, clientID="one", producerGroup="p")
    later = await sample(client, clock)

    [[group, consumers]], [[producer_group, producers]] = body["consumers"], body["producers"]
    assert (group, list(consumers.values())) == ("g", [2])
    assert (producer_group, list(producers.values())) == ("p", [1])
    assert set(consumers) == set(producers)
    assert later["producers"] == []


async def test_members_with_different_expressions_are_named(client, clock) -> None:
    others = [Client(client.address) for _ in range(2)]
    await client.heartbeat("odd", consumer_groups={"g": {"T": "A"}})
    for number, each in enumerate(others):
        await each.heartbeat(f"usual-{number}", consumer_groups={"g": {"T": "*", "U": "*"}})

    body = await sample(client, clock)
    for each in others:
        await each.shutdown()

    [[group, versions, wants, odd]] = body["clients"]
    assert group == "g"
    assert list(versions.values()) == [3]
    assert wants == {"T: *; U: *": 2, "T: A": 1}
    assert odd == ["odd"]


async def test_the_message_that_blocks_a_group_is_described(client, clock) -> None:
    await client.send("T", b"poison", queue_id=1, UNIQ_KEY="7F01")
    await client.send("T", b"later", queue_id=2, UNIQ_KEY="7F02")
    clock.advance_ms(5_000)
    for queue_id in (1, 2):
        await client.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="g",
            topic="T",
            queueId=queue_id,
            commitOffset=0,
        )

    young = await sample(client, clock)
    clock.advance_ms(60_000)
    await sample(client, clock)
    old = await sample(client, clock, HEAD_AGE_MS - 60_000)

    assert young["heads"] == []
    assert old["heads"] == [["g", "T", 1, 0, "7F01", len(b"poison"), "127.0.0.1", 0]]


async def test_the_most_often_returned_message_is_named(client, clock) -> None:
    for times in (1, 3, 2):
        await client.ask(
            RequestCode.SEND_MESSAGE_V2,
            b"again",
            a="CLIENT_INNER_PRODUCER",
            b="%RETRY%g",
            c="TBW102",
            d="1",
            e="0",
            f="0",
            g=str(clock.now_ms()),
            h="0",
            i=f"ORIGIN_MESSAGE_ID\x017F0{times}",
            j=str(times),
            k="false",
            m="false",
        )

    assert (await sample(client, clock))["redelivered"] == [["g", 3, "%RETRY%g", 0, 1, "7F03"]]


async def test_disk_reads_are_counted_by_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_core.storage.OsFile.pread_resident", lambda *_: None)
    async with running_broker(tmp_path, accessMessageInMemoryMaxRatio=0) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        for _ in range(3):
            await client.send("T")
        await client.pull("T", group="export")

        body = json_body(await client.ask(RequestCode.GET_BROKER_SAMPLE))
        await client.shutdown()

    assert body["coldReads"] == [["export", "T", 3]]
