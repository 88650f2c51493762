"""The compiled turn and its Python twin leave the same bytes, answers and counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from broker_core.store.consume_queue import ConsumeQueue
from broker_core.trace.deliveries import DELIVERIES_MAX, Delivered
from broker_core.trace.filter import TraceWatch
from broker_core.trace.watch import FRESH_MAX, Watcher
from broker_core.trace.watched_messages import WatchedMessages
from tests.support import pull_frames, send_frames
from tests.support.twins import DISKS, TOPICS, Pair, Twin, configuration, is_compiled, settled
from tests.support.waiting import until_async
from tools.fuzz import native

if TYPE_CHECKING:
    import random

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="no compiled turn: python -m broker_core.native.build"
)

ROUNDS = 6
FRAMES_A_ROUND = 100
WAITING_ROUNDS = 200
PULL_STAGES = ["woken", "filtered", "delivered", "acknowledged"]
FUZZED_FRAMES = 4_000
BULK_FRAMES = 200_000
FRAMES_A_TURN = 8
FRAMES_A_LOOK = 400


@pytest.mark.parametrize(
    ("keys", "peer"),
    [
        ({}, ("10.0.0.1", 1234)),
        ({"brokerIP1": "2001:db8::1"}, ("10.0.0.1", 1234)),
        ({}, ("2001:db8::2", 65535)),
        ({"messageIndexEnable": "false", "regionId": 'R%d"é'}, ("10.0.0.1", 1)),
        ({"mappedFileSizeConsumeQueue": 2000, "mappedFileSizeCommitLog": 1 << 17}, ("1.2.3.4", 1)),
        ({"maxIndexNum": 300}, ("1.2.3.4", 1)),
        ({"enabledAppendPropCRC": "true"}, ("1.2.3.4", 1)),
        ({"maxTransferCountOnMessageInMemory": 5, "slaveReadEnable": "true"}, ("1.2.3.4", 1)),
        ({"maxTransferBytesOnMessageInMemory": 3000}, ("1.2.3.4", 1)),
        ({"longPollingEnable": "false"}, ("1.2.3.4", 1)),
        ({"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": 65536}, ("1.2.3.4", 1)),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else value[0],
)
async def test_mixed_frames_in_random_pieces_leave_the_same(
    keys: dict[str, object], peer: tuple[str, int], rng: random.Random
) -> None:
    async with Pair(configuration(**keys), peer=peer) as pair:
        opaque = 0
        for _ in range(ROUNDS):
            stream = b""
            for _ in range(FRAMES_A_ROUND):
                opaque += 1
                stream += pull_frames.any_request(rng, TOPICS, opaque - 50)
            for piece in send_frames.pieces(rng, stream):
                await pair.feed(piece)
            pair.same()
            pair.advance_ms(rng.randrange(3))
            for twin in (pair.native, pair.python):
                twin.clock.step_wall_clock_ms(-(opaque % 2))
        assert not pair.native.transport.closed


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"longPollingEnable": "false"},
        {"slaveReadEnable": "true", "maxTransferCountOnMessageInMemory": 1},
        {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": 65536},
    ],
    ids=lambda keys: ",".join(keys),
)
async def test_waiting_pulls_end_the_same(keys: dict[str, object], rng: random.Random) -> None:
    async with Pair(configuration(**keys)) as pair:
        store = pair.native.parts.store
        for number in range(WAITING_ROUNDS):
            stream = b""
            for each in range(rng.randrange(1, 6)):
                topic, queue_id = rng.choice(TOPICS), rng.randrange(4)
                end = store.max_offset_in_queue(topic, queue_id)
                stream += (
                    pull_frames.pull_at_the_end(rng, topic, queue_id, end, number * 10 + each)
                    if rng.random() < 0.7
                    else send_frames.any_frame(rng, TOPICS, number * 10 + each)
                )
            await pair.feed(stream)
            pair.advance_ms(rng.choice((0, 0, 500, 4_000)))
            await settled()
            native, python = pair.native.seen(), pair.python.seen()
            for name in native.keys() - DISKS:
                assert native[name] == python[name], name
            for twin in (pair.native, pair.python):
                # Then waiting pulls are handed over.
                twin.clients.slow_consumers.is_watching = number % 40 > 20
                if number % 40 == 39:
                    twin.parts.parked_pulls.close(twin.connection)
                    twin.connect()


@pytest.mark.parametrize("rounds_a_push", [1, 50])
@pytest.mark.parametrize(
    "options",
    [
        {"stages": PULL_STAGES},
        {"stages": PULL_STAGES, "sample": 3},
        {"stages": ["acknowledged", "filtered"], "group": pull_frames.SUBSCRIBED, "topic": "O*"},
    ],
    ids=lambda options: ",".join(options),
)
async def test_a_watch_gets_the_same_for_pulls(
    options: dict[str, Any], rounds_a_push: int, rng: random.Random
) -> None:
    async with Pair(configuration()) as pair:
        reports = [events_of("watcher", twin, **options) for twin in (pair.native, pair.python)]
        for number in range(ROUNDS * FRAMES_A_ROUND // 4):
            stream = b"".join(
                pull_frames.any_request(rng, TOPICS, number * 4 + each) for each in range(4)
            )
            topic, queue_id = rng.choice(TOPICS), rng.randrange(4)
            end = pair.native.parts.store.max_offset_in_queue(topic, queue_id)
            stream += pull_frames.pull_at_the_end(rng, topic, queue_id, end, number * 4)
            await pair.feed(stream)
            pair.advance_ms(rng.choice((0, 1, 500)))
            if number % rounds_a_push == 0:
                for twin in (pair.native, pair.python):
                    twin.parts.tracer.push_all()
                assert reports[0] == reports[1]
        for twin in (pair.native, pair.python):
            twin.parts.tracer.push_all()
        assert reports[0] == reports[1]
        assert {event["stage"] for event in reports[0]} == set(options["stages"])
        native, python = pair.native.seen(), pair.python.seen()
        # For a watched put, Python stores the times of its steps.
        for name in native.keys() - DISKS - {"state"}:
            assert native[name] == python[name], name


@pytest.mark.parametrize("rounds_a_push", [1, 50])
@pytest.mark.parametrize(
    ("options", "slaves"),
    [
        ({"sample": 2}, 0),
        ({"sample": 2}, 1),
        ({"sample": 3, "stages": ["flushed", "dispatched", "replicated"], "topic": "O*"}, 1),
    ],
    ids=["sample, no slave", "sample", "sample,stages,topic"],
)
async def test_a_sampled_watch_gets_the_same_for_sends_and_later_stages(
    options: dict[str, Any],
    slaves: int,
    rounds_a_push: int,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Pair(configuration()) as pair:
        reports = [events_of("watcher", twin, **options) for twin in (pair.native, pair.python)]
        for twin in (pair.native, pair.python):
            followed = twin.parts.tracer.watched_messages
            if slaves:
                followed.replicated("10.0.0.9:1", 0, 0.0)
            # Normally the disk thread decides when; here the test does.
            monkeypatch.setattr(followed, "flushed", lambda *_: None)
        for number in range(ROUNDS * FRAMES_A_ROUND // 8):
            stream = b"".join(
                pull_frames.any_request(rng, TOPICS, number * 8 + each) for each in range(8)
            )
            await pair.feed(stream)
            pair.advance_ms(rng.choice((0, 1, 500)))
            if number % rounds_a_push:
                continue
            for twin in (pair.native, pair.python):
                tracer, end = twin.parts.tracer, twin.parts.store.files.log.max_offset
                if number % 3:
                    WatchedMessages.flushed(
                        tracer.watched_messages, end, twin.clock.monotonic(), number % 5
                    )
                if slaves:
                    tracer.watched_messages.replicated("10.0.0.9:1", end, twin.clock.monotonic())
            await settled()
            for twin in (pair.native, pair.python):
                twin.parts.tracer.push_all()
            # Within one turn the twins report in different orders.
            assert_same_events(*reports)
        stages = {event["stage"] for event in reports[0]}
        assert stages >= {"stored", "flushed"}
        assert ("replicated" in stages) == bool(slaves)


async def test_noted_events_are_reported_before_pythons_own() -> None:
    async with Pair(configuration()) as pair:
        reports = [events_of("watcher", twin, sample=2) for twin in (pair.native, pair.python)]
        fields = send_frames.fields_of(TOPICS[0], 0, f"UNIQ_KEY\x01{sampled_keys(9)[0]}")
        await pair.feed(send_frames.send(fields, b"body", 1))
        for twin in (pair.native, pair.python):
            twin.parts.tracer.emit("expired", TOPICS[0], 0, 0, {"UNIQ_KEY": sampled_keys(9)[0]})
            twin.parts.tracer.push_all()
        assert [event["stage"] for event in reports[0]] == ["stored", "expired"]
        assert reports[0] == reports[1]


async def test_a_former_watcher_receives_the_events_noted_until_then() -> None:
    async with Pair(configuration()) as pair:
        native = pair.native.parts.tracer
        report, others = (events_of(name, pair.native, sample=2) for name in ("a", "b"))
        keys = sampled_keys(400)
        for number, key in enumerate(keys):
            fields = send_frames.fields_of(TOPICS[0], 0, f"UNIQ_KEY\x01{key}")
            await pair.feed(send_frames.send(fields, b"body", number))
        assert report == others == []
        native.watch("a", TraceWatch(topic="other"), Watcher(lambda _: True))
        native.push_all()
        assert [event["uniqKey"] for event in report] == keys
        assert [event["uniqKey"] for event in others] == keys


async def test_a_failed_notification_is_logged_and_undoes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Pair(configuration()) as pair:
        report = events_of("watcher", pair.native, sample=2)
        followed = pair.native.parts.tracer.watched_messages
        followed.replicated("10.0.0.9:1", 0, 0.0)
        # Python handles the first one of a queue.
        fields = send_frames.fields_of(TOPICS[0], 0, "UNIQ_KEY\x01plain")
        await pair.feed(send_frames.send(fields, b"body", 98))
        report.clear()
        with monkeypatch.context() as patch:
            patch.setattr(followed, "stored", lambda _: 1 / 0)
            for number, key in enumerate(sampled_keys(9)):
                fields = send_frames.fields_of(TOPICS[0], 0, f"UNIQ_KEY\x01{key}")
                await pair.feed(send_frames.send(fields, b"body", number))
            pair.native.parts.tracer.push_all()
        assert f"trace events lost count={len(sampled_keys(9))}" in caplog.text
        # Only the steps after a put weren't possible.
        assert [event["uniqKey"] for event in report] == sampled_keys(9)


async def test_deliveries_beyond_the_limit_drop_the_oldest() -> None:
    async with Pair(configuration()) as pair:
        group, topic = pull_frames.SUBSCRIBED, TOPICS[0]
        for twin in (pair.native, pair.python):
            events_of("watcher", twin, sample=2, stages=["delivered", "acknowledged"])
            deliveries = twin.parts.tracer.deliveries
            for number in range(DELIVERIES_MAX):
                other = ("g", "T", number % 3)
                deliveries.note(other, number, Delivered({}, number, "", 0, 0.0, None))
        for number in range(40):
            fields = send_frames.fields_of(topic, 0, f"UNIQ_KEY\x01K{number}")
            await pair.feed(send_frames.send(fields, b"body", number))
        for number in range(0, 40, 4):
            pulled = pull_frames.fields_of(topic, 0, number, flags=2, most=4)
            await pair.feed(pull_frames.pull(pulled, number))
        pair.native.parts.tracer.emit_noted()
        native, python = (twin.parts.tracer.deliveries for twin in (pair.native, pair.python))
        handed = len(sampled_keys(40))
        assert [number for _, number in native.order] == [number for _, number in python.order]
        assert len(native.order) == DELIVERIES_MAX
        assert {queue: list(each) for queue, each in native.queues.items() if each} == {
            queue: list(each) for queue, each in python.queues.items() if each
        }
        assert len(native.queues[group, topic, 0]) == handed > 10
        assert min(native.queues["g", "T", 0]) >= handed


async def test_a_queue_of_another_class_is_left_to_python() -> None:
    class OtherQueue(ConsumeQueue):
        __slots__ = ()

    async with Pair(configuration()) as pair:
        fields = send_frames.fields_of(TOPICS[0], 0, "UNIQ_KEY\x01K")
        await pair.feed(send_frames.send(fields, b"body", 1))
        for twin in (pair.native, pair.python):
            twin.parts.store.files.queues.table[TOPICS[0]][0].__class__ = OtherQueue
        plain = pair.native.wire.plain_requests
        assert plain is not None
        left = plain.fallbacks["queue"]
        for number in range(20):
            fields = send_frames.fields_of(TOPICS[0], number % 2, f"UNIQ_KEY\x01K{number}")
            pulled = pull_frames.fields_of(TOPICS[0], number % 2, 0, flags=3)
            await pair.feed(
                send_frames.send(fields, b"body", number) + pull_frames.pull(pulled, number)
            )
        native, python = pair.native.seen(), pair.python.seen()
        for name in native.keys() - DISKS:
            assert native[name] == python[name], name
        # Messages of the other class, and the first message of the other queue.
        assert plain.fallbacks["queue"] - left == 10 + 1


async def test_a_slave_ignores_offsets_in_pulls_but_a_master_moves_them() -> None:
    async with Pair(configuration()) as pair:
        key = f"{TOPICS[0]}@{pull_frames.SUBSCRIBED}"
        for number in range(8):
            fields = send_frames.fields_of(TOPICS[0], 0, f"UNIQ_KEY\x01K{number}")
            await pair.feed(send_frames.send(fields, b"body", number))

        async def pull(offset: int) -> list[int]:
            fields = pull_frames.fields_of(
                TOPICS[0], 0, offset, flags=pull_frames.COMMIT, most=1, commit=offset
            )
            await pair.feed(pull_frames.pull(fields, offset))
            return [twin.parts.offsets.table[key][0] for twin in (pair.native, pair.python)]

        moved = [await pull(offset) for offset in (1, 2)]
        for twin in (pair.native, pair.python):
            twin.parts.offsets.is_dirty = False
            await twin.foundation.role.changed("SLAVE", 1)
        left = await pull(3)
        are_left_clean = not (
            pair.native.parts.offsets.is_dirty or pair.python.parts.offsets.is_dirty
        )
        for twin in (pair.native, pair.python):
            await twin.foundation.role.changed("SYNC_MASTER")
        again = await pull(4)

        assert (moved, left, again) == ([[1, 1], [2, 2]], [2, 2], [4, 4])
        assert are_left_clean
        assert pair.native.parts.offsets.is_dirty


async def test_a_flush_of_topics_with_and_without_filters_is_reported_in_log_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Pair(configuration()) as pair:
        twin = pair.native
        tracer = twin.parts.tracer
        report = events_of("all", twin, sample=2, stages=["flushed"])
        flushed = tracer.watched_messages.flushed
        monkeypatch.setattr(tracer.watched_messages, "flushed", lambda *_: None)
        topics = [TOPICS[0 if number % 3 else 2] for number in range(40)]
        for number, topic in enumerate(topics):
            text = f"UNIQ_KEY\x01K{number}\x02"
            await pair.feed(send_frames.send(send_frames.fields_of(topic, 0, text), b"body", 1))
        # Messages to the first topic are matched against this filter from now on.
        events_of("one", twin, topic=TOPICS[0], tag="none")
        flushed(twin.parts.store.files.log.max_offset, twin.clock.monotonic(), 40)
        await settled()
        tracer.push_all()

        sampled = sampled_keys(40)
        assert [event["uniqKey"] for event in report] == sampled
        assert [event["topic"] for event in report] == [topics[int(key[1:])] for key in sampled]
        assert len({event["topic"] for event in report}) == 2


async def test_the_turns_reports_are_matched_against_filters_of_later_watchers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Pair(configuration()) as pair:
        twin = pair.native
        tracer = twin.parts.tracer
        events_of("first", twin, sample=2)
        flushed = tracer.watched_messages.flushed
        monkeypatch.setattr(tracer.watched_messages, "flushed", lambda *_: None)
        for number in range(20):
            text = f"UNIQ_KEY\x01K{number}\x02colour\x01{'red' if number % 4 else 'blue'}"
            await pair.feed(send_frames.send(send_frames.fields_of("Orders", 0, text), b"body", 1))
        report = events_of("later", twin, properties={"colour": "blue"}, stages=["flushed"])
        flushed(twin.parts.store.files.log.max_offset, twin.clock.monotonic(), 20)
        await settled()
        tracer.push_all()

        assert [event["uniqKey"] for event in report] == [
            key for key in sampled_keys(20) if int(key[1:]) % 4 == 0
        ]
        assert all(event["together"] == 20 and "steps" not in event for event in report)


async def test_a_watchs_unnumbered_events_are_limited_even_without_pushes() -> None:
    async with Pair(configuration()) as pair:
        events_of("watcher", pair.native, sample=2)
        stored = 0
        for number in range(0, 3 * FRESH_MAX, FRAMES_A_TURN):
            fields = send_frames.fields_of(TOPICS[0], 0, f"UNIQ_KEY\x01{sampled_keys(10)[0]}")
            await pair.feed(send_frames.send(fields, b"body", number) * FRAMES_A_TURN)
            event_sinks = pair.native.parts.tracer.event_sinks.of_puts[TOPICS[0]]
            assert event_sinks is not None
            (watch,) = event_sinks.stored
            stored = max(stored, len(watch.fresh))
        assert FRESH_MAX // 2 < stored < FRESH_MAX


def events_of(name: str, twin: Twin, **options: Any) -> list[dict[str, Any]]:
    """Watch a twin; return the list that receives its pushes."""
    reports: list[dict[str, Any]] = []

    def take(body: bytes) -> bool:
        reports.extend(json.loads(body)["events"])
        return True

    twin.parts.tracer.watch(name, TraceWatch(**options), Watcher(take))
    return reports


def sampled_keys(count: int) -> list[str]:
    """Return which of the keys K0, K1 and so on are in a sample of 2."""
    return [f"K{number}" for number in range(count) if crc32(b"K%d" % number) % 2 == 0]


def assert_same_events(*report: list[dict[str, Any]]) -> None:
    """Compare everything except the numbers, which must go up to the count."""
    native, python = (
        sorted(
            ({name: value for name, value in event.items() if name != "seq"} for event in events),
            key=lambda event: json.dumps(event, sort_keys=True),
        )
        for events in report
    )
    assert native == python
    for events in report:
        assert [int(event["seq"]) for event in events] == list(range(1, len(events) + 1))


class Terms:
    """One slave, which may fall behind by this many bytes."""

    slaves = 1
    timeout_s = 3.0

    def __init__(self, fall_behind_max: int) -> None:
        self.fall_behind_max = fall_behind_max


@pytest.mark.parametrize("fall_behind_max", [1 << 28, 20_000])
async def test_sends_waiting_for_a_slave_leave_the_same(
    fall_behind_max: int, rng: random.Random
) -> None:
    async with Pair(configuration()) as pair:
        stores = [twin.parts.store for twin in (pair.native, pair.python)]
        for store in stores:
            store.take_role(is_slave=False, terms=Terms(fall_behind_max))
            store.acknowledge.replicated(0)
        for number in range(ROUNDS * 8):
            stream = b"".join(
                pull_frames.any_request(rng, TOPICS, number * 100 + each) for each in range(20)
            )
            for piece in send_frames.pieces(rng, stream):
                await pair.feed(piece)
            for store in stores if number % 8 else ():
                store.acknowledge.replicated(store.max_commit_log_offset if number % 9 else -1)
            if number % 5 == 0:
                pair.advance_ms(3_100)
            await settled()
            pair.same()
        for store in stores:
            store.acknowledge.fail()
        await settled()
        assert pair.same()["in_flight"] == 0


async def until_durable(twin: Twin) -> None:
    """Wait for the disk thread: oneway puts are also reported after their flush."""
    log = twin.parts.store.files.log
    await until_async(
        lambda: not twin.wire.in_flight and log.flushed_where == log.max_offset, "the disk"
    )


async def test_sends_waiting_for_the_disk_leave_the_same(rng: random.Random) -> None:
    async with Pair(configuration(flushDiskType="SYNC_FLUSH")) as pair:
        for number in range(ROUNDS):
            for each in range(40):
                await pair.feed(send_frames.any_frame(rng, TOPICS, number * 100 + each) * 3)
            await until_durable(pair.native)
            await until_durable(pair.python)
            await settled()
        native, python = pair.native.seen(), pair.python.seen()
        # The disk thread decides how many are answered at a time, and which waiters are woken when.
        for seen in (native, python):
            seen["answers"] = sorted(send_frames.frames_in(seen["answers"]))
            del seen["attempts"], seen["read_limit"]
        assert native == python


async def test_fuzzed_frames_leave_the_same(rng: random.Random) -> None:
    async with Pair(configuration()) as pair:
        for number in range(FUZZED_FRAMES):
            data = pull_frames.any_request(rng, TOPICS, number)
            if rng.random() < 0.7:
                data = send_frames.damaged(rng, data)
            await pair.feed(data, settle=number % FRAMES_A_TURN == 0)
            if number % FRAMES_A_LOOK == 0:
                pair.same()
            if pair.native.transport.closed:
                assert pair.native.transport.written == pair.python.transport.written
                pair.reconnect()
        pair.same()


async def test_many_mutated_frames_give_the_same_result_in_the_turn_and_in_python(
    rng: random.Random,
) -> None:
    count = await native.fuzz(rng, BULK_FRAMES)

    assert count > BULK_FRAMES // 20
