from __future__ import annotations

import struct
import time

import pytest

from broker_core.errors import FrameError
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.frame import (
    FRAME_BYTES_MAX,
    LONG_HEADER_BYTES,
    FrameDecoder,
    FrameLimits,
)

LIMITS = FrameLimits(frame_bytes_max=1000)
LONG = 1 << 20
USUAL_SECONDS = 0.5
"""A third of the time of a decoder that creates objects for everything in a long header."""


def a_frame(body: bytes = b"", serialize_type: int = 0) -> bytes:
    return RemotingCommand(10, 0, 7, 407, "JAVA", body=body, serialize_type=serialize_type).encode()


def drained(decoder: FrameDecoder, piece: bytes | memoryview) -> list[bytes]:
    decoder.feed(piece)
    bodies = [command.body for command in decoder.commands()]
    decoder.settle()
    return bodies


def test_all_frames_of_a_chunk_are_returned_oldest_first() -> None:
    decoder = FrameDecoder()

    assert drained(decoder, a_frame(b"1") + a_frame(b"2", 1) + a_frame()) == [b"1", b"2", b""]
    assert decoder.kept_bytes == 0


def test_a_frame_sent_byte_by_byte_is_complete_with_its_last_byte() -> None:
    decoder = FrameDecoder()
    frame = a_frame(b"body")

    for n in range(len(frame) - 1):
        assert drained(decoder, frame[n : n + 1]) == []
        assert decoder.kept_bytes == n + 1
    assert drained(decoder, frame[-1:]) == [b"body"]
    assert decoder.kept_bytes == 0


def test_a_short_frame_after_half_a_long_one_is_not_kept_waiting() -> None:
    decoder = FrameDecoder()
    long, short = a_frame(b"x" * 500), a_frame(b"s")

    assert drained(decoder, long[:400]) == []
    assert drained(decoder, long[400:] + short[:5]) == [b"x" * 500]
    assert drained(decoder, short[5:]) == [b"s"]


def test_the_piece_may_be_reused_after_settling() -> None:
    decoder = FrameDecoder()
    frame = a_frame(b"body")
    buffer = bytearray(frame[:20])

    drained(decoder, memoryview(buffer))
    buffer[:] = b"?" * 20

    assert drained(decoder, frame[20:]) == [b"body"]


def test_unprocessed_frames_are_returned_after_resuming() -> None:
    decoder = FrameDecoder()
    decoder.feed(a_frame(b"1") + a_frame(b"2") + a_frame(b"3")[:-1])
    first = next(decoder.commands(), None)
    decoder.settle()

    decoder.resume()

    assert first is not None
    assert first.body == b"1"
    second = next(decoder.commands(), None)
    assert second is not None
    assert second.body == b"2"
    assert next(decoder.commands(), None) is None


def test_frames_before_a_broken_one_are_returned() -> None:
    decoder = FrameDecoder()
    decoder.feed(a_frame(b"1") + b"GET / HTTP/1.1\r\n")

    assert next(decoder.commands(), None) is not None
    with pytest.raises(FrameError, match="16777216"):
        next(decoder.commands(), None)


def test_the_longest_frame_is_accepted_but_not_one_byte_more() -> None:
    empty = len(a_frame())
    longest = a_frame(b"x" * (LIMITS.frame_bytes_max - empty))

    assert len(drained(FrameDecoder(LIMITS), longest)) == 1
    with pytest.raises(FrameError, match="limit is 1000"):
        drained(FrameDecoder(LIMITS), a_frame(b"x" * (LIMITS.frame_bytes_max - empty + 1)))


def test_a_header_above_its_limit_is_rejected() -> None:
    limit = 2 * LONG_HEADER_BYTES
    decoder = FrameDecoder(FrameLimits(header_bytes_max=limit))

    assert drained(decoder, frame_of(b'{"code":10}'.ljust(limit))) == [b""]
    with pytest.raises(FrameError, match=f"a header has {limit + 1} bytes, the limit is {limit}"):
        drained(decoder, frame_of(b'{"code":10}'.ljust(limit + 1)))


