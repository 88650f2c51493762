"""Which twin handles plain sends, which ones the compiled turn accepts, and live changes."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.errors import ConfigError
from broker_core.formats.record import MESSAGE_MAGIC, QUEUE_OFFSET_POSITION
from broker_core.native import build as native_build, constants, loading, paths
from broker_core.protocol.command import parts_of
from broker_core.trace.filter import TraceWatch
from broker_core.trace.watch import Watcher
from tests.support import send_frames, transaction_frames
from tests.support.broker_process import ROOT
from tests.support.native_turn import TOPIC, a_send, a_twin, change, served, with_slave
from tests.support.twins import LISTENED, Twin, is_compiled, settled

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator
    from pathlib import Path


compiled = pytest.mark.skipif(
    not is_compiled(), reason="no compiled turn: python -m broker_core.native.build"
)


@pytest.fixture
async def twin() -> AsyncIterator[Twin]:
    async for each in a_twin():
        yield each


def test_zero_chooses_python() -> None:
    native = loading.load({"TREBUCHET_NATIVE": "0"})

    assert native.send_turn is None
    assert native.words == "Python, because TREBUCHET_NATIVE=0"


def test_without_a_compiled_turn_python_serves_and_explains_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paths, "BUILT", tmp_path)

    native = loading.load({})

    assert native.send_turn is None
    assert native.words.startswith("Python, because there is no turn")
    assert "python -m broker_core.native.build" in native.words


def test_missing_required_compiled_code_is_an_error_of_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paths, "BUILT", tmp_path)

    with pytest.raises(ConfigError, match=r"^TREBUCHET_NATIVE=1: expected compiled code, but"):
        loading.load({"TREBUCHET_NATIVE": "1"})


def test_invalid_input_is_rejected() -> None:
    with pytest.raises(ConfigError, match="TREBUCHET_NATIVE=yes: expected 0, 1 or no value"):
        loading.load({"TREBUCHET_NATIVE": "yes"})


def test_a_damaged_file_does_not_keep_the_broker_from_starting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paths, "BUILT", tmp_path)
    path = paths.module_path()
    path.parent.mkdir()
    path.write_bytes(b"not a library")

    assert loading.load({}).send_turn is None


def test_another_source_is_another_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = paths.module_path()
    for source in paths.sources():
        (tmp_path / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(paths, "SOURCES", tmp_path)
    assert paths.module_path() == before

    (tmp_path / "scan.pxd").write_text("another")

    assert paths.module_path() != before


def test_the_build_needs_no_installed_package() -> None:
    """The first start compiles while the packages are still being installed."""
    command = [sys.executable, "-S", "-c", "import broker_core.native.build"]

    subprocess.run(command, cwd=ROOT, check=True)


def test_the_constants_are_those_of_the_python_modules() -> None:
    text = constants.GENERATED.read_text()

    # To update the file, run: python -m broker_core.native.constants
    assert text == constants.declarations()
    assert f"    MESSAGE_MAGIC = {MESSAGE_MAGIC & 0xFFFFFFFF}\n" in text
    assert f"    QUEUE_OFFSET_POSITION = {QUEUE_OFFSET_POSITION}\n" in text
    assert '    #define NATIVE_PAIR_REAL_QUEUE_ID "\\\\002REAL_QID\\\\001"\n' in text
    assert '    const char* PAIR_REAL_QUEUE_ID "NATIVE_PAIR_REAL_QUEUE_ID"\n' in text
    assert "    PAIR_REAL_QUEUE_ID_SIZE = 10\n" in text


def test_without_a_compiler_the_build_fails_with_an_explanation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paths, "BUILT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert native_build.main() == 1

    assert "there is no C compiler" in capsys.readouterr().out


def test_an_answers_parts_are_its_template_without_the_offsets() -> None:
    assert parts_of(b'a%%d"%016Xb%d%%') == (b'a%d"', b"b", b"%")


@compiled
@pytest.mark.parametrize("size", [*range(150), 1024, 4096, 65_537])
def test_the_checksum_is_zlibs(size: int, rng: random.Random) -> None:
    data = rng.randbytes(size)

    crc32 = loading.load({}).crc32

    assert crc32 is not None
    assert crc32(data) == zlib.crc32(data)


@compiled
@pytest.mark.parametrize("client", ["JAVA", "GO", "PYTHON"])
async def test_client_sends_are_served_by_the_compiled_turn(twin: Twin, client: str) -> None:
    properties = "UNIQ_KEY\x01AC1100\x02WAIT\x01true\x02KEYS\x01größe 2\x02TAGS\x01TagA"
    fields = send_frames.fields_of(TOPIC, 0, properties)
    frames = [send_frames.send(fields, b"x", number, client=client) for number in range(20)]

    # The first creates the queue.
    await twin.feed(frames[0])

    assert await served(twin, b"".join(frames[1:])) == 19


@compiled
async def test_a_number_once_read_does_not_change(twin: Twin) -> None:
    def numbers() -> list[int]:
        queue = twin.parts.store.files.queues.table[TOPIC][0]
        state, item = twin.parts.store.files.put_state, twin.parts.stats.broker_put
        moved = [state.position, state.put_times, state.put_bytes, item.value]
        return [*moved, queue.position, queue.next_offset, queue.max_offset]

    await twin.feed(a_send() * 300)
    read = numbers()
    words = str(read)

    assert await served(twin, a_send() * 100) == 100

    assert str(read) == words
    assert all(now > before for now, before in zip(numbers(), read, strict=True))


@compiled
async def test_a_queues_end_is_one_number_until_it_is_leased(twin: Twin) -> None:
    await twin.feed(a_send() * 300)
    queue = twin.parts.store.files.queues.table[TOPIC][0]
    values = []
    for _ in range(3):
        assert await served(twin, a_send() * 2) == 2
        assert queue.next_offset is queue.max_offset
        values.append(queue.max_offset)
        # The next one has no owner.
        assert await served(twin, a_send()) == 1

    assert values == [302, 305, 308]
    assert (queue.next_offset, queue.max_offset) == (309, 309)


@compiled
@pytest.mark.parametrize("start", [0, 254, (1 << 30) - 3, (1 << 60) - 3, (1 << 62) - 3])
async def test_a_counter_continues_from_any_number(twin: Twin, start: int) -> None:
    await twin.feed(a_send())
    state = twin.parts.store.files.put_state
    state.put_times = start

    found = []
    for _ in range(6):
        assert await served(twin, a_send()) == 1
        # A new object, because the counter is the only owner of its value.
        found.append(int(str(state.put_times)))

    assert found == list(range(start + 1, start + 7))


@compiled
@pytest.mark.parametrize("is_watched", [False, True])
async def test_a_turn_keeps_no_reference_to_its_destination(
    twin: Twin, *, is_watched: bool
) -> None:
    item = send_frames.batch_item(b"x", b"UNIQ_KEY\x01AC1\x02")
    batch = send_frames.fields_of(LISTENED, 1, "WAIT\x01true", is_batch=True)
    half = transaction_frames.half(TOPIC, 0, f"{transaction_frames.PLAIN}WAIT\x01true", b"x", 1)
    waited_for = send_frames.fields_of(LISTENED, 0, "")
    # The last is left to Python, because its queue has had no send.
    missing = send_frames.send(send_frames.fields_of(TOPIC, 3, ""), b"x", 1)
    sends = a_send() + send_frames.send(waited_for, b"x", 1)
    frames = sends + send_frames.send(batch, item * 3, 1, code=320) + half
    if is_watched:
        target = TraceWatch(topic=TOPIC, sample=2)
        twin.parts.tracer.watch("c", target, Watcher(lambda _: True))
    await twin.feed(frames * 2)
    table = twin.parts.store.files.queues.table
    held = [
        *table.values(),
        *(queue for queues in table.values() for queue in queues.values()),
        *(queue.topic_field for queues in table.values() for queue in queues.values()),
        *twin.parts.parked_pulls.parked.values(),
        *twin.parts.tracer.selection.sample_cache.values(),
    ]
    assert bool(twin.parts.tracer.selection.sample_cache) == is_watched
    before = [sys.getrefcount(each) for each in held]

    for _ in range(20):
        turn: Any = twin.wire.plain_requests
        buffer = twin.wire.receive_buffer
        buffer[: len(frames + missing)] = frames + missing
        size = len(frames + missing)
        turn.serve(twin.connection, buffer, size, 1 << 20, twin.wire.dispatcher, 1 << 18, 100)
        assert turn.served_bytes > 0

    assert [sys.getrefcount(each) for each in held] == before


@compiled
@pytest.mark.parametrize("client", ["JAVA", "GO"])
async def test_client_batches_are_served_by_the_compiled_turn(twin: Twin, client: str) -> None:
    items = [(f"body {number}".encode(), f"UNIQ_KEY\x01AC{number}\x02") for number in range(32)]
    body = b"".join(send_frames.batch_item(part, text.encode()) for part, text in items)
    fields = send_frames.fields_of(TOPIC, 0, "UNIQ_KEY\x01AC00\x02WAIT\x01true", is_batch=True)
    frames = [
        send_frames.send(fields, body, code, code=code, client=client) for code in (310, 320, 310)
    ]
    # The first creates the queue, and room in the index.
    await twin.feed(frames[0])

    assert await served(twin, b"".join(frames)) == 3

    assert twin.parts.store.max_offset_in_queue(TOPIC, 0) == 4 * 32


@compiled
async def test_pending_index_entries_are_written_within_the_turn(twin: Twin) -> None:
    fields = send_frames.fields_of(TOPIC, 0, "", is_batch=True)
    items = b"".join(
        send_frames.batch_item(b"x", f"KEYS\x01key-{number}\x02".encode()) for number in range(32)
    )
    await twin.feed(a_send())

    assert await served(twin, a_send(properties="KEYS\x01alone\x02") * 200) == 200
    assert await served(twin, send_frames.send(fields, items, 1) * 10) == 10

    files = twin.parts.store.files
    assert files.index is not None
    find, seed = files.index.find, files.queues.table[TOPIC][0].key_seed
    assert len(find(seed, "alone", 1000, 0, 1 << 60)) == 200
    assert {len(find(seed, f"key-{number}", 100, 0, 1 << 60)) for number in range(32)} == {10}


@compiled
async def test_a_batch_without_keys_uses_no_space_in_the_index(twin: Twin) -> None:
    fields = send_frames.fields_of(TOPIC, 0, "", is_batch=True)
    batch = send_frames.send(fields, send_frames.batch_item(b"x", b"TAGS\x01a\x02") * 32, 1)
    await twin.feed(a_send(properties="KEYS\x01k\x02"))
    index = twin.parts.store.files.index
    assert index is not None
    room = index.room

    assert await served(twin, batch * 20) == 20

    assert index.room == room


@compiled
async def test_more_queues_than_a_turn_can_hold_take_another_turn(
    twin: Twin,
) -> None:
    places = [(topic, queue_id) for queue_id in range(4) for topic in (f"T{n}" for n in range(17))]
    for topic in dict(places):
        await twin.make_topic(topic)
    data = b"".join(
        send_frames.send(send_frames.fields_of(topic, queue_id, ""), b"x", 1)
        for topic, queue_id in places
    )
    await twin.feed(data)

    assert await served(twin, data + data) == 2 * len(places)

    store = twin.parts.store
    assert {store.max_offset_in_queue(*place) for place in places} == {3}
    counted = twin.parts.stats.topic_put_nums
    assert {counted[topic].times for topic, _ in places} == {3 * 4}


@compiled
@pytest.mark.parametrize("is_batch", [False, True])
async def test_sends_in_the_long_form_are_served_by_the_compiled_turn(
    twin: Twin, is_batch: bool
) -> None:
    # It makes room in the index.
    await twin.feed(a_send(properties="KEYS\x01k"))
    fields = send_frames.fields_of(TOPIC, 0, "UNIQ_KEY\x01AC1\x02KEYS\x01k", is_batch=is_batch)
    long = {send_frames.LONG_NAMES[letter]: value for letter, value in fields.items()}
    long["aFieldOfTomorrow"] = "yes"
    body = send_frames.batch_item(b"x", b"") if is_batch else b"x"
    frame = send_frames.send(long, body, 1, code=10)

    assert await served(twin, frame * 3 + a_send()) == 4

    twin.wire.dispatcher.override({10: lambda *_: None})
    assert await served(twin, frame) == 0


@compiled
@pytest.mark.parametrize("client", ["JAVA", "PYTHON", "CPP"])
async def test_names_and_values_of_any_script_are_served_by_the_compiled_turn(
    twin: Twin, client: str
) -> None:
    await twin.feed(a_send(properties="KEYS\x01k"))
    text = "KEYS\x01größe 注文 𝄞\x02TAGS\x01𝄞𝄢\x02"
    fields = send_frames.fields_of(TOPIC, 0, text)

    assert await served(twin, send_frames.send(fields, b"x", 1, client=client)) == 1

    assert text.encode() in bytes(twin.parts.store.files.put_state.buffer)


@compiled
@pytest.mark.parametrize("half", ["\\ud834", "\\udd1e", "\\ud834\\ud834", "\\ud834x"])
async def test_half_a_character_is_left_to_python(twin: Twin, half: str) -> None:
    await twin.feed(a_send(properties="KEYS\x01k"))
    frame = bytearray(a_send(properties="KEYS\x01" + "#" * len(half)))
    at = frame.index(b"#")
    frame[at : at + len(half)] = half.encode()

    assert await served(twin, bytes(frame)) == 0


@compiled
async def test_a_batch_is_stored_whole_or_left_to_python(twin: Twin) -> None:
    good = send_frames.batch_item(b"good", b"")
    fields = send_frames.fields_of(TOPIC, 0, "", is_batch=True)
    await twin.feed(a_send())

    for bad in (good[:-1], b"\0", send_frames.batch_item(b"bad", b"a\x01\0")):
        assert await served(twin, send_frames.send(fields, good + bad, 1)) == 0

    assert twin.parts.store.max_offset_in_queue(TOPIC, 0) == 1


@compiled
async def test_a_complex_frame_only_interrupts_the_turn(twin: Twin) -> None:
    await twin.feed(a_send())
    odd = a_send(properties="DELAY\x013\x02")

    assert await served(twin, a_send() * 3 + odd + a_send() * 4) == 7
    assert twin.parts.store.files.put_state.put_times == 9


@compiled
async def test_a_smaller_message_limit_applies_immediately(twin: Twin) -> None:
    await twin.feed(a_send())
    assert await served(twin, a_send(body=bytes(100))) == 1

    change(twin, "maxMessageSize", "50")

    assert await served(twin, a_send(body=bytes(100))) == 0
    assert b"body length limit 50B" in twin.transport.written


@compiled
async def test_the_answers_fields_follow_a_live_change(twin: Twin) -> None:
    await twin.feed(a_send())
    change(twin, "traceOn", "false")

    assert await served(twin, a_send()) == 1

    assert twin.transport.written.count(b'"TRACE_ON":"false"') == 1


@compiled
async def test_a_read_only_broker_accepts_nothing(twin: Twin) -> None:
    await twin.feed(a_send())
    change(twin, "brokerPermission", "4")

    assert await served(twin, a_send()) == 0


@compiled
async def test_a_trace_watch_sees_every_send_of_the_compiled_turn(twin: Twin) -> None:
    await twin.feed(a_send())
    batches: list[bytes] = []

    def push(body: bytes) -> bool:
        batches.append(body)
        return True

    twin.parts.tracer.watch("c", TraceWatch(topic=TOPIC), Watcher(push))

    assert await served(twin, a_send()) == 1
    twin.parts.tracer.push_all()

    (event,) = json.loads(batches[0])["events"]
    assert (event["stage"], event["topic"], event["queueOffset"]) == ("stored", TOPIC, "1")
    assert list(event["steps"]) == ["received", "validated", "appended", "dispatched"]


@compiled
@pytest.mark.parametrize("client", ["JAVA", "CPP", send_frames.BINARY])
async def test_a_watch_reads_producer_groups_of_any_script(twin: Twin, client: str) -> None:
    await twin.feed(a_send())
    batches: list[bytes] = []

    def push(body: bytes) -> bool:
        batches.append(body)
        return True

    twin.parts.tracer.watch("c", TraceWatch(topic=TOPIC), Watcher(push))
    fields = send_frames.fields_of(TOPIC, 0, "") | {"a": "größe 注文"}

    assert await served(twin, send_frames.send(fields, b"x", 1, client=client)) == 1
    twin.parts.tracer.push_all()

    (event,) = json.loads(batches[0])["events"]
    assert event["producerGroup"] == "größe 注文"


@compiled
async def test_a_replaced_handler_is_called_for_overload_too(twin: Twin) -> None:
    await twin.feed(a_send())
    requests = []

    def refuse(request: Any, _: object) -> None:
        requests.append(request.code)

    twin.wire.dispatcher.override({310: refuse})
    assert await served(twin, a_send() * 2) == 0
    twin.wire.dispatcher.override({})

    assert requests == [310, 310]
    assert await served(twin, a_send() * 2) == 2


@compiled
async def test_a_topic_with_an_unwritten_file_is_left_to_python(twin: Twin) -> None:
    await twin.feed(a_send())
    twin.parts.topics.put(twin.parts.topics.table[TOPIC])
    assert TOPIC in twin.parts.topics.writer.unwritten

    assert await served(twin, a_send()) == 0


@compiled
async def test_a_slave_and_a_full_disk_accept_nothing(twin: Twin) -> None:
    await twin.feed(a_send())
    twin.parts.store.availability.fill_disk()

    assert await served(twin, a_send()) == 0


@compiled
async def test_waiting_sends_are_answered_together_when_the_last_counts(twin: Twin) -> None:
    await twin.feed(a_send())
    acknowledge, store = with_slave(twin), twin.parts.store
    before = len(twin.transport.written)

    assert await served(twin, a_send() * 5) == 5
    assert twin.wire.in_flight == 5
    acknowledge.replicated(store.max_commit_log_offset - 1)
    await settled()
    assert len(twin.transport.written) == before

    acknowledge.replicated(store.max_commit_log_offset)
    await settled()

    assert twin.transport.written[before:].count(b'{"code":0,') == 5
    assert twin.wire.in_flight == 0


@compiled
async def test_a_send_that_does_not_wait_is_left_to_python_among_waiting_ones(twin: Twin) -> None:
    await twin.feed(a_send())
    with_slave(twin)
    before = len(twin.transport.written)

    assert await served(twin, a_send(properties="WAIT\x01false\x02")) == 0

    assert len(twin.transport.written) > before


@compiled
async def test_without_a_slave_near_enough_python_reports_it(twin: Twin) -> None:
    await twin.feed(a_send())
    with_slave(twin).replicated(-1)

    assert await served(twin, a_send()) == 0

    assert b'{"code":11,' in twin.transport.written


@compiled
async def test_no_more_calls_wait_than_a_connection_may_have_in_flight(twin: Twin) -> None:
    await twin.feed(a_send())
    acknowledge = with_slave(twin)
    most = twin.wire.limits.requests_in_flight_max

    await twin.feed(a_send() * (most + 10))

    assert twin.wire.in_flight == most
    for _ in range(2):
        acknowledge.replicated(twin.parts.store.max_commit_log_offset)
        await settled()
    assert twin.wire.in_flight == 0
    assert twin.parts.store.files.put_state.put_times == most + 11


@compiled
async def test_the_compiled_turn_notifies_watchers_of_the_logs_growth(twin: Twin) -> None:
    await twin.feed(a_send())
    log, reports = twin.parts.store.files.log, list[int]()
    log.on_growth = lambda: reports.append(log.max_offset)
    log.watch_growth()

    assert await served(twin, a_send() * 3) == 3
    assert len(reports) == 1


@compiled
async def test_complex_records_are_stored_by_python() -> None:
    async for twin in a_twin(transientStorePoolEnable="true"):
        assert await served(twin, a_send() * 3) == 0
        assert twin.parts.store.files.put_state.put_times == 3
