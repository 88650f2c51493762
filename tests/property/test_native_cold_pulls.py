"""Pulls far before the log's end, or no longer in memory, handled the same way by both twins."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from broker_core.formats.record import examine
from tests.support import pull_frames, send_frames
from tests.support.native_turn import a_send
from tests.support.twins import DISKS, TOPICS, Pair, configuration, is_compiled, settled
from tests.support.waiting import until_async

if TYPE_CHECKING:
    import random

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="no compiled turn: python -m broker_core.native.build"
)

COLD_PUTS, COLD_PULLS = 150, 400
ABSENT_OF_4096 = 500


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"maxTransferCountOnMessageInDisk": 40, "slaveReadEnable": "true"},
        {"maxTransferBytesOnMessageInDisk": 2000, "mappedFileSizeCommitLog": 1 << 16},
        {"brokerIP1": "2001:db8::1", "enabledAppendPropCRC": "true"},
    ],
    ids=lambda keys: ",".join(keys),
)
async def test_pulls_far_behind_the_logs_end_read_the_same(
    keys: dict[str, object], rng: random.Random
) -> None:
    async with Pair(configuration(**keys)) as pair:
        twins = (pair.native, pair.python)
        for _ in range(COLD_PUTS):
            await pair.feed(send_frames.any_frame(rng, TOPICS, 1))
        log = pair.native.parts.store.files.log
        for opaque in range(COLD_PULLS):
            memory_bytes = rng.choice((0, 0, rng.randrange(log.max_offset), log.max_offset))
            salt = rng.choice((0, 0, rng.randrange(1, 1 << 16)))
            pair.keep_in_memory(
                memory_bytes,
                is_resident=rng.random() < 0.9,
                fresh_bytes=rng.choice((0, rng.randrange(log.max_offset))),
                is_absent=partial(_is_absent, salt) if salt else None,
            )
            await pair.feed(pull_frames.any_pull(rng, TOPICS, opaque))
            # Another thread reads non-resident data.
            await until_async(lambda: all(not twin.wire.in_flight for twin in twins), "answers")
            await settled()
            native, python = pair.native.seen(), pair.python.seen()
            for name in native.keys() - DISKS:
                assert native[name] == python[name], name
        assert not pair.native.transport.closed
        turn = pair.native.wire.plain_requests
        assert turn is not None
        assert turn.fallbacks["messages"] < COLD_PULLS // 3, turn.fallbacks


@pytest.mark.parametrize("flags", [2, 6])
async def test_a_pull_whose_message_left_memory_asks_again(
    flags: int,
) -> None:
    async with Pair(configuration()) as pair:
        twins = (pair.native, pair.python)
        await pair.feed(a_send() * 2)
        await pair.feed(pull_frames.pull(pull_frames.fields_of(TOPICS[0], 0, 2, flags=flags), 7))
        pair.keep_in_memory(1 << 40, is_resident=False, fresh_bytes=0, is_absent=lambda page: True)
        for twin in twins:
            twin.transport.written.clear()

        await pair.feed(a_send())
        pair.same()

        for twin in twins:
            assert b'"code":20' in twin.transport.written
            twin.transport.written.clear()
        await pair.feed(pull_frames.pull(pull_frames.fields_of(TOPICS[0], 0, 2, flags=flags), 8))
        await until_async(lambda: all(not twin.wire.in_flight for twin in twins), "answers")
        await settled()
        pair.same()
        for twin in twins:
            assert twin.transport.written.count(b"hello") == 1


def _is_absent(salt: int, page: int) -> bool:
    return (page + salt) * 2654435761 % 4096 < ABSENT_OF_4096


@pytest.mark.parametrize("host", ["10.0.0.1", "2001:db8::1"])
async def test_a_damaged_record_far_beyond_the_logs_end_is_treated_the_same(host: str) -> None:
    async with Pair(configuration(brokerIP1=host)) as pair:
        twins = (pair.native, pair.python)
        await pair.feed(a_send(properties="TAGS\x01TagA\x02") * 3)
        pair.keep_in_memory(0, is_resident=True)
        files = [twin.parts.store.files.log.files[0] for twin in twins]
        head = examine(files[0].view, 0, files[0].size, 0, check_crc=True)
        second = head.size
        last_bytes = (
            3,
            7,
            35,
            39,
            head.body_from - 1,
            head.topic_from - 1,
            head.properties_from - 1,
        )
        for place in {each for last in last_bytes for each in range(last - 3, last + 1)}:
            at = second + place
            before = files[0].buffer[at]
            for value in {0, 1, 0x10, 0x20, 127, 128, 255, before - 1, before + 1} - {-1, 256}:
                for file in files:
                    file.buffer[at] = value
                for offset in (0, 1):
                    fields = pull_frames.fields_of(TOPICS[0], 0, offset)
                    await pair.feed(pull_frames.pull(fields, 1))
                native, python = pair.native.seen(), pair.python.seen()
                for name in native.keys() - DISKS:
                    assert native[name] == python[name], (name, place, value)
            for file in files:
                file.buffer[at] = before
