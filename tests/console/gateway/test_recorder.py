"""The contract of RecorderGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.answers import WatchFilter
from console.gateway.flight_recorder import Level, Question, RecordedEvents, TraceLevel
from tests.console.gateway.support import ORDERS, ask, send

if TYPE_CHECKING:
    from console.gateway.ports import Gateway


async def test_everything_is_kept_for_some_minutes_and_sent_on_request(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    before = (await ask(gateway.recorder.levels))["broker-a"]
    await ask(gateway.recorder.set_level, Level.FULL, 5)
    await send(gateway, "Orders", queue_id=1, count=1)

    now = (await ask(gateway.recorder.levels))["broker-a"]
    target = WatchFilter(topic="Orders")
    answer = (await ask(gateway.recorder.recorded, Question.ALL, 10, 100, target))["broker-a"]

    assert isinstance(before, TraceLevel)
    assert isinstance(now, TraceLevel)
    assert isinstance(answer, RecordedEvents)
    assert (before.level, before.full_until_ms) == ("recorder", None)
    assert (now.level, now.full_until_ms is not None) == ("full", True)
    # A slow put is also recorded as such.
    stored = [event for event in answer.events if event["stage"] == "stored"]
    assert {(event["topic"], event["queueOffset"]) for event in stored} == {("Orders", "0")}
