"""Which pulls the compiled turn accepts or leaves to Python, and live changes."""

from __future__ import annotations

import json
import struct
from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from broker_core.formats.record import examine
from broker_core.store.results import DamagedRange
from broker_core.trace.filter import TraceWatch
from broker_core.trace.watch import Watcher
from tests.support import pull_frames, send_frames
from tests.support.native_turn import TOPIC, a_send, a_twin, change, served
from tests.support.twins import Twin, is_compiled, settled

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator

compiled = pytest.mark.skipif(
    not is_compiled(), reason="no compiled turn: python -m broker_core.native.build"
)


@pytest.fixture
async def twin() -> AsyncIterator[Twin]:
    async for each in a_twin():
        yield each


def a_pull(queue_offset: int = 0, opaque: int = 1, *, flags: int = 2, **more: Any) -> bytes:
    fields = pull_frames.fields_of(TOPIC, 0, queue_offset, flags=flags, **more)
    return pull_frames.pull(fields, opaque)


@compiled
async def test_guarded_records_are_stored_and_pulled_by_the_turn(rng: random.Random) -> None:
    async for twin in a_twin(enabledAppendPropCRC="true"):
        await twin.feed(a_send(properties="UNIQ_KEY\x01A\x02"))
        texts = ("", "TAGS\x01größe", "UNIQ_KEY\x01A\x02WAIT\x01true\x02")
        for text in texts:
            assert await served(twin, a_send(properties=text, body=rng.randbytes(1000))) == 1
        state = twin.parts.store.files.put_state

        offset = 0
        with memoryview(state.buffer) as view:
            for _ in range(4):
                end = state.position
                head = examine(view, offset, end, offset, check_crc=True, is_guarded=True)
                offset += head.size
        assert offset == state.position
        assert await served(twin, a_send(properties="__CRC32#\x010123456789\x02")) == 0
        assert await served(twin, a_pull()) == 1


@compiled
@pytest.mark.parametrize("client", ["JAVA", "GO", "PYTHON"])
@pytest.mark.parametrize("flags", [0, 2, 4, 6])
async def test_client_pulls_are_served_by_the_compiled_turn(
    twin: Twin, client: str, flags: int
) -> None:
    await twin.feed(a_send(properties="TAGS\x01größe\x02") * 40)
    fields = pull_frames.fields_of(TOPIC, 0, 3, flags=flags, expression="größe || TagB")
    twin.transport.written.clear()

    assert await served(twin, pull_frames.pull(fields, 7, client=client) * 2) == 2

    answer = send_frames.frames_in(bytes(twin.transport.written))[1]
    assert b'"nextBeginOffset":"35"' in answer
    assert answer.count(b"hello") == 32
    assert twin.parts.stats.got_total == 64


@compiled
async def test_pulls_and_sends_of_one_stream_are_served_in_order(twin: Twin) -> None:
    await twin.feed(a_send())
    frames = [a_send(1), a_pull(1, 2), a_send(3), a_send(4), a_pull(2, 5), a_pull(3, 6)]
    twin.transport.written.clear()

    assert await served(twin, b"".join(frames)) == 6

    answers = send_frames.frames_in(bytes(twin.transport.written))
    assert len(answers) == 6
    for number, answer in enumerate(answers, 1):
        assert b'"opaque":%d,' % number in answer


@compiled
async def test_a_pull_across_log_files_is_served_whole() -> None:
    async for twin in a_twin(mappedFileSizeCommitLog=1 << 16):
        for _ in range(60):
            await twin.feed(a_send(body=bytes(4000)))
        assert len(twin.parts.store.files.log.files) > 3

        assert await served(twin, a_pull(5)) == 1

        assert twin.transport.written.endswith(bytes(4000) + ending_of_a_record())
        assert twin.parts.stats.got_total == 32


def ending_of_a_record() -> bytes:
    properties = b"CLUSTER\x01DefaultCluster"
    return bytes([len(TOPIC)]) + TOPIC.encode() + len(properties).to_bytes(2, "big") + properties


@compiled
async def test_a_reader_with_dropped_counters_is_counted_from_zero(twin: Twin) -> None:
    await twin.feed(a_send() * 3)
    stats = twin.parts.stats
    assert await served(twin, a_pull() * 2) == 2

    for forget in (
        partial(stats.forget_group, pull_frames.SUBSCRIBED),
        partial(stats.forget_topic, TOPIC),
    ):
        forget()

        assert await served(twin, a_pull()) == 1

        counter = stats.group_get_nums[f"{TOPIC}@{pull_frames.SUBSCRIBED}"]
        assert (counter.value, counter.times) == (3, 1)


@compiled
async def test_a_queues_first_commit_is_pythons_and_all_others_the_turns(twin: Twin) -> None:
    await twin.feed(a_send() * 9)

    assert await served(twin, a_pull(flags=1, commit=1)) == 0
    assert await served(twin, a_pull(flags=1, commit=2) + a_pull(flags=1, commit=-1)) == 2

    assert twin.parts.offsets.query(pull_frames.SUBSCRIBED, TOPIC, 0) == 2


