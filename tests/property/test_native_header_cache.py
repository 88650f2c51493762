"""Headers that differ from the previous one only where one client's do are parsed correctly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import pull_frames, send_frames
from tests.support.twins import TOPICS, Pair, configuration, is_compiled

if TYPE_CHECKING:
    import random

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="no compiled turn: python -m broker_core.native.build"
)
TOPIC = TOPICS[0]
OPAQUE = 100_000
KEY = "UNIQ_KEY\x01AC11000100002A9F00000000000000%02d\x02TAGS\x01TagA"
FRAMES = 300
WRONG = {
    # Parts of a send's or pull's header, and replacements of the same length.
    "opaque": (b'"opaque":100000', (b'"opaque":1000x0', b'"opaque":010000', b'"opaque":-0a000')),
    "queue": (b'"e":"2"', (b'"e":"x"', b'"e":"-"', b'"e":"""', b'"e":" "')),
    "birth": (
        b'"g":"1795251442181"',
        (
            b'"g":"179525144218 "',
            b'"g":"0795251442181"',
            b'"g":"-95251442181\\"',
            b'"g":"-795251442181"',
        ),
    ),
    "properties": (b"TagA", (b'Tag"', b"Tag\\", b"Tag\x01", b"Tag\xc3", b"\\u00")),
    "offset": (b'"queueOffset":"20"', (b'"queueOffset":"2x"', b'"queueOffset":"02"')),
    "commit": (b'"commitOffset":"10"', (b'"commitOffset":"- "', b'"commitOffset":"-0"')),
}


def a_send(number: int, queue_id: int = 2, *, code: int = 310) -> bytes:
    fields = send_frames.fields_of(TOPIC, queue_id, KEY % (number % 100))
    return send_frames.send(fields, b"hello", OPAQUE + number, code=code)


def a_pull(number: int, offset: int = 20, commit: int = 10) -> bytes:
    fields = pull_frames.fields_of(TOPIC, 2, offset, commit=commit)
    return pull_frames.pull(fields, OPAQUE + number)


async def test_one_clients_different_headers_can_be_read(rng: random.Random) -> None:
    async with Pair(configuration()) as pair:
        for number in range(FRAMES):
            if rng.random() < 0.5:
                frame = a_send(number, rng.randrange(4), code=rng.choice((310, 310, 320)))
            else:
                frame = a_pull(number, rng.randrange(10, 40), rng.randrange(10, 40))
            await pair.feed(frame)
        pair.same()
        assert not pair.native.transport.closed


@pytest.mark.parametrize("what", WRONG)
async def test_errors_in_differing_headers_are_handled_the_same(what: str) -> None:
    right, instead = WRONG[what]
    frame = a_pull(0) if what in {"offset", "commit"} else a_send(0)
    assert frame.count(right) == 1
    for wrong in instead:
        assert len(wrong) == len(right)
        async with Pair(configuration()) as pair:
            # So that the invalid one resembles the previous one, and a valid one follows it.
            await pair.feed(a_send(0) * 30)
            await pair.feed(a_pull(0))
            await pair.feed(frame + frame.replace(right, wrong))
            pair.same()
            if pair.native.transport.closed:
                pair.reconnect()
            await pair.feed(frame)
            pair.same()


async def test_a_header_larger_than_the_cache_is_read_each_time() -> None:
    long = "k\x01" + "v" * 2000 + "\x02"
    async with Pair(configuration()) as pair:
        for number in range(4):
            fields = send_frames.fields_of(TOPIC, 1, long + KEY % number)
            await pair.feed(send_frames.send(fields, b"hello", OPAQUE + number))
            await pair.feed(a_send(number))
        pair.same()
