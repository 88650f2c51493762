"""Fake RecorderGateway; tests set its events and levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.fakes.broker import BROKER_NAME
from console.gateway.flight_recorder import Level, Question, RecordedEvents, TraceLevel

if TYPE_CHECKING:
    from console.gateway.answers import TraceEvent, WatchFilter
    from console.gateway.errors import GatewayError
    from console.gateway.fakes.broker import FakeBroker

MIB = 1 << 20
SINCE_MS = 1_700_000_000_000


class FakeRecorder:
    """Answers from `broker.recorded`, which holds all events."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        broker.watchers.append(self._note)

    def _note(self, event: TraceEvent) -> None:
        if self._broker.trace_level[0] == Level.FULL:
            self._broker.recorded.append(event)

    def levels(self) -> dict[str, TraceLevel | GatewayError]:
        self._broker.check()
        if self._broker.recorder_fails is not None:
            return {BROKER_NAME: self._broker.recorder_fails}
        level, minutes = self._broker.trace_level
        until = None if minutes is None else SINCE_MS + minutes * 60_000
        count = len(self._broker.recorded)
        found = TraceLevel(level, until, 1, count, count * 500, 16 * MIB, 10, SINCE_MS)
        return {BROKER_NAME: found}

    def set_level(self, level: Level, minutes: int | None = None) -> None:
        self._broker.check()
        self._broker.trace_level = str(level), minutes

    def recorded(
        self, question: Question, minutes: int, limit: int, wanted: WatchFilter
    ) -> dict[str, RecordedEvents | GatewayError]:
        self._broker.check()
        if self._broker.recorder_fails is not None:
            return {BROKER_NAME: self._broker.recorder_fails}
        events = [
            event
            for event in self._broker.recorded
            if wanted.topic in {None, event["topic"]}
            and (
                wanted.message is None
                or event.get("uniqKey") == wanted.message.uniq_key
                or event.get("queueOffset") == str(wanted.message.queue_offset)
            )
        ]
        if question is Question.SLOWEST:
            events.sort(key=lambda event: -int(event.get("latencyUs", 0)))
        elif question is Question.ERRORS:
            events = [each for each in events if each["stage"] in {"dead", "refused", "given_back"}]
        return {BROKER_NAME: RecordedEvents(tuple(events[:limit]), SINCE_MS, is_full=False)}
