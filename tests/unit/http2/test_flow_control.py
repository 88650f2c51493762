"""Windows both ways (RFC 9113, 5.2 and 6.9), and data that waits for them."""

from __future__ import annotations

import asyncio

from broker_core.http2 import codes, frames
from broker_core.http2.codes import ErrorCode
from broker_core.http2.frames import WINDOW_DEFAULT, frame, settings, window_update
from broker_core.http2.limits import Http2Limits
from broker_core.http2.methods import ServerStreaming, Unary
from tests.support.http2_peer import CHAT, ECHO, LATER, Frame, Peer, data_frame

KIB = 1024
BIG = bytes(range(256)) * 800


def data_bytes(sent: list[Frame]) -> dict[int, int]:
    """Return how many bytes of DATA were sent on each stream."""
    found: dict[int, int] = {}
    for one in sent:
        if one.kind == codes.DATA:
            assert len(one.payload) <= frames.FRAME_BYTES_DEFAULT
            found[one.stream_id] = found.get(one.stream_id, 0) + len(one.payload)
    return found


def grants(sent: list[Frame]) -> dict[int, int]:
    """Return how far each window was widened; 0 is the connection."""
    found: dict[int, int] = {}
    for one in sent:
        if one.kind == codes.WINDOW_UPDATE:
            increment = int.from_bytes(one.payload, "big")
            found[one.stream_id] = found.get(one.stream_id, 0) + increment
    return found


# Our data.


async def test_an_answer_is_sent_as_far_as_the_windows_allow_and_continues() -> None:
    peer = Peer(methods={ECHO: Unary(lambda *_: BIG)})
    stream_id = peer.call()
    total = len(BIG) + 5

    assert data_bytes(peer.drain()) == {1: WINDOW_DEFAULT}
    peer.send(window_update(stream_id, 10_000))
    assert data_bytes(peer.drain()) == {}
    peer.send(window_update(0, 4_000))
    assert data_bytes(peer.drain()) == {1: 4_000}
    peer.send(window_update(0, 1 << 20))
    assert data_bytes(peer.drain()) == {1: 6_000}
    peer.send(window_update(stream_id, 1 << 20))
    sent = peer.drain()
    assert data_bytes(sent) == {1: total - WINDOW_DEFAULT - 10_000}
    assert (sent[-1].kind, sent[-1].ends) == (codes.HEADERS, True)
    assert peer.connection.outbox.unsent_bytes == peer.wire.unsent_bytes == 0


async def test_a_long_answer_arrives_whole_in_frames_that_fit_the_peer() -> None:
    peer = Peer(methods={ECHO: Unary(lambda *_: BIG)})
    peer.send(window_update(0, 1 << 20) + settings({codes.INITIAL_WINDOW_SIZE: 1 << 20}))
    assert peer.answer(peer.call()).messages == [BIG]

    peer.send(settings({codes.MAX_FRAME_SIZE: 1 << 20}))
    peer.drain()
    peer.call()
    assert [len(one.payload) for one in peer.drain() if one.kind == codes.DATA] == [len(BIG) + 5]


async def test_calls_that_share_a_window_take_turns() -> None:
    peer = Peer(methods={ECHO: Unary(lambda *_: BIG)})
    peer.send(settings({codes.INITIAL_WINDOW_SIZE: 1 << 20}))
    peer.drain()
    for _ in range(3):
        peer.call()
    peer.drain()

    peer.send(window_update(0, 3 * 16 * KIB))

    assert data_bytes(peer.drain()) == {1: 16 * KIB, 3: 16 * KIB, 5: 16 * KIB}


async def test_a_stream_without_a_window_does_not_block_the_others() -> None:
    peer = Peer(methods={ECHO: Unary(lambda *_: BIG)})
    peer.send(window_update(0, 1 << 20))
    peer.call()
    peer.drain()
    stream_id = peer.call()
    peer.send(window_update(stream_id, 1 << 20))

    assert data_bytes(peer.drain()) == {stream_id: len(BIG) + 5}


