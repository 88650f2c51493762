"""Behaviour of Spark's Kafka source that users of the cluster source expect."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from analytics.errors import ReportError
from analytics.remote.cluster import Queue
from analytics.remote.connections import open_cluster
from analytics.sources.queue_ranges import QueueRange, shared
from analytics.sources.rocketmq_options import parse_options
from analytics.sources.stored_times import first_stored_from
from analytics.sources.stream_progress import Progress
from tests.analytics.sources.clusters import (
    NAMESRV,
    bodies_of,
    delete_topic,
    followed,
    options_of,
    reader_of,
    rows_of,
    send,
    stream_of,
)
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from datetime import datetime

    from tests.support.broker_process import BrokerProcess


def stored_ms(row: dict[str, Any]) -> int:
    moment: datetime = row["store_timestamp"]
    return round(moment.timestamp() * 1000)


def by_queue(rows: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["queue_offset"]):
        found.setdefault(row["queue_id"], []).append(row)
    return found


def test_each_queue_has_its_own_times(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, 120)
    every = by_queue(rows_of(reader_of(broker, subscribe=topic)))
    bounds = {
        queue_id: (stored_ms(rows[first]), stored_ms(rows[end]))
        for (queue_id, rows), first, end in zip(
            sorted(every.items()), (10, 35), (50, 40), strict=True
        )
    }
    starting, ending = (
        json.dumps({topic: {"broker-a": {str(one): at[side] for one, at in bounds.items()}}})
        for side in (0, 1)
    )

    found = rows_of(
        reader_of(
            broker,
            subscribe=topic,
            startingOffsetsByTimestamp=starting,
            endingOffsetsByTimestamp=ending,
        )
    )

    assert by_queue(found) == {
        queue_id: [
            row for row in rows if bounds[queue_id][0] <= stored_ms(row) < bounds[queue_id][1]
        ]
        for queue_id, rows in every.items()
    }
    stream = stream_of(broker, subscribe=topic, startingOffsetsByTimestamp=starting)
    offsets = Progress.of(stream.initialOffset()).offsets
    assert {queue.queue_id: offset for queue, offset in offsets.items()} == {
        queue_id: next(row["queue_offset"] for row in rows if stored_ms(row) >= bounds[queue_id][0])
        for queue_id, rows in every.items()
    }


@pytest.mark.parametrize("option", ["startingOffsetsByTimestamp", "startingTimestamp"])
def test_a_queue_without_such_a_recent_message_fails_or_starts_at_its_end(
    broker: BrokerProcess, topic: str, option: str
) -> None:
    send(broker, topic, 4)
    late = 4_000_000_000_000
    by_time = {topic: {"broker-a": {"0": late, "1": late}}}
    value = late if option == "startingTimestamp" else json.dumps(by_time)

    assert bodies_of(reader_of(broker, subscribe=topic, **{option: value})) == []
    failing = reader_of(
        broker,
        subscribe=topic,
        startingOffsetsByTimestampStrategy="error",
        **{option: value},
    )
    with pytest.raises(
        ReportError, match=f"queue [01] of {topic} .* has no message stored at {late}"
    ):
        failing.partitions()


def test_the_first_message_of_a_time_is_found_from_any_starting_point(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, topic, 60)
    rows = by_queue(rows_of(reader_of(broker, subscribe=topic)))[0]
    queue, extent = Queue(topic, "broker-a", 0), (0, len(rows))
    times = [stored_ms(row) for row in rows]
    access = parse_options(options_of(broker)).access

    for at_ms in (times[0] - 1, times[0], times[7], times[7] + 1, times[-1], times[-1] + 1):
        for guess in (0, 3, len(rows) - 1, len(rows), 10**6):

            async def search(cluster: Any, at_ms: int = at_ms, guess: int = guess) -> int:
                async def answer(*_: object) -> int:
                    return guess

                monkeypatch.setattr(cluster, "offset_by_time", answer)
                return await first_stored_from(cluster, queue, at_ms, extent, "g")

            with open_cluster(access) as cluster:
                found = cluster.run(search)
            assert found == sum(1 for one in times if one < at_ms)


def test_a_batch_waits_for_enough_messages_but_not_forever(
    broker: BrokerProcess, topic: str
) -> None:
    clock = ManualClock()
    stream = stream_of(
        broker,
        clock,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger=10,
        maxTriggerDelay="2m",
    )
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    send(broker, topic, 4)
    # The first batch of a query doesn't wait, as with Kafka.
    at = stream.latestOffset(stream.initialOffset(), limit)
    assert sum(Progress.of(at).offsets.values()) == 4

    send(broker, topic, 9, first=100)
    assert stream.latestOffset(at, limit) == at
    reported = stream.reportLatestOffset()
    assert reported is not None
    assert reported["metrics"]["totalOffsetsBehindLatest"] == 9
    assert stream.latestOffset(at, ReadAllAvailable()) != at  # Trigger.Once
    send(broker, topic, 1, first=200)
    assert stream.latestOffset(at, limit) != at

    again = stream.latestOffset(at, limit)
    send(broker, topic, 1, first=300)
    clock.advance_ms(119_000)
    assert stream.latestOffset(again, limit) == again
    clock.advance_ms(2_000)
    assert stream.latestOffset(again, limit) != again


def test_a_trigger_for_what_is_there_does_not_wait(broker: BrokerProcess, topic: str) -> None:
    sent = send(broker, topic, 7)
    stream = stream_of(
        broker,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger=5,
        maxOffsetsPerTrigger=5,
    )
    assert stream.getDefaultReadLimit() == ReadMaxRows(5)
    begun = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()

    assert sorted(followed(stream, begun, ReadMaxRows(5))[0]) == sent


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "at most maxOffsetsPerTrig"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'; it must be a duration such as"),
        ({"startingOffsetsByTimestampStrategy": "none"}, "it must be latest or error"),
        ({"startingOffsetsByTimestamp": '{"a": {"b": {"0": -2}}}'}, "a time must be at least 0"),
        ({"startingOffsetsByTimestamp": "{}", "startingOffsets": "latest"}, "can't be combined"),
        ({"maxRecordsPerPartition": "0"}, "must be a whole number of at least 1"),
        ({"mode": "DROPMALFORMED"}, "mode is 'DROPMALFORMED'; it must be FAILFAST or PERMISSIVE"),
        ({"rocketmq.pullThreshold": "8"}, "rocketmq has no option rocketmq.pullThreshold"),
    ],
)
def test_an_invalid_option_is_rejected(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ReportError, match=sentence):
        parse_options({"namesrvAddr": NAMESRV, "subscribe": "a", **options})


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("2h", 7200), ("500ms", 0.5), ("700", 0.7)]
)
def test_a_duration_is_written_in_sparks_form(text: str, seconds: float) -> None:
    expected = parse_options({"namesrvAddr": NAMESRV, "subscribe": "a", "maxTriggerDelay": text})

    assert expected.max_trigger_delay_s == pytest.approx(seconds)


@pytest.mark.parametrize(("least", "most"), [(0, 7), (5, 7), (20, 7), (2, 1000)])
def test_no_task_has_more_records_than_requested(least: int, most: int) -> None:
    ranges = [QueueRange(Queue("t", "b", number), 10, 10 + 9 * number) for number in range(6)]

    shares = [share.value for share in shared([one for one in ranges if one.size], least, most)]

    assert all(sum(one.size for one in share) <= most for share in shares)
    assert len(shares) >= least
    cut = sorted(one for share in shares for one in share)
    assert sum(one.size for one in cut) == sum(one.size for one in ranges)
    assert all(one.size for one in cut)


def test_progress_shows_how_far_the_stream_is_behind(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, 21)
    stream = stream_of(broker, subscribe=topic, startingOffsets="earliest")
    assert stream.reportLatestOffset() is None

    end = stream.latestOffset(stream.initialOffset(), ReadMaxRows(5))

    reported = stream.reportLatestOffset()
    assert reported is not None
    assert reported["offsets"] == {topic: {"broker-a": {"0": 11, "1": 10}}}
    ends = Progress.of(end).offsets
    lags = [11 - ends[Queue(topic, "broker-a", 0)], 10 - ends[Queue(topic, "broker-a", 1)]]
    assert reported["metrics"] == {
        "minOffsetsBehindLatest": min(lags),
        "maxOffsetsBehindLatest": max(lags),
        "avgOffsetsBehindLatest": sum(lags) / 2,
        "totalOffsetsBehindLatest": sum(lags),
    }


def test_tasks_of_a_process_share_their_connections(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    connect = asyncio.BaseEventLoop.create_connection

    async def counted(loop: Any, factory: Any, host: str, port: int, **more: Any) -> Any:
        made.append(f"{host}:{port}")
        return await connect(loop, factory, host, port, **more)

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", counted)
    send(broker, topic, 40)
    made.clear()
    # A separate access, so that there are no connections of other tests.
    reader = reader_of(broker, subscribe=topic, minPartitions=8, timeoutMs=12_345)

    assert len(rows_of(reader)) == 40
    stream = stream_of(broker, subscribe=topic, startingOffsets="earliest", timeoutMs=12_345)
    followed(stream, stream.initialOffset())

    assert sorted(made) == sorted({broker.namesrv, f"127.0.0.1:{broker.port}"})


def test_a_connection_closed_by_the_broker_is_reopened(broker: BrokerProcess, topic: str) -> None:
    sent = send(broker, topic, 4)
    reader = reader_of(broker, subscribe=topic)
    assert bodies_of(reader) == sent
    broker.stop()
    broker.start()

    assert bodies_of(reader) == sent


def test_pulls_ask_for_no_more_messages_than_requested(broker: BrokerProcess, topic: str) -> None:
    sent = send(broker, topic, 30)

    assert bodies_of(reader_of(broker, subscribe=topic, **{"rocketmq.pullBatchSize": 4})) == sent


def test_a_route_is_looked_up_for_each_read(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, 4)
    reader = reader_of(broker, subscribe=topic)
    assert len(rows_of(reader)) == 4
    delete_topic(broker, topic)

    with pytest.raises(ReportError, match=f"has no topic {topic}"):
        reader.partitions()
