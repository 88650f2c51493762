"""The requirements of RFC 9113 for a server, section by section.

Each row sends frames on a new connection and names the expected result. If the connection must
survive, a call follows that must be answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from broker_core.http2 import codes, frames
from broker_core.http2.codes import ErrorCode
from broker_core.http2.frames import PREFACE, frame, headers, rst_stream, settings, window_update
from tests.support.http2_peer import CHAT, LATER, Peer, block_of, data_frame, request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.http2_peer import Frame

END_BOTH = codes.END_HEADERS | codes.END_STREAM


class GoesAway(NamedTuple):
    """The connection ends with a GOAWAY of this code."""

    code: ErrorCode


class Resets(NamedTuple):
    """A stream ends with a RST_STREAM of this code; the connection continues."""

    code: ErrorCode
    stream_id: int = 1


class Sends(NamedTuple):
    """A frame is sent; the connection continues."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes


class Answers(NamedTuple):
    """A stream is answered by this grpc-status; the connection continues."""

    status: int = 0
    stream_id: int = 1
    http_status: str = "200"


class Ignores(NamedTuple):
    """Nothing is sent; the connection continues."""


Outcome = GoesAway | Resets | Sends | Answers | Ignores


class Row(NamedTuple):
    section: str
    says: str
    sends: Callable[[Peer], object] | bytes
    outcome: Outcome


def fields(*changed: tuple[str, str], without: str = "", **pseudo: str) -> bytes:
    """Return the block of a request with extra fields, or without one."""
    path = pseudo.pop("path", "/test.Service/Echo")
    return block_of(*(f for f in request(path, **pseudo) if f[0] != without), *changed)


def opens(block: bytes, stream_id: int = 1) -> bytes:
    """Return HEADERS and the message of a call."""
    return headers(stream_id, block, ends=False) + data_frame(stream_id, b"hello")


def open_stream(stream_id: int = 1, path: str = LATER) -> bytes:
    """Return the HEADERS of a call whose message follows later."""
    return headers(stream_id, fields(path=path), ends=False)


