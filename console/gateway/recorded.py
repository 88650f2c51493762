"""What brokers' flight recorders keep, and how much they trace."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.gateway.answers import TraceEvent

FULL_MINUTES_MAX = 60
RECORDED_MAX = 1_000


class Level(StrEnum):
    """How much a broker traces; `full` ends by itself."""

    OFF = "off"
    WATCHED = "watched"
    RECORDER = "recorder"
    FULL = "full"


class Question(StrEnum):
    """What a recorder may be asked for."""

    SLOWEST = "slowest"
    ERRORS = "errors"
    MESSAGE = "message"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class TraceLevel:
    """A broker's level, and how far its recorder reaches back."""

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
    """A recorder's answer; `is_full` where it kept every event since `since_ms`."""

    events: tuple[TraceEvent, ...]
    since_ms: int
    is_full: bool