def frame_of(header: bytes, serialize_type: int = 0) -> bytes:
    return struct.pack(">II", 4 + len(header), serialize_type << 24 | len(header)) + header


@pytest.mark.parametrize("code", [10, 310])
@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_header_may_be_as_long_as_its_frame(code: int, serialize_type: int) -> None:
    fields = {"b": "T", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""}
    empty = RemotingCommand(code, ext_fields=fields, serialize_type=serialize_type).encode()
    fields["i"] = "中" * ((FRAME_BYTES_MAX - len(empty) - 100) // 3)
    sent = RemotingCommand(code, ext_fields=fields, serialize_type=serialize_type).encode()
    decoder = FrameDecoder()

    decoder.feed(sent)
    (command,) = decoder.commands()

    assert command.code == code
    assert command.ext_fields["i"] == fields["i"]
    assert decoder.frame_bytes == len(sent)


@pytest.mark.parametrize(
    "value",
    [
        'a "quoted" text with \\ and \\\\" at its end\\',
        "line\nline\u0001\u0002" * 30_000,
        '","' * 40_000,
        "\\" * 99_999,
    ],
)
def test_the_content_of_a_long_text_does_not_count_as_fields(value: str) -> None:
    fields = {"i": "x" * LONG + value, "b": value}
    sent = RemotingCommand(10, ext_fields=fields).encode()

    decoder = FrameDecoder()
    decoder.feed(sent)

    assert [command.ext_fields for command in decoder.commands()] == [fields]


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":10,"extFields":{%b}}' % b",".join(b'"%x":""' % n for n in range(LONG)),
        b'{"code":10,"extFields":{%b}}' % b",".join([b'"\\\\":"\\\\"'] * LONG),
        b'{"code":"no number","extFields":[%b]}' % b",".join([b"[]"] * LONG),
        b'{"code":10,"extFields":{"a":%b}}' % (b"[" * LONG),
        b"{" * LONG,
        b'"' * LONG,
    ],
    ids=["entries", "escapes", "lists", "depth", "objects", "quotes"],
)
def test_a_long_header_of_many_small_fields_is_rejected_immediately(header: bytes) -> None:
    decoder = FrameDecoder()
    started = time.process_time()
    decoder.feed(frame_of(header))

    with pytest.raises(FrameError, match=r"texts|not JSON as clients write it"):
        next(decoder.commands())
    assert time.process_time() - started < USUAL_SECONDS


def test_values_rejected_in_a_long_header_are_read_in_a_short_one() -> None:
    header = b'{"code":"10","extFields":{"queueId":3}}'
    decoder = FrameDecoder()

    decoder.feed(frame_of(header) + frame_of(header.ljust(LONG_HEADER_BYTES)))
    assert [command.code for command in decoder.commands()] == [10, 10]

    decoder = FrameDecoder()
    decoder.feed(frame_of(header.ljust(LONG_HEADER_BYTES + 1)))
    with pytest.raises(FrameError, match="as clients write it"):
        next(decoder.commands())


@pytest.mark.parametrize(
    "prefix",
    [
        "ffffffff",  # negative for Java
        "00000003",  # shorter than the header's length field
        "00000000",
        "7fffffff 00000000",
        "00000010 0000000d",  # a header longer than its frame
        "00000010 00ffffff",
    ],
)
def test_an_impossible_length_is_rejected_before_any_data_arrives(prefix: str) -> None:
    decoder = FrameDecoder()

    with pytest.raises(FrameError):
        drained(decoder, bytes.fromhex(prefix))
    assert decoder.kept_bytes == 0


def test_memory_grows_with_received_and_not_announced_data() -> None:
    decoder = FrameDecoder()

    drained(decoder, bytes.fromhex("00fffff0 00000010"))

    assert decoder.kept_bytes == 8


def test_after_discarding_nothing_arrives() -> None:
    decoder = FrameDecoder()
    decoder.feed(a_frame() * 2)
    next(decoder.commands(), None)

    decoder.discard()

    assert next(decoder.commands(), None) is None
    decoder.settle()
    assert decoder.kept_bytes == 0