def data(stream_id: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return frame(codes.DATA, flags, stream_id, payload)


def trailers(*of: tuple[str, str], flags: int = END_BOTH) -> bytes:
    return frame(codes.HEADERS, flags, 1, block_of(*of))


def header_frame(flags: int, payload: bytes, stream_id: int = 1) -> bytes:
    return frame(codes.HEADERS, flags, stream_id, payload)


def continuation(payload: bytes, flags: int = 0, stream_id: int = 1) -> bytes:
    return frame(codes.CONTINUATION, flags, stream_id, payload)


def setting(name: int, value: int) -> bytes:
    return settings({name: value})


def ended_call(peer: Peer) -> None:
    """Have a call answered, so that its stream is closed."""
    peer.send(opens(fields()))
    peer.drain()


def after_a_call(more: bytes) -> Callable[[Peer], None]:
    def send(peer: Peer) -> None:
        ended_call(peer)
        peer.send(more)

    return send


def after_a_reset_of_ours(more: bytes) -> Callable[[Peer], None]:
    def send(peer: Peer) -> None:
        peer.send(open_stream() + window_update(1, 0))
        peer.drain()
        peer.send(more)

    return send


BLOCK = fields()
ECHOED = data_frame(1, b"hello")
PROTOCOL_ERROR = GoesAway(ErrorCode.PROTOCOL_ERROR)
FRAME_SIZE_ERROR = GoesAway(ErrorCode.FRAME_SIZE_ERROR)
MALFORMED = Resets(ErrorCode.PROTOCOL_ERROR)

ROWS = (
    Row("4.1", "flags without a meaning for a type are ignored",
        lambda p: p.send(frame(codes.PING, 0xFE, 0, b"12345678")),
        Sends(codes.PING, codes.ACK, 0, b"12345678")),
    Row("4.1", "the reserved bit before a stream identifier is ignored",
        frame(codes.HEADERS, codes.END_HEADERS, 1 | 1 << 31, BLOCK)
        + frame(codes.DATA, codes.END_STREAM, 1 | 1 << 31, b"\0\0\0\0\5hello"), Answers()),
    Row("4.2", "a frame as long as SETTINGS_MAX_FRAME_SIZE is taken",
        headers(1, BLOCK, ends=False) + data_frame(1, bytes(16_379)), Answers()),
    Row("4.2", "a longer frame ends the connection",
        open_stream() + data(1, bytes(16_385)), FRAME_SIZE_ERROR),
    Row("4.3", "a field block that cannot be decoded ends the connection",
        header_frame(codes.END_HEADERS, b"\xff\xff\xff\xff\xff\xff"),
        GoesAway(ErrorCode.COMPRESSION_ERROR)),
    Row("4.3", "the block of a refused stream is still decoded",
        # The table stores a field of a malformed request; the next request uses its index.
        header_frame(END_BOTH, b"\x40\x03x-a\x01b" + block_of(("Bad", "")))
        + opens(BLOCK + b"\xbe", 3), Answers(stream_id=3)),
    Row("4.3", "no other frame comes within a field block, of another stream either",
        header_frame(0, BLOCK) + header_frame(codes.END_HEADERS, BLOCK, 3), PROTOCOL_ERROR),
    Row("4.3", "no frame of an unknown type comes within a field block",
        header_frame(0, BLOCK) + frame(0x66, 0, 0, b""), PROTOCOL_ERROR),
    Row("5.1", "idle: DATA ends the connection", data(1, b"x"), PROTOCOL_ERROR),
    Row("5.1", "idle: RST_STREAM ends the connection", rst_stream(1, 8), PROTOCOL_ERROR),
    Row("5.1", "idle: WINDOW_UPDATE ends the connection", window_update(1, 9), PROTOCOL_ERROR),
    Row("5.1", "idle: CONTINUATION ends the connection", continuation(BLOCK, 4), PROTOCOL_ERROR),
    Row("5.1", "idle: PRIORITY is taken", frame(codes.PRIORITY, 0, 1, bytes(5)), Ignores()),
    Row("5.1", "half-closed (remote): DATA is STREAM_CLOSED",
        open_stream() + ECHOED + ECHOED, Resets(ErrorCode.STREAM_CLOSED)),
    Row("5.1", "half-closed (remote): HEADERS is STREAM_CLOSED",
        open_stream() + ECHOED + trailers(("a", "b")), Resets(ErrorCode.STREAM_CLOSED)),
    Row("5.1", "half-closed (remote): WINDOW_UPDATE and PRIORITY are taken",
        open_stream() + ECHOED + window_update(1, 9) + frame(codes.PRIORITY, 0, 1, bytes(5)),
        Ignores()),
    Row("5.1", "half-closed (remote): RST_STREAM ends the call",
        open_stream() + ECHOED + rst_stream(1, 8), Ignores()),
    Row("5.1", "closed: DATA is STREAM_CLOSED", after_a_call(ECHOED),
        Resets(ErrorCode.STREAM_CLOSED)),
    Row("5.1", "closed: WINDOW_UPDATE, RST_STREAM and PRIORITY are ignored",
        after_a_call(window_update(1, 9) + rst_stream(1, 8) + frame(2, 0, 1, bytes(5))),
        Ignores()),
    Row("5.1", "closed by our reset: what was under way is ignored",
        after_a_reset_of_ours(ECHOED + trailers(("a", "b")) + window_update(1, 9)), Ignores()),
    Row("5.1.1", "an even stream identifier ends the connection",
        headers(2, BLOCK, ends=False), PROTOCOL_ERROR),
    Row("5.1.1", "a stream identifier below the last ends the connection",
        opens(BLOCK, 5) + headers(3, BLOCK, ends=False), PROTOCOL_ERROR),
    Row("5.1.1", "a stream identifier used before ends the connection",
        after_a_call(headers(1, BLOCK, ends=False)), PROTOCOL_ERROR),
    Row("5.1.1", "identifiers may be left out", opens(BLOCK, 999), Answers(stream_id=999)),
    Row("5.4.1", "an error of the connection is said with the last stream",
        lambda p: p.send(opens(BLOCK) + frame(codes.PING, 0, 1, bytes(8))), PROTOCOL_ERROR),
    Row("5.5", "frames of unknown types are ignored",
        frame(0x66, 0xFF, 0, b"anything") + frame(0xFF, 0, 1, b""), Ignores()),
    Row("6.1", "DATA on stream 0 ends the connection", data(0, b"x"), PROTOCOL_ERROR),
    Row("6.1", "padding is taken off",
        open_stream(path="/test.Service/Echo")
        + data(1, b"\x03\0\0\0\0\5hello" + bytes(3), codes.END_STREAM | codes.PADDED), Answers()),
    Row("6.1", "padding as long as its frame ends the connection",
        open_stream() + data(1, b"\x05abcd", codes.PADDED), PROTOCOL_ERROR),
    Row("6.1", "an empty padded frame ends the connection",
        open_stream() + data(1, b"", codes.PADDED), FRAME_SIZE_ERROR),
    Row("6.2", "HEADERS on stream 0 ends the connection",
        headers(0, BLOCK, ends=True), PROTOCOL_ERROR),
    Row("6.2", "padding and priority are taken off",
        header_frame(codes.END_HEADERS | codes.PADDED | codes.HAS_PRIORITY,
                     b"\x02" + bytes(5) + BLOCK + bytes(2)) + ECHOED, Answers()),
    Row("6.2", "padding as long as its frame ends the connection",
        header_frame(codes.END_HEADERS | codes.PADDED, b"\x05abcd"), PROTOCOL_ERROR),
    Row("6.2", "a priority that is cut short ends the connection",
        header_frame(codes.END_HEADERS | codes.HAS_PRIORITY, bytes(4)), FRAME_SIZE_ERROR),
    Row("6.3", "PRIORITY on stream 0 ends the connection",
        frame(codes.PRIORITY, 0, 0, bytes(5)), PROTOCOL_ERROR),
    Row("6.3", "PRIORITY of another length ends the connection",
        frame(codes.PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
    Row("6.4", "RST_STREAM on stream 0 ends the connection", rst_stream(0, 8), PROTOCOL_ERROR),
    Row("6.4", "RST_STREAM of another length ends the connection",
        open_stream() + frame(codes.RST_STREAM, 0, 1, bytes(3)), FRAME_SIZE_ERROR),
    Row("6.5", "SETTINGS are acknowledged", settings({}), Sends(codes.SETTINGS, codes.ACK, 0, b"")),
    Row("6.5", "an acknowledgement is not acknowledged", frames.SETTINGS_ACK, Ignores()),
    Row("6.5", "an acknowledgement with a payload ends the connection",
        frame(codes.SETTINGS, codes.ACK, 0, bytes(6)), FRAME_SIZE_ERROR),
    Row("6.5", "SETTINGS on a stream end the connection",
        frame(codes.SETTINGS, 0, 1, b""), PROTOCOL_ERROR),
    Row("6.5", "SETTINGS of a broken length end the connection",
        frame(codes.SETTINGS, 0, 0, bytes(5)), FRAME_SIZE_ERROR),
    Row("6.5.2", "ENABLE_PUSH is 0 or 1", setting(codes.ENABLE_PUSH, 2), PROTOCOL_ERROR),
    Row("6.5.2", "INITIAL_WINDOW_SIZE is at most 2^31-1",
        setting(codes.INITIAL_WINDOW_SIZE, 1 << 31), GoesAway(ErrorCode.FLOW_CONTROL_ERROR)),
    Row("6.5.2", "MAX_FRAME_SIZE is at least 2^14",
        setting(codes.MAX_FRAME_SIZE, 16_383), PROTOCOL_ERROR),
    Row("6.5.2", "MAX_FRAME_SIZE is at most 2^24-1",
        setting(codes.MAX_FRAME_SIZE, 1 << 24), PROTOCOL_ERROR),
    Row("6.5.2", "unknown settings are ignored, and acknowledged", setting(0xFF00, 7),
        Sends(codes.SETTINGS, codes.ACK, 0, b"")),
    Row("6.6", "PUSH_PROMISE of a client ends the connection",
        frame(codes.PUSH_PROMISE, codes.END_HEADERS, 1, b"\0\0\0\2" + BLOCK), PROTOCOL_ERROR),
    Row("6.7", "PING is answered by the same bytes", frames.ping(b"abcdefgh", is_ack=False),
        Sends(codes.PING, codes.ACK, 0, b"abcdefgh")),
    Row("6.7", "an answered PING is not answered", frames.ping(b"abcdefgh", is_ack=True),
        Ignores()),
    Row("6.7", "PING on a stream ends the connection",
        frame(codes.PING, 0, 1, bytes(8)), PROTOCOL_ERROR),
    Row("6.7", "PING of another length ends the connection",
        frame(codes.PING, 0, 0, bytes(6)), FRAME_SIZE_ERROR),
    Row("6.8", "after a GOAWAY of the client its calls go on",
        frames.goaway(0, 0) + opens(BLOCK), Answers()),
    Row("6.8", "GOAWAY on a stream ends the connection",
        frame(codes.GOAWAY, 0, 1, bytes(8)), PROTOCOL_ERROR),
    Row("6.8", "GOAWAY that is cut short ends the connection",
        frame(codes.GOAWAY, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    Row("6.9", "WINDOW_UPDATE of another length ends the connection",
        frame(codes.WINDOW_UPDATE, 0, 0, bytes(3)), FRAME_SIZE_ERROR),
    Row("6.9", "an increment of 0 ends the connection", window_update(0, 0), PROTOCOL_ERROR),
    Row("6.9", "an increment of 0 on a stream resets it",
        open_stream() + window_update(1, 0), Resets(ErrorCode.PROTOCOL_ERROR)),
    Row("6.9.1", "a window of the connection above 2^31-1 ends it",
        window_update(0, (1 << 31) - 1), GoesAway(ErrorCode.FLOW_CONTROL_ERROR)),
    Row("6.9.1", "a window of a stream above 2^31-1 resets it",
        open_stream() + window_update(1, (1 << 31) - 1), Resets(ErrorCode.FLOW_CONTROL_ERROR)),
    Row("6.9.2", "INITIAL_WINDOW_SIZE that makes a window too large ends the connection",
        open_stream() + window_update(1, 100)
        + setting(codes.INITIAL_WINDOW_SIZE, (1 << 31) - 1),
        GoesAway(ErrorCode.FLOW_CONTROL_ERROR)),
    Row("6.10", "a field block may come in many frames",
        header_frame(0, BLOCK[:5]) + continuation(BLOCK[5:9]) + continuation(b"")
        + continuation(BLOCK[9:], codes.END_HEADERS) + ECHOED, Answers()),
    Row("6.10", "CONTINUATION after END_HEADERS ends the connection",
        open_stream() + continuation(b"", 4), PROTOCOL_ERROR),
    Row("6.10", "CONTINUATION of another stream ends the connection",
        header_frame(0, BLOCK) + continuation(b"", 4, 3), PROTOCOL_ERROR),
    Row("6.10", "CONTINUATION on stream 0 ends the connection",
        header_frame(0, BLOCK) + continuation(b"", 4, 0), PROTOCOL_ERROR),
    Row("7", "an unknown error code is as good as any",
        open_stream() + ECHOED + rst_stream(1, 0xFFFF) + frames.goaway(0, 0xFFFF), Ignores()),
    Row("8.1", "trailers end a request",
        headers(1, BLOCK, ends=False) + data(1, b"\0\0\0\0\5hello") + trailers(("a", "b")),
        Answers()),
    Row("8.1", "trailers that do not end their stream are malformed",
        open_stream() + trailers(("a", "b"), flags=codes.END_HEADERS), MALFORMED),
    Row("8.1", "trailers have no pseudo-header fields",
        open_stream() + trailers((":method", "POST")), MALFORMED),
    Row("8.1.1", "content longer than content-length is malformed",
        opens(fields(("content-length", "9"))), MALFORMED),
    Row("8.1.1", "content shorter than content-length is malformed",
        opens(fields(("content-length", "11"))), MALFORMED),
    Row("8.1.1", "no content where content-length names some is malformed",
        headers(1, fields(("content-length", "1")), ends=True), MALFORMED),
    Row("8.1.1", "content of the right content-length is taken",
        opens(fields(("content-length", "10"))), Answers()),
    Row("8.1.1", "a content-length that is no number is malformed",
        opens(fields(("content-length", "1O"))), MALFORMED),
    Row("8.2.1", "an upper-case letter in a name is malformed",
        opens(fields(("X-Name", "a"))), MALFORMED),
    Row("8.2.1", "a blank in a name is malformed", opens(fields(("a b", "c"))), MALFORMED),
    Row("8.2.1", "a control character in a name is malformed",
        opens(fields(("a\x7f", "c"))), MALFORMED),
    Row("8.2.1", "a character above ASCII in a name is malformed",
        opens(fields(("a\xe4", "c"))), MALFORMED),
    Row("8.2.1", "an empty name is malformed", opens(fields(("", "c"))), MALFORMED),
    Row("8.2.1", "a colon in a name is malformed", opens(fields(("a:b", "c"))), MALFORMED),
    *(
        Row("8.2.1", f"{char!r} in a value is malformed", opens(fields(("a", f"b{char}c"))),
            MALFORMED)
        for char in "\0\r\n"
    ),
    *(
        Row("8.2.1", f"a value {value!r} with a blank at an end is malformed",
            opens(fields(("a", value))), MALFORMED)
        for value in (" b", "b ", "\tb", "b\t")
    ),
    Row("8.2.1", "an empty value and blanks within one are taken",
        opens(fields(("a", ""), ("b", "c d"))), Answers()),
    *(
        Row("8.2.2", f"{name} is malformed", opens(fields((name, "x"))), MALFORMED)
        for name in ("connection", "proxy-connection", "keep-alive", "transfer-encoding",
                     "upgrade")
    ),
    Row("8.2.2", "te is trailers or malformed",
        opens(fields(("te", "gzip"), without="te")), MALFORMED),
    Row("8.3", "an unknown pseudo-header field is malformed",
        opens(block_of((":protocol", "x")) + BLOCK), MALFORMED),
    Row("8.3", "a pseudo-header field of answers is malformed",
        opens(block_of((":status", "200")) + BLOCK), MALFORMED),
    Row("8.3", "a pseudo-header field after an ordinary one is malformed",
        opens(block_of(("a", "b")) + BLOCK), MALFORMED),
    Row("8.3", "a pseudo-header field that comes twice is malformed",
        opens(block_of((":path", "/")) + BLOCK), MALFORMED),
    *(
        Row("8.3.1", f"a request without {name} is malformed", opens(fields(without=name)),
            MALFORMED)
        for name in (":method", ":scheme", ":path")
    ),
    Row("8.3.1", "an empty :path is malformed", opens(fields(path="")), MALFORMED),
    Row("8.3.1", "a request without :authority is taken",
        opens(fields(without=":authority")), Answers()),
    Row("8.5", "CONNECT, which names no path, is malformed here",
        opens(block_of((":method", "CONNECT"), (":authority", "a:1"))), MALFORMED),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.section} {row.says}")
async def test_each_row_of_rfc_9113_holds(row: Row) -> None:
    peer = Peer()

    if isinstance(row.sends, bytes):
        peer.send(row.sends)
    else:
        row.sends(peer)

    expect(peer, row.outcome)
    if not isinstance(row.outcome, GoesAway):
        assert not peer.is_closed
        peer.send(opens(BLOCK, 1_001))
        assert peer.answer(1_001).messages == [b"hello"]


def expect(peer: Peer, outcome: Outcome) -> None:
    if isinstance(outcome, Answers):
        answer = peer.answer(outcome.stream_id)
        assert answer.is_over
        assert (answer.headers[":status"], answer.status) == (outcome.http_status, outcome.status)
        return
    sent = peer.drain()
    match outcome:
        case GoesAway(code):
            assert [frame.kind for frame in sent if frame.kind == codes.GOAWAY] == [codes.GOAWAY]
            assert sent[-1].kind == codes.GOAWAY
            assert goaway_code(sent[-1]) == code
            assert peer.transport.is_closed
        case Resets(code, stream_id):
            resets = [one for one in sent if one.kind == codes.RST_STREAM]
            assert [one.stream_id for one in resets] == [stream_id] * len(resets)
            assert reset_code(resets[0]) == code
        case Sends():
            assert tuple(outcome) in [tuple(one) for one in sent]
        case _:
            assert [one for one in sent if one.kind != codes.WINDOW_UPDATE] == []


def goaway_code(frame: Frame) -> int:
    return int.from_bytes(frame.payload[4:8], "big")


def reset_code(frame: Frame) -> int:
    return int.from_bytes(frame.payload, "big")


def test_the_table_has_each_section_that_applies_to_a_server() -> None:
    here = {row.section for row in ROWS}

    assert here | ELSEWHERE.keys() >= SECTIONS
    assert not here & ELSEWHERE.keys()


SECTIONS = {
    *("3.3", "3.4", "4.1", "4.2", "4.3", "4.3.1", "5.1", "5.1.1", "5.1.2", "5.2.1", "5.2.2"),
    *("5.3", "5.4.1", "5.4.2", "5.5", "6.1", "6.2", "6.3", "6.4", "6.5", "6.5.2", "6.5.3", "6.6"),
    *("6.7", "6.8", "6.9", "6.9.1", "6.9.2", "6.9.3", "6.10", "7", "8.1", "8.1.1", "8.2.1"),
    *("8.2.2", "8.2.3", "8.3", "8.3.1", "8.5", "8.6", "8.7", "9.1", "9.2", "10.3", "10.5"),
}
ELSEWHERE = {
    "3.3": "test_interop.py: grpcio connects with prior knowledge",
    "3.4": "below",
    "4.3.1": "test_hpack.py",
    "5.1.2": "below",
    "5.2.1": "test_flow_control.py",
    "5.2.2": "test_flow_control.py",
    "5.3": "6.3",
    "5.4.2": "below",
    "6.5.3": "below",
    "6.9.3": "test_flow_control.py",
    "8.2.3": "below",
    "8.6": "8.2.2: upgrade",
    "8.7": "test_shutdown.py",
    "9.1": "test_shutdown.py",
    "9.2": "test_interop.py",
    "10.3": "8.2.1",
    "10.5": "test_floods.py",
}


# 3.4: the preface.


async def test_the_first_frame_of_the_server_is_its_settings() -> None:
    peer = Peer(greets=False)
    assert peer.drain() == []

    peer.send(PREFACE + settings({}))

    first, second, _ = peer.drain()

    assert (first.kind, first.flags, first.stream_id) == (codes.SETTINGS, 0, 0)
    assert dict(frames.settings_of(first.payload)) == {
        codes.MAX_CONCURRENT_STREAMS: 1_000,
        codes.MAX_HEADER_LIST_SIZE: 16_384,
    }
    assert (second.kind, second.stream_id) == (codes.WINDOW_UPDATE, 0)


@pytest.mark.parametrize(
    "data",
    [
        PREFACE + frames.ping(bytes(8), is_ack=False),
        PREFACE + frames.SETTINGS_ACK,
        PREFACE + opens(BLOCK),
    ],
)
async def test_a_first_frame_other_than_settings_ends_the_connection(data: bytes) -> None:
    peer = Peer(greets=False)

    peer.send(data)

    expect(peer, PROTOCOL_ERROR)


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r!" + settings({}),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\0\0\x14\0\0\0\0{}",
    ],
)
async def test_an_invalid_preface_ends_the_connection_without_an_answer(data: bytes) -> None:
    peer = Peer(greets=False)

    peer.send(data)

    assert peer.drain() == []
    assert peer.transport.is_closed


async def test_a_connections_bytes_may_arrive_one_by_one() -> None:
    peer = Peer(greets=False)

    for byte in PREFACE + settings({}) + opens(BLOCK):
        peer.send(bytes((byte,)))

    assert peer.answer(1).messages == [b"hello"]


async def test_an_http_1_request_gets_an_explanation() -> None:
    peer = Peer(greets=False)

    peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

    answer = peer.transport.drain()
    assert b"HTTP/1.1 505 HTTP Version Not Supported\r\n" in answer
    assert answer.endswith(b"This port speaks gRPC, which is HTTP/2: with prior knowledge, or over "
                           b"TLS.\n")  # fmt: skip
    assert peer.transport.is_closed


# 5.1.2: the number of streams.


async def test_a_stream_above_the_limit_is_rejected_and_may_be_retried() -> None:
    peer = Peer()
    peer.send(b"".join(opens(fields(path=LATER), 2 * n + 1) for n in range(1_000)))
    peer.drain()

    peer.send(opens(BLOCK, 2_001))

    expect(peer, Resets(ErrorCode.REFUSED_STREAM, 2_001))
    peer.service.waiting[0].answer(b"done")
    peer.send(opens(BLOCK, 2_003))
    assert peer.answer(2_003).messages == [b"hello"]


# 5.4.2: errors of streams.


async def test_a_reset_is_not_answered_with_a_reset() -> None:
    peer = Peer()
    stream_id = peer.call(None, LATER, ends=False)

    peer.send(rst_stream(stream_id, ErrorCode.CANCEL))
    peer.send(rst_stream(stream_id, ErrorCode.CANCEL))

    assert peer.drain() == []


# 6.5.3: settings take effect in their order.


async def test_the_last_of_two_values_of_a_setting_counts() -> None:
    peer = Peer()
    peer.send(
        frame(
            codes.SETTINGS,
            0,
            0,
            settings({4: 0})[9:] + settings({5: 20_000})[9:] + settings({4: 7})[9:],
        )
    )
    assert [one.flags for one in peer.drain()] == [codes.ACK]

    peer.send(opens(BLOCK))

    sent = [one for one in peer.drain() if one.kind == codes.DATA]
    assert [len(one.payload) for one in sent] == [7]


# 8.2.3: repeated fields.


async def test_values_of_a_repeated_name_are_joined() -> None:
    peer = Peer()

    peer.send(opens(fields(("x-a", "1"), ("x-b", "2"), ("x-a", "3"), path=LATER)))

    (call,) = peer.service.waiting
    assert call.headers["x-a"] == "1,3"
    assert call.headers["x-b"] == "2"


async def test_a_conversation_is_answered_while_its_request_is_open() -> None:
    peer = Peer()
    stream_id = peer.call(b"one", CHAT, ends=False)
    assert peer.answer(stream_id).messages == [b"one"]

    peer.send(data_frame(stream_id, b"two", ends=False))
    assert peer.answer(stream_id).messages == [b"one", b"two"]
    assert not peer.answer(stream_id).is_over

    peer.send(data(stream_id, b"", codes.END_STREAM))
    answer = peer.answer(stream_id)
    assert (answer.status, answer.is_over) == (0, True)
