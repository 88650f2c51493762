"""The flight recorder: recorded events, and trace levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy

from console.gateway.access import gateway
from console.gateway.flight_recorder import (
    FULL_MINUTES_MAX,
    Level,
    Question,
    RecordedEvents,
    TraceLevel,
)
from console.messages.family.recorder import LABELS, STATES
from console.messages.family.waterfall import span_text
from console.people.audit.record import change

if TYPE_CHECKING:
    from django.http import HttpRequest

    from console.gateway.answers import TraceEvent, WatchFilter

ROWS_MAX = 100
MINUTES, MINUTES_MAX = 10, 60
QUESTIONS = {
    Question.SLOWEST: gettext_lazy("Slowest"),
    Question.ERRORS: gettext_lazy("Errors"),
    Question.ALL: gettext_lazy("Newest"),
}


LEVEL_LABELS = {
    Level.OFF: gettext_lazy("off"),
    Level.WATCHED: gettext_lazy("live only"),
    Level.RECORDER: gettext_lazy("flight recorder"),
    Level.FULL: gettext_lazy("everything"),
}


WORDS = ("topic", "group", "tag", "key", "client")


class LevelError(ValueError):
    """The trace level doesn't exist."""

    def __init__(self) -> None:
        super().__init__(
            _("The level must be off, watched, recorder, or full for 1 to 60 minutes.")
        )


class Row(NamedTuple):
    """An event, ready for display."""

    event: TraceEvent
    broker_name: str

    @property
    def at_ms(self) -> int:
        return int(self.event["timeMs"])

    @property
    def millis(self) -> str:
        return f"{self.at_ms % 1000:03d}"

    @property
    def label(self) -> str:
        return str(LABELS.get(self.event["stage"], self.event["stage"]))

    @property
    def state(self) -> str:
        return STATES.get(self.event["stage"], "")

    @property
    def latency_us(self) -> int:
        return int(self.event.get("latencyUs") or 0)

    @property
    def tags(self) -> str:
        return str(self.event.get("tags") or "")

    @property
    def message_keys(self) -> str:
        return str(self.event.get("keys") or "")

    @property
    def client(self) -> str:
        return str(self.event.get("clientId") or self.event.get("client") or "")

    @property
    def took(self) -> str:
        return span_text(self.latency_us) if self.latency_us else ""

    @property
    def offset(self) -> str | None:
        """The offset of the message whose latency it is."""
        event = self.event
        if event.get("worstOffset") is not None:
            return str(event["worstOffset"])
        return None if event.get("fromOffset") is not None else event.get("queueOffset")

    @property
    def url(self) -> str:
        event, offset = self.event, self.offset
        if offset is None or event.get("queueId") is None:
            return ""
        place = [self.broker_name, event["queueId"], int(offset), event["topic"]]
        return reverse("family:message", args=place)


def rows_of(question: Question, minutes: int, wanted: WatchFilter) -> tuple[list[Row], list[str]]:
    """Return all brokers' events that these rights allow, and the other brokers' problems."""
    rows: list[Row] = []
    problems: list[str] = []
    answers = gateway().recorder.recorded(question, minutes, ROWS_MAX, wanted)
    for broker_name, answer in answers.items():
        if isinstance(answer, RecordedEvents):
            rows += [Row(event, broker_name) for event in answer.events]
        else:
            problems.append(answer.what)
    is_slowest = question is Question.SLOWEST
    rows.sort(key=lambda row: row.latency_us if is_slowest else row.at_ms, reverse=True)
    return rows[:ROWS_MAX], problems


def levels() -> list[tuple[str, TraceLevel, str]]:
    """Return each broker's level with its label, omitting brokers that don't report one."""
    return [
        (name, found, str(LEVEL_LABELS.get(Level(found.level), found.level)))
        for name, found in gateway().recorder.levels().items()
        if isinstance(found, TraceLevel)
    ]


def change_level(request: HttpRequest, asked: str, minutes: int) -> str:
    """Set the trace level of all brokers; return a sentence about it.

    Raises:
        LevelError: the level doesn't exist.
        GatewayError: a broker refused it.
    """
    is_full = asked == Level.FULL
    if asked not in set(Level) or (is_full and not 1 <= minutes <= FULL_MINUTES_MAX):
        raise LevelError
    wanted = Level(asked)
    after = {"level": str(wanted)} | ({"minutes": minutes} if is_full else {})
    with change(request, "trace.level", "", after=after):
        gateway().recorder.set_level(wanted, minutes if is_full else None)
    return _("Trace level of the brokers: %(level)s.") % {"level": str(LEVEL_LABELS[wanted])}