async def test_6_9_2_a_window_may_become_negative_and_recovers() -> None:
    peer = Peer(methods={ECHO: Unary(lambda *_: BIG)})
    peer.send(window_update(0, 1 << 20))
    stream_id = peer.call()
    assert data_bytes(peer.drain()) == {1: WINDOW_DEFAULT}

    peer.send(settings({codes.INITIAL_WINDOW_SIZE: 1_000}))
    peer.send(window_update(stream_id, WINDOW_DEFAULT - 1_000))
    assert data_bytes(peer.drain()) == {}
    peer.send(window_update(stream_id, 7))
    assert data_bytes(peer.drain()) == {1: 7}
    peer.send(settings({codes.INITIAL_WINDOW_SIZE: 1_500}))
    assert data_bytes(peer.drain()) == {1: 500}


async def test_6_9_3_windows_that_start_at_zero_hold_everything_but_headers() -> None:
    peer = Peer()
    peer.send(settings({codes.INITIAL_WINDOW_SIZE: 0}))
    peer.drain()

    stream_id = peer.call()

    assert [one.kind for one in peer.drain()] == [codes.HEADERS]
    peer.send(window_update(stream_id, 100))
    assert [one.kind for one in peer.drain()] == [codes.DATA, codes.HEADERS]


async def test_the_rest_of_a_reset_call_is_dropped() -> None:
    peer = Peer(methods={ECHO: Unary(lambda *_: BIG)})
    stream_id = peer.call()
    peer.drain()
    assert peer.wire.unsent_bytes == len(BIG) + 5 - WINDOW_DEFAULT

    peer.send(frames.rst_stream(stream_id, ErrorCode.CANCEL) + window_update(0, 1 << 20))

    assert peer.drain() == []
    assert peer.wire.unsent_bytes == peer.wire.streams == 0


async def test_small_answers_of_a_stream_share_frames() -> None:
    peer = Peer(methods={ECHO: ServerStreaming(send_forty)})

    stream_id = peer.call()
    sent = peer.drain()

    assert [one.kind for one in sent] == [codes.HEADERS, codes.DATA, codes.HEADERS]
    assert len(sent[1].payload) == 40 * 105
    assert {one.stream_id for one in sent} == {stream_id}


def send_forty(call, _):
    for _ in range(40):
        call.send(bytes(100))
    call.end()


async def test_a_handler_waits_until_the_client_reads() -> None:
    progress = []

    async def stream(call, _):
        for number in range(40):
            call.send(bytes(64 * KIB))
            assert await call.drained()
            progress.append(number)

    peer = Peer(methods={ECHO: ServerStreaming(stream)})
    stream_id = peer.call()
    for _ in range(50):
        await asyncio.sleep(0)
    before = len(progress)
    assert 0 < before < 8
    assert peer.wire.unsent_bytes <= 400 * KIB

    peer.send(window_update(0, 1 << 24) + window_update(stream_id, 1 << 24))
    for _ in range(200):
        await asyncio.sleep(0)

    assert len(progress) == 40
    answer = peer.answer(stream_id)
    assert (len(answer.messages), answer.status) == (40, 0)


async def test_a_waiting_handler_learns_that_its_call_has_ended() -> None:
    ends = []

    async def stream(call, _):
        call.send(bytes(1 << 20))
        ends.append(await call.drained())

    peer = Peer(methods={ECHO: ServerStreaming(stream)})
    stream_id = peer.call()
    await asyncio.sleep(0)

    peer.send(frames.rst_stream(stream_id, ErrorCode.CANCEL))
    for _ in range(5):
        await asyncio.sleep(0)

    assert ends == [False]


async def test_a_peer_that_does_not_read_is_not_read_from_and_gets_no_data() -> None:
    peer = Peer(methods={ECHO: Unary(lambda *_: BIG)})
    peer.send(window_update(0, 1 << 20) + settings({codes.INITIAL_WINDOW_SIZE: 1 << 20}))
    peer.drain()

    peer.connection.pause_writing()
    stream_id = peer.call()

    assert peer.transport.is_paused
    assert data_bytes(peer.drain()) == {}
    peer.connection.resume_writing()
    await asyncio.sleep(0)
    assert not peer.transport.is_paused
    assert data_bytes(peer.drain()) == {stream_id: len(BIG) + 5}


# The peer's data.


