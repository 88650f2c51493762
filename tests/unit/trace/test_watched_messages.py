"""WatchedMessages has the store times of the newest messages, and forgets the oldest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.trace import watched_messages as watched_messages_module
from broker_core.trace.event import TraceEvent
from broker_core.trace.tracer import Tracer
from broker_core.trace.watched_messages import Stored
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    import pytest


async def test_at_most_the_limit_is_remembered_and_always_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watched_messages_module, "STORED_MAX", 100)
    monkeypatch.setattr(watched_messages_module, "FORGOTTEN", 10)
    tracer = Tracer(ManualClock())
    followed = tracer.watched_messages
    event = TraceEvent(stage="stored", time_ms="0", at_us="0", topic="T", queue_id=0)

    for number in range(1_000):
        followed.stored(Stored(number, number + 1, number / 1000, event, {}))

        assert len(followed.stored_at) <= 100
        first = max(0, number - 89)
        assert all(followed.stored_s(each) == each / 1000 for each in range(first, number + 1))
    assert followed.stored_s(0) is None
    await tracer.shutdown()
