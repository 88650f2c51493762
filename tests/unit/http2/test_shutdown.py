"""Graceful ends of connections (RFC 9113, 6.8, 8.7 and 9.1)."""

from __future__ import annotations

import asyncio

from broker_core.http2 import codes, frames
from broker_core.http2.codes import ErrorCode, GrpcStatus
from broker_core.http2.connection import DRAIN_PING
from tests.support.http2_peer import ECHO, LATER, Frame, Peer, block_of, data_frame, request


def last_streams(sent: list[Frame]) -> list[int]:
    """Return the last stream identifier of each GOAWAY."""
    return [int.from_bytes(one.payload[:4], "big") for one in sent if one.kind == codes.GOAWAY]


async def test_a_peer_is_told_twice_so_that_no_pending_call_is_lost() -> None:
    peer = Peer()
    waiting = peer.call(b"x", LATER)

    peer.connection.drain()
    sent = peer.drain()
    assert last_streams(sent) == [frames.STREAM_ID_MAX]
    assert (sent[-1].kind, sent[-1].payload) == (codes.PING, DRAIN_PING)

    # Sent before the peer saw that: it's answered.
    under_way = peer.call(b"under way")
    assert peer.answer(under_way).messages == [b"under way"]
    peer.send(frames.ping(DRAIN_PING, is_ack=True))
    assert last_streams(peer.drain()) == [under_way]

    # Sent after: it's ignored, and the client retries it elsewhere.
    late = peer.call(b"late", ECHO)
    assert peer.drain() == []
    assert not peer.is_closed

    peer.service.waiting[0].answer(b"done")
    assert peer.answer(waiting).messages == [b"done"]
    await asyncio.sleep(0)
    assert peer.transport.is_closed
    assert peer.answer(late).is_over is False


async def test_a_connection_without_calls_closes_when_its_peer_has_been_told() -> None:
    peer = Peer()
    peer.connection.drain()
    peer.connection.drain()

    peer.send(frames.ping(DRAIN_PING, is_ack=True))
    await asyncio.sleep(0)

    assert peer.transport.is_closed
    assert last_streams(peer.drain())[:2] == [frames.STREAM_ID_MAX, 0]


async def test_an_ignored_calls_data_is_ignored_but_its_fields_are_decoded() -> None:
    peer = Peer()
    waiting = peer.call(b"x", LATER)
    peer.connection.drain()
    peer.send(frames.ping(DRAIN_PING, is_ack=True))
    peer.drain()

    kept = b"\x40\x03x-a\x01b"
    peer.send(frames.headers(5, block_of(*request()) + kept, ends=False))
    peer.send(data_frame(5, bytes(50_000)))
    peer.send(frames.headers(7, block_of(*request()) + b"\xbe", ends=True))

    assert [one.kind for one in peer.drain()] == []
    peer.service.waiting[0].answer(b"done")
    assert peer.answer(waiting).messages == [b"done"]


async def test_endless_calls_get_unavailable() -> None:
    peer = Peer()
    stream_id = peer.call(b"x", LATER)

    peer.connection.finish("the server is shutting down")

    answer = peer.answer(stream_id)
    assert (answer.status, answer.text) == (
        GrpcStatus.UNAVAILABLE,
        "the server is shutting down",
    )
    assert peer.service.cancelled == peer.service.waiting
    assert peer.transport.is_closed


async def test_data_after_the_end_is_not_served() -> None:
    peer = Peer()
    peer.send(frames.frame(codes.PING, 0, 1, bytes(8)) + frames.ping(bytes(8), is_ack=False))
    sent = peer.drain()
    assert [one.kind for one in sent] == [codes.GOAWAY]
    assert last_streams(sent) == [0]

    peer.call()

    assert peer.drain() == []


async def test_a_closed_connection_tells_the_peer_why() -> None:
    peer = Peer()
    peer.call()
    peer.drain()

    peer.connection.close(ErrorCode.ENHANCE_YOUR_CALM, "too much")

    (goaway,) = peer.drain()
    assert goaway.payload == b"\0\0\0\1\0\0\0\x0btoo much"
    peer.connection.close(ErrorCode.NO_ERROR)
    assert peer.drain() == []