async def test_the_connections_window_is_widened_when_half_of_it_is_used() -> None:
    peer = Peer()
    total = granted = 0
    while not granted:
        peer.call(bytes(16_000))
        total += 16_005
        granted = grants(peer.drain()).get(0, 0)

    assert 2 << 20 < total < (2 << 20) + 17_000
    assert granted == total


async def test_dropped_data_counts_against_the_connections_window() -> None:
    peer = Peer(methods={})
    stream_id = peer.call(None, "/none", ends=False)
    peer.drain()

    peer.send(frame(codes.DATA, 0, stream_id, bytes(16_384)) * 129)

    assert grants(peer.drain()) == {0: 129 * 16_384}


async def test_a_long_request_gets_its_window_immediately() -> None:
    peer = Peer()
    message = bytes(1_000_000)
    data = data_frame(1, message)
    stream_id = peer.call(None, ends=False)

    peer.send(data[: 9 + 16_384])
    assert grants(peer.drain())[stream_id] >= len(message) + 5 - WINDOW_DEFAULT

    peer.send(data[9 + 16_384 :] + window_update(0, 1 << 20) + window_update(1, 1 << 20))
    assert peer.answer(stream_id).messages == [message]
    assert peer.wire.buffered_bytes == 0


async def test_a_request_within_the_first_window_needs_no_grant() -> None:
    peer = Peer()

    peer.call(bytes(65_000))

    assert grants(peer.drain()) == {}


async def test_long_requests_that_would_use_too_much_together_wait_for_each_other() -> None:
    peer = Peer(Http2Limits(buffered_bytes_max=1 << 20))
    streams = [peer.call(None, ends=False) for _ in range(3)]
    datas = [data_frame(stream_id, bytes(600_000)) for stream_id in streams]
    for data in datas:
        peer.send(data[: 9 + 16_384])

    assert grants(peer.drain()).keys() == {streams[0]}
    peer.send(datas[0][9 + 16_384 :])
    assert grants(peer.drain()).keys() >= {streams[1]}
    # A cancelled one also lets the next in.
    peer.send(frames.rst_stream(streams[1], ErrorCode.CANCEL))
    assert grants(peer.drain()).keys() == {streams[2]}


async def test_a_single_request_may_exceed_its_connections_buffer() -> None:
    peer = Peer(Http2Limits(buffered_bytes_max=1_000))

    stream_id = peer.call(bytes(100_000))
    peer.send(window_update(0, 1 << 20) + window_update(stream_id, 1 << 20))

    assert peer.answer(stream_id).messages == [bytes(100_000)]


async def test_6_9_1_data_beyond_the_window_of_a_stream_resets_it() -> None:
    peer = Peer(Http2Limits(buffered_bytes_max=1_000))
    first = peer.call(None, LATER, ends=False)
    peer.send(data_frame(first, bytes(100_000))[: 9 + 16_384])
    stream_id = peer.call(None, LATER, ends=False)
    peer.drain()

    # The turn hasn't come, so it still has its first window.
    peer.send(data_frame(stream_id, bytes(100_000))[: 5 * (9 + 16_384)])

    resets = [one for one in peer.drain() if one.kind == codes.RST_STREAM]
    assert [(one.stream_id, one.payload[-1]) for one in resets] == [
        (stream_id, ErrorCode.FLOW_CONTROL_ERROR)
    ]


async def test_a_conversations_window_is_widened_as_it_is_used() -> None:
    peer = Peer()
    stream_id = peer.call(None, CHAT, ends=False)
    sent = granted = 0

    for _ in range(100):
        peer.send(data_frame(stream_id, bytes(4_000), ends=False))
        sent += 4_005
        granted += grants(peer.drain()).get(stream_id, 0)
        assert sent <= WINDOW_DEFAULT + granted

    assert WINDOW_DEFAULT + granted - sent >= WINDOW_DEFAULT // 2


async def test_a_long_message_of_a_conversation_is_accepted() -> None:
    peer = Peer()
    stream_id = peer.call(None, CHAT, ends=False)
    peer.send(window_update(0, 1 << 20) + window_update(stream_id, 1 << 20))

    peer.send(data_frame(stream_id, bytes(200_000), ends=False))
    peer.send(data_frame(stream_id, b"next", ends=False))

    assert peer.answer(stream_id).messages == [bytes(200_000), b"next"]
    assert peer.wire.buffered_bytes == 0
