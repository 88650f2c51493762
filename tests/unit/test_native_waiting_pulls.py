"""Pulls at the end of their queue: which the compiled turn parks, and how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.trace.filter import TraceWatch
from broker_core.trace.watch import Watcher
from tests.support import pull_frames, send_frames
from tests.support.native_turn import TOPIC, a_send, a_twin, change, served
from tests.support.twins import Twin, is_compiled, settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="no compiled turn: python -m broker_core.native.build"
)

TIMEOUT_MS = 15_000


@pytest.fixture
async def twin() -> AsyncIterator[Twin]:
    async for each in a_twin():
        await each.feed(a_send() * 3)
        each.transport.written.clear()
        yield each


def a_pull(queue_offset: int = 3, opaque: int = 7, *, flags: int = 2, **more: Any) -> bytes:
    fields = pull_frames.fields_of(TOPIC, more.pop("queue_id", 0), queue_offset, flags=flags)
    return pull_frames.pull(fields | more, opaque)


def answers(twin: Twin) -> list[bytes]:
    """Return the answers to pulls since the previous call."""
    frames = send_frames.frames_in(bytes(twin.transport.written))
    twin.transport.written.clear()
    return [frame for frame in frames if b"nextBeginOffset" in frame]


async def test_a_pull_at_the_end_waits_for_the_next_message_and_is_answered_once(
    twin: Twin,
) -> None:
    assert await served(twin, a_pull()) == 1
    assert answers(twin) == []
    assert len(twin.parts.parked_pulls) == 1 + 4

    await twin.feed(a_send(body=b"next") + a_send(body=b"after"))
    await twin.feed(a_send(body=b"late"))

    (answer,) = answers(twin)
    assert answer.startswith(b'{"code":0,', 8)
    assert b'"nextBeginOffset":"5"' in answer
    assert b'"opaque":7,' in answer
    assert b"next" in answer
    assert b"after" in answer
    assert b"late" not in answer
    assert len(twin.parts.parked_pulls) == 4


@pytest.mark.parametrize(("queue_id", "name"), [(0, b"OFFSET_OVERFLOW_ONE"), (3, b"NO_MESSAGE")])
async def test_a_pull_without_messages_is_answered_at_its_deadline(
    twin: Twin, queue_id: int, name: bytes
) -> None:
    offset = 0 if queue_id else 3
    assert await served(twin, a_pull(offset, queue_id=str(queue_id))) == 1

    twin.clock.advance_ms(TIMEOUT_MS - 1)
    await settled()
    assert answers(twin) == []
    twin.clock.advance_ms(1)
    await settled()

    (answer,) = answers(twin)
    assert answer.startswith(b'{"code":19,', 8)
    assert name in answer


async def test_a_pull_that_must_not_wait_is_answered_immediately(twin: Twin) -> None:
    assert await served(twin, a_pull(flags=0) + a_pull(suspendTimeoutMillis="0")) == 2

    assert [answer.startswith(b'{"code":19,', 8) for answer in answers(twin)] == [True, True]


async def test_a_pull_with_unmatched_tags_returns_immediately_or_keeps_waiting(twin: Twin) -> None:
    assert await served(twin, a_pull(0, flags=6, subscription="TagB")) == 1
    (answer,) = answers(twin)
    assert answer.startswith(b'{"code":20,', 8)
    assert b'"nextBeginOffset":"3"' in answer

    assert await served(twin, a_pull(3, flags=6, subscription="TagB")) == 1
    await twin.feed(a_send(properties="TAGS\x01TagA\x02"))
    assert answers(twin) == []
    await twin.feed(a_send(properties="TAGS\x01TagB\x02", body=b"wanted"))

    (answer,) = answers(twin)
    assert answer.count(b"wanted") == 1
    assert b'"nextBeginOffset":"5"' in answer


async def test_later_watches_are_served_by_python(twin: Twin) -> None:
    assert await served(twin, a_pull()) == 1
    twin.parts.tracer.watch("c", TraceWatch(topic=TOPIC), Watcher(lambda _: True))

    await twin.feed(a_send(body=b"seen"))

    (answer,) = answers(twin)
    assert b"seen" in answer
    assert twin.parts.stats.got_total == 1


async def test_a_lost_connection_leaves_no_waiting_pull(twin: Twin) -> None:
    assert await served(twin, a_pull() * 3) == 3

    twin.parts.parked_pulls.close(twin.connection)
    await twin.feed(a_send())

    assert len(twin.parts.parked_pulls) == 4
    assert answers(twin) == []


async def test_keys_for_waiting_apply_immediately(twin: Twin) -> None:
    change(twin, "longPollingEnable", "false")
    assert await served(twin, a_pull()) == 1

    twin.clock.advance_ms(1_000)
    await settled()

    (answer,) = answers(twin)
    assert answer.startswith(b'{"code":19,', 8)


async def test_a_long_request_does_not_wait_and_is_left_to_python(twin: Twin) -> None:
    assert await served(twin, a_pull(x="x" * 9_000)) == 0

    assert len(answers(twin)) == 1


async def test_frames_left_to_python_are_counted_by_their_reason(twin: Twin) -> None:
    turn = twin.wire.plain_requests
    assert turn is not None
    before = turn.fallbacks
    frames = {
        "code": pull_frames.pull({}, 1, code=34),
        "header": pull_frames.pull({}, 1, code=11),
        "reader": a_pull(consumerGroup="nobody"),
        "offset": a_pull(1 << 40),
        "property": a_send(properties="DELAY\x011\x02"),
        "queue": send_frames.send(send_frames.fields_of("Unknown", 0, ""), b"", 1),
        "batch": send_frames.send(send_frames.fields_of(TOPIC, 0, "", is_batch=True), b"torn", 1),
    }

    for reason, frame in frames.items():
        assert await served(twin, frame) == 0
        assert turn.fallbacks == {**before, reason: before[reason] + 1}, reason
        before = turn.fallbacks
    assert await served(twin, a_send() + a_pull()) == 2
    # Only the end of a request is counted, not its beginning.
    await twin.feed(frames["property"][:-3])
    assert turn.fallbacks == before