@compiled
async def test_a_pull_outside_its_queue_not_readable_immediately_or_damaged_is_left_to_python(
    twin: Twin,
) -> None:
    await twin.feed(a_send() * 9)
    reader, quarantine = twin.parts.store.own_reads, twin.parts.store.files.quarantine
    assert reader is not None

    assert await served(twin, a_pull(10) + a_pull(-1) + a_pull(1 << 40)) == 0
    reader.memory_bytes, before = 0, reader.memory_bytes
    assert await served(twin, a_pull(1)) == 0
    twin.storage.is_resident = True
    assert await served(twin, a_pull(1)) == 1
    assert twin.transport.written.count(b"hello") == 16
    reader.memory_bytes = before
    quarantine.add(DamagedRange(0, 100, "a test"))
    assert await served(twin, a_pull(1)) == 0
    quarantine.cut_at(0)
    assert await served(twin, a_pull(1)) == 1


@compiled
async def test_a_record_away_from_its_units_offset_is_left_to_python(twin: Twin) -> None:
    await twin.feed(a_send() * 9)
    units = twin.parts.store.files.queues.table[TOPIC][0].buffer
    before = bytes(units[20:40])

    for offset, size in ((1, 100), (1 << 40, 100), (-5, 100), (0, -1), (0, 0), (0, 1 << 30)):
        units[20:40] = struct.pack(">qiq", offset, size, 0)
        assert await served(twin, a_pull(1)) == 0
    units[20:40] = before

    assert await served(twin, a_pull(1)) == 1


@compiled
async def test_limits_of_pulls_permissions_and_watchers_apply_immediately(twin: Twin) -> None:
    await twin.feed(a_send() * 40)
    change(twin, "maxTransferCountOnMessageInMemory", "5")

    assert await served(twin, a_pull()) == 1
    assert twin.parts.stats.got_total == 5

    change(twin, "maxTransferBytesOnMessageInMemory", "1")
    assert await served(twin, a_pull()) == 1
    assert twin.parts.stats.got_total == 6

    twin.clients.slow_consumers.is_watching = True
    assert await served(twin, a_pull()) == 0
    twin.clients.slow_consumers.is_watching = False
    assert await served(twin, a_pull()) == 1

    change(twin, "brokerPermission", "2")
    assert await served(twin, a_pull()) == 0
    assert b"pulling message is forbidden" in twin.transport.written


def a_watch(twin: Twin, **options: Any) -> list[dict[str, Any]]:
    """Start a watch; return the list that receives its events at once."""
    events: list[dict[str, Any]] = []

    def take(body: bytes) -> bool:
        events.extend(json.loads(body)["events"])
        return True

    twin.parts.tracer.watch("c", TraceWatch(**options), Watcher(take))
    return events


