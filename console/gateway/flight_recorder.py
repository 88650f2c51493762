"""Flight recorder events and trace levels of brokers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.gateway.answers import TraceEvent

FULL_MINUTES_MAX = 60
RECORDED_MAX = 1_000


class Level(StrEnum):
    """How much a broker traces; `full` ends automatically."""

    OFF = "off"
    WATCHED = "watched"
    RECORDER = "recorder"
    FULL = "full"


class Question(StrEnum):
    """Ways to query a recorder."""

    SLOWEST = "slowest"
    ERRORS = "errors"
    MESSAGE = "message"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class TraceLevel:
    """A broker's trace level, and how far back its recorder reaches."""

    level: str
    full_until_ms: int | None
    watchers: int
    entries: int
    bytes: int
    bytes_max: int
    minutes_max: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class RecordedEvents:
    """A recorder's answer; `is_full` if it kept every event since `since_ms`."""

    events: tuple[TraceEvent, ...]
    since_ms: int
    is_full: bool
