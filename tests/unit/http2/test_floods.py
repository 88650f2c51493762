"""Attacking peers: bounded work per turn, bounded memory, and an end (RFC 9113, 10.5)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from broker_core.clock import SystemClock
from broker_core.http2 import codes, frames, hpack
from broker_core.http2.codes import ErrorCode
from broker_core.http2.connection import Connection
from broker_core.http2.frames import PREFACE, frame, headers, rst_stream, settings, window_update
from broker_core.http2.limits import Http2Limits, StrangerHttp2Limits
from broker_core.http2.methods import ServerStreaming, Unary
from broker_core.http2.wire import RECEIVE_BYTES
from tests.support.http2_peer import (
    ECHO,
    LATER,
    Peer,
    block_of,
    data_frame,
    request,
    wire_of,
)
from tests.support.memory_transport import MemoryTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.http2_peer import Frame

STALL_S = 0.1
BLOCK = block_of(*request())
OPEN = headers(1, block_of(*request(LATER)), ends=False)


def goaway_of(sent: list[Frame]) -> tuple[int, str]:
    """Return code and text of the last GOAWAY."""
    assert sent[-1].kind == codes.GOAWAY
    payload = sent[-1].payload
    return int.from_bytes(payload[4:8], "big"), payload[8:].decode()


# Frames that cause work and carry no data.


def rapid_resets(first: int, count: int) -> bytes:
    return b"".join(
        headers(2 * n + 1, BLOCK, ends=False) + rst_stream(2 * n + 1, ErrorCode.CANCEL)
        for n in range(first, first + count)
    )


def late_data(first: int, count: int) -> bytes:
    """Return DATA for skipped streams, which are therefore closed."""
    open_late = headers(99_999, BLOCK, ends=True) if not first else b""
    return open_late + b"".join(
        frame(codes.DATA, 0, 2 * n + 1, b"x") for n in range(first, first + count)
    )


def repeated(one: bytes, before: bytes = b"") -> Callable[[int, int], bytes]:
    return lambda first, count: (b"" if first else before) + one * count


@pytest.mark.parametrize(
    ("flood", "what"),
    [
        (rapid_resets, "calls cancelled at once"),
        (repeated(settings({})), "SETTINGS frames"),
        (repeated(settings({codes.INITIAL_WINDOW_SIZE: 7})), "SETTINGS frames"),
        (repeated(frame(codes.DATA, 0, 1, b""), OPEN), "empty DATA frames"),
        (repeated(frame(codes.DATA, codes.PADDED, 1, b"\0"), OPEN), "empty DATA frames"),
        (repeated(frame(codes.PRIORITY, 0, 1, bytes(5))), "PRIORITY frames"),
        (repeated(frame(0x66, 0, 0, b"")), "frames of unknown types"),
        (late_data, "frames of closed streams"),
    ],
)
async def test_a_flood_ends_its_connection(flood: Callable[[int, int], bytes], what: str) -> None:
    peer = Peer()

    # The peer's own SETTINGS counted already.
    peer.send(flood(0, 999))
    assert not peer.is_closed
    peer.drain()
    peer.send(flood(999, 2))

    assert goaway_of(peer.drain()) == (
        ErrorCode.ENHANCE_YOUR_CALM,
        f"more than 100 {what} and the like per second",
    )
    assert peer.is_closed


async def test_such_frames_continue_forever_at_a_bearable_rate() -> None:
    peer = Peer()

    for _ in range(50):
        peer.send(settings({}) * 100)
        peer.clock.advance_ms(1_000)
        peer.drain()

    assert not peer.is_closed


async def test_calls_that_end_at_their_deadlines_are_not_useless_frames() -> None:
    peer = Peer()

    for _ in range(5):
        streams = [peer.call(b"x", LATER) for _ in range(900)]
        peer.clock.advance_ms(3_000)
        for stream_id in streams:
            peer.send(rst_stream(stream_id, ErrorCode.CANCEL))
        # Crossing one of our answers.
        peer.send(rst_stream(1, ErrorCode.CANCEL) * 900)

    assert not peer.is_closed
    assert len(peer.service.cancelled) == 4_500


async def test_a_reading_peer_can_be_pinged_any_number_of_times() -> None:
    peer = Peer()

    for _ in range(20):
        peer.send(frames.ping(b"stillup?", is_ack=False) * 1_000)
        assert len(peer.drain()) == 1_000

    assert not peer.is_closed


async def test_a_peer_that_pings_without_reading_is_no_longer_read() -> None:
    peer = Peer()

    peer.send(frames.ping(b"stillup?", is_ack=False) * 1_000)
    peer.connection.pause_writing()

    assert peer.transport.is_paused


# Field blocks.


async def test_a_block_in_too_many_frames_ends_the_connection() -> None:
    peer = Peer()
    peer.send(frame(codes.HEADERS, 0, 1, BLOCK))
    peer.send(frame(codes.CONTINUATION, 0, 1, b"") * 15)
    assert not peer.is_closed

    peer.send(frame(codes.CONTINUATION, 0, 1, b""))

    code, says = goaway_of(peer.drain())
    assert code == ErrorCode.ENHANCE_YOUR_CALM
    assert says.endswith("in 17 frames")


async def test_a_block_of_too_many_bytes_ends_the_connection() -> None:
    peer = Peer()
    peer.send(frame(codes.HEADERS, 0, 1, bytes(16_384)))
    peer.send(frame(codes.CONTINUATION, 0, 1, bytes(16_384)))
    assert not peer.is_closed

    peer.send(frame(codes.CONTINUATION, 0, 1, b"x"))

    assert goaway_of(peer.drain())[0] == ErrorCode.ENHANCE_YOUR_CALM


async def test_an_hpack_bomb_is_counted_and_not_kept() -> None:
    peer = Peer()
    # 4,000 bytes in the table, referenced 16,000 times: 64 MB of fields.
    bomb = b"\x40" + hpack.literal("x-bomb", "x" * 4_000)[1:] + b"\xbe" * 12_000

    began = time.thread_time()
    peer.send(headers(1, BLOCK + bomb, ends=True))
    took = time.thread_time() - began

    assert peer.answer(1).text == "the header list is larger than 16384 bytes"
    assert took < STALL_S


# One turn of the loop.


def hostile(name: str) -> bytes:
    """Return more than one buffer of the most expensive frames of a kind."""
    size = 2 * RECEIVE_BYTES
    if name == "calls":
        table = b"".join(b"\x40" + hpack.literal(*field)[1:] for field in request())
        first = headers(1, table, ends=False) + data_frame(1, b"")
        one = bytes(range(0xBE, 0xBE + 6))[::-1]
        return first + b"".join(
            headers(n, one, ends=False) + data_frame(n, b"") for n in range(3, 2 * size // 28, 2)
        )
    if name == "blocks":
        block = BLOCK + b"\x84" * (16_384 - len(BLOCK))
        return b"".join(headers(n, block, ends=True) for n in range(1, size // 8_192, 2))
    if name == "huffman":
        text = hpack_huffman("~\\`<" * 2_000)
        return b"".join(headers(n, text, ends=True) for n in range(1, size // 8_192, 2))
    if name == "pings":
        return frames.ping(bytes(8), is_ack=False) * (size // 17)
    if name == "windows":
        return window_update(0, 1) * (size // 13)
    assert name == "resets"
    return rapid_resets(0, size // (len(BLOCK) + 22))


def hpack_huffman(text: str) -> bytes:
    from broker_core.http2 import huffman

    data = huffman.encode(text)
    assert 127 + 16_256 > len(data) >= 127
    length = len(data) - 127
    return b"\0\x81" + huffman.encode("a") + bytes((0xFF, length & 127 | 128, length >> 7)) + data


@pytest.mark.parametrize("name", ["calls", "blocks", "huffman", "pings", "windows", "resets"])
async def test_no_buffer_blocks_the_loop(name: str) -> None:
    limits = Http2Limits(useless_frames_burst=1e9, header_list_bytes_max=1 << 20)
    wire = wire_of({ECHO: Unary(lambda *_: b"")}, limits, SystemClock())  # type: ignore[arg-type]
    connection = Connection(wire)
    transport = MemoryTransport(connection)
    connection.connection_made(transport)
    data = PREFACE + settings({}) + hostile(name)
    longest = 0.0
    at = 0

    while at < len(data) or transport.is_paused:
        began = time.thread_time()
        if not transport.is_paused:
            piece = data[at : at + RECEIVE_BYTES]
            at += len(piece)
            connection.get_buffer(-1)[: len(piece)] = piece
            connection.buffer_updated(len(piece))
        else:
            await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - began)
        transport.drain()

    assert not transport.is_closed
    assert longest < STALL_S


async def test_a_long_turn_continues_in_the_next_one_in_order() -> None:
    def slow(_: object, message: bytes) -> bytes:
        peer.clock.hold_ms(1)
        return message

    peer = Peer(methods={ECHO: Unary(slow)})
    count = 200
    peer.send(
        b"".join(
            headers(n, BLOCK, ends=False) + data_frame(n, b"%d" % n) for n in range(1, 2 * count, 2)
        )
    )
    first = [one.stream_id for one in peer.drain() if one.kind == codes.DATA]
    assert 2 <= len(first) < 16
    assert peer.transport.is_paused

    rounds = 0
    while peer.transport.is_paused:
        rounds += 1
        await asyncio.sleep(0)

    rest = [one.stream_id for one in peer.drain() if one.kind == codes.DATA]
    assert first + rest == list(range(1, 2 * count, 2))
    assert rounds > 3


# Memory.


def upload(peer: Peer, frames_sent: int) -> None:
    """Begin a request and send whole 16 KiB frames of it, but not its end."""
    stream_id = peer.call(None, ends=False)
    whole = data_frame(stream_id, bytes(60_000))
    peer.send(whole[: frames_sent * (9 + 16_384)])


async def test_unfinished_requests_of_all_peers_have_a_limit() -> None:
    one = Peer(Http2Limits(all_buffered_bytes_max=10 * 16_384))
    other = Peer(wire=one.wire)
    for peer in (one, other):
        for _ in range(5):
            upload(peer, 1)
    assert one.wire.buffered_bytes == 10 * 16_384
    assert not other.is_closed

    upload(other, 1)

    code, says = goaway_of(other.drain())
    assert code == ErrorCode.ENHANCE_YOUR_CALM
    assert says == f"unfinished requests of all peers hold {11 * 16_384} bytes"
    other.connection.connection_lost(None)
    assert not one.is_closed
    assert one.wire.buffered_bytes == 5 * 16_384


async def test_the_count_of_unfinished_requests_matches_the_stored_ones() -> None:
    peer = Peer()
    stream_id = peer.call(None, ends=False)
    data = data_frame(stream_id, bytes(40_000))

    peer.send(data[:20_000])
    # A whole frame of DATA, and the beginning of another.
    assert peer.wire.buffered_bytes == 20_000 - 9
    peer.send(data[20_000:])
    assert peer.wire.buffered_bytes == 0
    stream_id = peer.call(None, ends=False)
    peer.send(data_frame(stream_id, bytes(40_000))[:20_000])
    peer.connection.connection_lost(None)
    assert peer.wire.buffered_bytes == 0


async def test_a_peer_that_does_not_read_its_answers_is_closed() -> None:
    limits = Http2Limits(unsent_bytes_max=1_000_000)
    peer = Peer(limits, {ECHO: ServerStreaming(lambda call, _: call.send(bytes(100_000)))})
    for _ in range(10):
        peer.call()
    assert not peer.is_closed

    peer.call()

    assert goaway_of(peer.drain())[0] == ErrorCode.ENHANCE_YOUR_CALM
    peer.connection.connection_lost(None)
    assert peer.wire.unsent_bytes == 0


async def test_the_unread_data_of_all_peers_is_limited() -> None:
    limits = Http2Limits(all_unsent_bytes_max=1_000_000)
    methods = {ECHO: ServerStreaming(lambda call, _: call.send(bytes(100_000)))}
    peers = [Peer(limits, methods)]
    peers += [Peer(wire=peers[0].wire) for _ in range(3)]

    for _ in range(4):
        for peer in peers:
            if not peer.is_closed:
                peer.call()
    assert sum(peer.is_closed for peer in peers) >= 1
    for peer in peers:
        if peer.is_closed:
            peer.connection.connection_lost(None)
    assert peers[0].wire.unsent_bytes <= 1_000_000


async def test_the_total_number_of_streams_is_limited() -> None:
    one = Peer(Http2Limits(all_streams_max=2))
    other = Peer(wire=one.wire)
    one.call(b"x", LATER)
    one.call(b"x", LATER)

    stream_id = other.call(b"x", LATER)

    reset = other.drain()[0]
    assert (reset.kind, reset.stream_id, reset.payload[-1]) == (
        codes.RST_STREAM,
        stream_id,
        ErrorCode.REFUSED_STREAM,
    )


async def test_a_stranger_may_do_less_until_it_authenticates() -> None:
    strangers = StrangerHttp2Limits(streams_max=2, all_buffered_bytes_max=50_000)
    peer = Peer(Http2Limits(strangers=strangers))
    signed_in: list[Connection] = []
    peer.wire.on_signed_in = signed_in.append
    streams = [peer.call(b"x", LATER) for _ in range(3)]
    assert [one.stream_id for one in peer.drain()] == [streams[2]]
    peer.send(rst_stream(streams[0], ErrorCode.CANCEL))
    upload(peer, 2)
    assert peer.wire.strangers_buffered_bytes == 2 * 16_384
    peer.drain()

    peer.connection.sign_in()

    assert signed_in == [peer.connection]
    (report,) = peer.drain()
    assert frames.settings_of(report.payload) == [(codes.MAX_CONCURRENT_STREAMS, 1_000)]
    for _ in range(5):
        peer.call(b"x", LATER)
        upload(peer, 2)
    assert not peer.is_closed
    assert peer.wire.buffered_bytes == 12 * 16_384
    assert peer.wire.strangers_buffered_bytes == 0


async def test_all_strangers_together_have_a_smaller_buffer_limit() -> None:
    strangers = StrangerHttp2Limits(all_buffered_bytes_max=50_000)
    one = Peer(Http2Limits(strangers=strangers))
    other = Peer(wire=one.wire)
    for peer in (one, other):
        upload(peer, 2)

    assert not one.is_closed
    assert "that have not signed in" in goaway_of(other.drain())[1]


# Time.


@pytest.mark.parametrize(
    "half",
    [
        frames.ping(bytes(8), is_ack=False)[:8],
        frames.ping(bytes(8), is_ack=False)[:16],
        frame(codes.HEADERS, 0, 1, BLOCK),
    ],
)
async def test_half_a_frame_or_block_times_out(half: bytes) -> None:
    peer = Peer()
    peer.send(half)

    peer.clock.advance_ms(29_999)
    peer.connection.sweep(peer.clock.monotonic())
    assert not peer.is_closed
    peer.clock.advance_ms(1)
    peer.connection.sweep(peer.clock.monotonic())

    assert "did not arrive within 30 s" in goaway_of(peer.drain())[1]


async def test_half_a_preface_times_out() -> None:
    peer = Peer(greets=False)
    peer.send(PREFACE[:10])

    peer.clock.advance_ms(30_000)
    peer.connection.sweep(peer.clock.monotonic())

    assert peer.is_closed


async def test_an_unfinished_request_times_out() -> None:
    peer = Peer()
    stream_id = peer.call(None, ends=False)
    for _ in range(3):
        peer.clock.advance_ms(20_000)
        peer.send(frame(codes.DATA, 0, stream_id, b"\0"))
        peer.connection.sweep(peer.clock.monotonic())
    assert peer.drain() == []

    peer.clock.advance_ms(30_000)
    peer.connection.sweep(peer.clock.monotonic())

    answer = peer.answer(stream_id)
    assert (answer.status, answer.is_over) == (4, True)
    assert not peer.is_closed


async def test_a_peer_that_reads_nothing_for_too_long_is_disconnected() -> None:
    peer = Peer(methods={ECHO: Unary(lambda *_: bytes(100_000))})
    peer.call()
    peer.connection.sweep(peer.clock.monotonic())
    for _ in range(3):
        peer.clock.advance_ms(50_000)
        peer.send(window_update(0, 1) + window_update(1, 1))
        peer.connection.sweep(peer.clock.monotonic())
    assert not peer.is_closed

    peer.clock.advance_ms(60_000)
    peer.connection.sweep(peer.clock.monotonic())

    assert peer.transport.is_aborted


async def test_an_idle_connection_without_calls_is_closed_despite_pings() -> None:
    peer = Peer()
    peer.call()
    peer.connection.sweep(peer.clock.monotonic())
    for _ in range(11):
        peer.clock.advance_ms(10_000)
        peer.send(frames.ping(bytes(8), is_ack=False))
        peer.connection.sweep(peer.clock.monotonic())
    assert not peer.is_closed
    peer.drain()

    peer.clock.advance_ms(10_000)
    peer.connection.sweep(peer.clock.monotonic())

    assert goaway_of(peer.drain()) == (ErrorCode.NO_ERROR, "idle")
    assert peer.is_closed


async def test_an_open_call_keeps_its_connection() -> None:
    peer = Peer()
    peer.call(b"x", LATER)

    for _ in range(100):
        peer.clock.advance_ms(10_000)
        peer.connection.sweep(peer.clock.monotonic())

    assert not peer.is_closed
