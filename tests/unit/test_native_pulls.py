"""Which pulls the compiled turn takes, what it leaves to Python, and that it sees live changes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

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
async def test_guarded_records_are_put_and_pulled_by_the_turn(rng: random.Random) -> None:
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
async def test_what_clients_pull_is_served_by_the_compiled_turn(
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
async def test_pulls_and_sends_of_one_stream_are_served_in_their_order(twin: Twin) -> None:
    await twin.feed(a_send())
    frames = [a_send(1), a_pull(1, 2), a_send(3), a_send(4), a_pull(2, 5), a_pull(3, 6)]
    twin.transport.written.clear()

    assert await served(twin, b"".join(frames)) == 6

    answers = send_frames.frames_in(bytes(twin.transport.written))
    assert len(answers) == 6
    for number, answer in enumerate(answers, 1):
        assert b'"opaque":%d,' % number in answer


@compiled
async def test_a_pull_across_files_of_the_log_is_served_whole() -> None:
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
async def test_the_first_commit_of_a_queue_is_pythons_and_all_others_the_turns(twin: Twin) -> None:
    await twin.feed(a_send() * 9)

    assert await served(twin, a_pull(flags=1, commit=1)) == 0
    assert await served(twin, a_pull(flags=1, commit=2) + a_pull(flags=1, commit=-1)) == 2

    assert twin.parts.offsets.query(pull_frames.SUBSCRIBED, TOPIC, 0) == 2


@compiled
async def test_a_pull_outside_of_its_queue_not_in_memory_or_damaged_is_left_to_python(
    twin: Twin,
) -> None:
    await twin.feed(a_send() * 9)
    reader, quarantine = twin.parts.store.own_reads, twin.parts.store.files.quarantine
    assert reader is not None

    assert await served(twin, a_pull(10) + a_pull(-1) + a_pull(1 << 40)) == 0
    reader.memory_bytes, before = 0, reader.memory_bytes
    assert await served(twin, a_pull(1)) == 0
    reader.memory_bytes = before
    quarantine.add(DamagedRange(0, 100, "a test"))
    assert await served(twin, a_pull(1)) == 0
    quarantine.cut_at(0)
    assert await served(twin, a_pull(1)) == 1


@compiled
async def test_a_record_that_is_not_where_its_unit_says_is_left_to_python(twin: Twin) -> None:
    await twin.feed(a_send() * 9)
    units = twin.parts.store.files.queues.table[TOPIC][0].buffer
    before = bytes(units[20:40])

    for offset, size in ((1, 100), (1 << 40, 100), (-5, 100), (0, -1), (0, 0), (0, 1 << 30)):
        units[20:40] = struct.pack(">qiq", offset, size, 0)
        assert await served(twin, a_pull(1)) == 0
    units[20:40] = before

    assert await served(twin, a_pull(1)) == 1


@compiled
async def test_limits_of_pulls_rights_and_watchers_are_in_force_at_once(twin: Twin) -> None:
    await twin.feed(a_send() * 40)
    change(twin, "maxTransferCountOnMessageInMemory", "5")

    assert await served(twin, a_pull()) == 1
    assert twin.parts.stats.got_total == 5

    change(twin, "maxTransferBytesOnMessageInMemory", "1")
    assert await served(twin, a_pull()) == 1
    assert twin.parts.stats.got_total == 6

    twin.parts.tracer.watch("c", TraceWatch(topic=TOPIC), Watcher(lambda _: True))
    assert await served(twin, a_pull()) == 0
    twin.parts.tracer.unwatch("c")
    assert await served(twin, a_pull()) == 1

    change(twin, "brokerPermission", "2")
    assert await served(twin, a_pull()) == 0
    assert b"pulling message is forbidden" in twin.transport.written


@compiled
async def test_whatever_replaces_the_handler_of_pulls_is_asked(twin: Twin) -> None:
    await twin.feed(a_send())
    asked = []

    def refuse(request: Any, _: object) -> None:
        asked.append(request.code)

    twin.wire.dispatcher.override({11: refuse})
    assert await served(twin, a_pull()) == 0
    twin.wire.dispatcher.override({})

    assert asked == [11]
    assert await served(twin, a_pull()) == 1


@compiled
async def test_a_peer_that_does_not_read_is_not_served(twin: Twin) -> None:
    await twin.feed(a_send(body=bytes(1000)) * 40)
    twin.connection.pause_writing()

    assert await served(twin, a_pull() * 9) == 0

    twin.connection.resume_writing()
    await settled()
    assert twin.parts.stats.got_total == 9 * 32
