"""Bytes can arrive in any pieces, and can be any bytes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from broker_core.http2 import codes, frames
from broker_core.http2.frames import frame, headers
from tests.support.http2_peer import CHAT, ECHO, REPEAT, Frame, Peer, block_of, data_frame, request

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOTS = 4
payloads = st.binary(max_size=40)
slots = st.integers(0, SLOTS - 1)
steps = st.one_of(
    st.tuples(st.just("open"), slots, st.sampled_from([ECHO, CHAT, REPEAT, "/none"])),
    st.tuples(st.just("data"), slots, payloads),
    st.tuples(st.just("end"), slots, payloads),
    st.tuples(st.just("window"), slots, st.integers(1, 1 << 20)),
    st.tuples(st.just("ping"), slots, st.none()),
    st.tuples(st.just("settings"), slots, st.sampled_from([16_384, 70_000])),
)
anything = st.one_of(
    st.builds(
        frame, st.integers(0, 11), st.integers(0, 255), st.integers(0, 8), st.binary(max_size=60)
    ),
    st.builds(
        lambda stream, path: headers(stream, block_of(*request(path)), ends=False),
        st.integers(0, 8),
        st.sampled_from([ECHO, CHAT, REPEAT, "/none"]),
    ),
    st.builds(data_frame, st.integers(0, 8), payloads, ends=st.booleans()),
    st.builds(frames.window_update, st.integers(0, 4), st.integers(0, 1 << 31)),
    st.builds(
        frames.settings, st.dictionaries(st.integers(1, 6), st.integers(0, 70_000), max_size=3)
    ),
    payloads,
)
cuts = st.lists(st.integers(0, 4_000), max_size=8)


@pytest.fixture(autouse=True)
def no_logs() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def script(actions: list[tuple[str, int, Any]]) -> bytes:
    """Return the bytes of a client that performs these actions as far as the rules allow."""
    sent = []
    open_streams: dict[int, int] = {}
    next_stream = 1
    for action, slot, detail in actions:
        stream_id = open_streams.get(slot, 0)
        if action == "open" and not stream_id:
            open_streams[slot] = next_stream
            sent.append(headers(next_stream, block_of(*request(detail)), ends=False))
            next_stream += 2
        elif action == "data" and stream_id:
            sent.append(data_frame(stream_id, detail, ends=False))
        elif action == "end" and stream_id:
            sent.append(data_frame(open_streams.pop(slot), detail))
        elif action == "window":
            sent.append(frames.window_update(stream_id, detail))
        elif action == "ping":
            sent.append(frames.ping(b"12345678", is_ack=False))
        elif action == "settings":
            sent.append(frames.settings({codes.MAX_FRAME_SIZE: detail}))
    return b"".join(sent)


def run(data: bytes, where: list[int]) -> tuple[dict[int, list[Frame]], bool]:
    """Return a connection's output per stream, and whether it ends, for data in these pieces."""
    peer = Peer()
    at = 0
    for cut in [*sorted(each % (len(data) + 1) for each in where), len(data)]:
        if cut > at:
            peer.send(data[at:cut])
            at = cut
    sent = by_stream(peer.drain())
    is_closed = peer.is_closed
    peer.connection.connection_lost(None)
    wire = peer.wire
    assert wire.streams == wire.buffered_bytes == wire.unsent_bytes == 0
    return sent, is_closed


def by_stream(sent: list[Frame]) -> dict[int, list[Frame]]:
    """Return the frames of each stream, with adjacent DATA joined, because its framing is free."""
    found: dict[int, list[Frame]] = {}
    for one in sent:
        mine = found.setdefault(one.stream_id, [])
        if mine and mine[-1].kind == one.kind == codes.DATA:
            mine[-1] = one._replace(payload=mine[-1].payload + one.payload)
        else:
            mine.append(one)
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=30), cuts)
async def test_the_fragmentation_of_frames_makes_no_difference(
    actions: list[tuple[str, int, Any]], where: list[int]
) -> None:
    data = script(actions)

    sent, is_closed = run(data, where)

    assert not is_closed
    assert (sent, is_closed) == run(data, [])


@settings(max_examples=200, deadline=None)
@given(st.lists(anything, max_size=12), cuts)
async def test_no_bytes_cause_an_internal_error(pieces: list[bytes], where: list[int]) -> None:
    sent, is_closed = run(b"".join(pieces), where)

    goaways = [one for one in sent.get(0, []) if one.kind == codes.GOAWAY]
    assert len(goaways) == is_closed