def pushed(twin: Twin, events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the events of each message since the previous call."""
    events.clear()
    twin.parts.tracer.push_all()
    return [(event["stage"], event.get("uniqKey", "")) for event in events]


def keyed(first: int, count: int) -> list[tuple[str, bytes]]:
    """Return messages with keys."""
    keys = [f"key {number}" for number in range(first, first + count)]
    return [(key, a_send(properties=f"UNIQ_KEY\x01{key}\x02")) for key in keys]


def is_in(sample: int, key: str) -> bool:
    return crc32(key.encode()) % sample == 0


@compiled
async def test_each_sampled_message_is_reported_at_all_stages_and_no_pull_is_left_to_python(
    twin: Twin,
) -> None:
    before = keyed(0, 40)
    after = keyed(40, 40)
    await twin.feed(b"".join(frame for _, frame in before))
    await served(twin, a_pull(flags=1, commit=0))
    events = a_watch(twin, sample=5, stages=["stored", "delivered", "acknowledged"])

    assert await served(twin, b"".join(frame for _, frame in after)) == 40
    assert pushed(twin, events) == [("stored", key) for key, _ in after if is_in(5, key)]
    pulls = [a_pull(offset, flags=1, commit=offset, most=25) for offset in (0, 25, 50, 75, 80)]
    assert await served(twin, b"".join(pulls)) == 5

    report = pushed(twin, events)
    expected = [key for key, _ in before + after if is_in(5, key)]
    assert sorted(report) == sorted(
        (stage, key) for stage in ("delivered", "acknowledged") for key in expected
    )
    assert 5 < len(expected) < 40


@compiled
async def test_a_sample_of_more_messages_than_the_turn_notes_misses_none(twin: Twin) -> None:
    events = a_watch(twin, sample=2, stages=["delivered"])
    sends = keyed(0, 1_200)
    for begin in range(0, len(sends), 100):
        await twin.feed(b"".join(frame for _, frame in sends[begin : begin + 100]))
        # Python puts this one, which invalidates earlier notes.
        await twin.feed(a_send(properties="UNIQ_KEY\x01python\x02DELAY\x010\x02"))
    found = []
    for offset in range(0, 1_300, 30):
        await twin.feed(a_pull(offset, most=30))
        found += pushed(twin, events)

    reports = [key for _, key in found if key != "python"]
    assert reports == [key for key, _ in sends if is_in(2, key)]
    assert twin.transport.written.count(b"nextBeginOffset") > 1_200 // 30


@compiled
@pytest.mark.parametrize(
    "options",
    [
        {"topic": "Other"},
        {"topic": "Oth*", "sample": 10},
        {"group": "another"},
        {"stages": ["stored", "appended"]},
        {"errors_only": True},
        {"min_latency_us": {"stored": 5}},
    ],
)
async def test_a_watch_that_no_pull_can_match_gets_nothing_and_costs_no_event(
    twin: Twin, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await twin.feed(a_send(properties="UNIQ_KEY\x01A\x02") * 9)
    await served(twin, a_pull(flags=1, commit=0))
    events = a_watch(twin, **options)
    monkeypatch.setattr(twin.parts.tracer, "emit", None)

    assert await served(twin, a_pull(0) + a_pull(2, flags=1, commit=2)) == 2

    assert pushed(twin, events) == []
    assert twin.parts.offsets.query(pull_frames.SUBSCRIBED, TOPIC, 0) == 2


@compiled
async def test_a_full_watch_reports_pulls_that_wake_deliver_and_skip(
    twin: Twin,
) -> None:
    await twin.feed(a_send(properties="UNIQ_KEY\x01A\x02"))
    stages = ["woken", "delivered", "filtered", "acknowledged"]
    events = a_watch(twin, topic=TOPIC, stages=stages)
    assert await served(twin, a_pull(1, flags=6, expression="TagA")) == 1

    sends = [f"UNIQ_KEY\x01{key}\x02TAGS\x01{tag}\x02" for key, tag in (("B", "b"), ("C", "TagA"))]
    await twin.feed(b"".join(a_send(properties=text) for text in sends))
    await settled()

    assert pushed(twin, events) == [("woken", "C"), ("delivered", "C"), ("filtered", "B")]
    assert [event.get("filteredBy") for event in events] == [None, None, "tag"]


@compiled
async def test_a_failed_notification_does_not_keep_a_pull_from_its_answer(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await twin.feed(a_send() * 3)
    a_watch(twin)
    monkeypatch.setattr(twin.parts.tracer, "emit", None)
    twin.transport.written.clear()

    assert await served(twin, a_pull()) == 1

    assert twin.transport.written.count(b"hello") == 3
    assert "plain pull not traced" in caplog.text


@compiled
async def test_the_recorders_spans_continue_whatever_code_serves_the_pulls(twin: Twin) -> None:
    await twin.feed(a_send() * 40)
    recorder, group = twin.parts.tracer.recorder, pull_frames.SUBSCRIBED
    await served(twin, a_pull(0, flags=1, commit=0, most=4))

    assert await served(twin, a_pull(4, most=4) + a_pull(8, most=4)) == 2
    twin.clients.slow_consumers.is_watching = True
    assert await served(twin, a_pull(12, most=4)) == 0
    twin.clients.slow_consumers.is_watching = False
    assert await served(twin, a_pull(16, most=4) + a_pull(20, flags=1, commit=20, most=4)) == 2
    twin.clock.advance_ms(1_000)
    assert await served(twin, a_pull(24, flags=1, commit=24, most=4)) == 1
    assert await served(twin, a_pull(28, flags=1, commit=28, most=4)) == 1

    spans = [span for span in recorder.snapshot(0.0) if not isinstance(span, tuple)]
    assert [(span.queue, span.first, span.end) for span in spans] == [
        ((group, TOPIC, 0), 0, 24),
        ((group, TOPIC, 0), 24, 32),
    ]
    assert [bool(span.acknowledged_s) for span in spans] == [True, False]

    recorder.clear()
    assert await served(twin, a_pull(28, flags=1, commit=30, most=4)) == 1
    (span,) = recorder.snapshot(0.0)
    assert not isinstance(span, tuple)
    assert (span.first, span.end, span.acknowledged_s) == (28, 32, 0.0)


@compiled
async def test_any_replacement_of_the_pull_handler_is_used(twin: Twin) -> None:
    await twin.feed(a_send())
    requests = []

    def refuse(request: Any, _: object) -> None:
        requests.append(request.code)

    twin.wire.dispatcher.override({11: refuse})
    assert await served(twin, a_pull()) == 0
    twin.wire.dispatcher.override({})

    assert requests == [11]
    assert await served(twin, a_pull()) == 1


@compiled
async def test_a_peer_that_does_not_read_is_not_served(twin: Twin) -> None:
    await twin.feed(a_send(body=bytes(1000)) * 40)
    twin.connection.pause_writing()

    assert await served(twin, a_pull() * 9) == 0

    twin.connection.resume_writing()
    await settled()
    assert twin.parts.stats.got_total == 9 * 32
