"""Messages sent by people, their results, and undecided transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.answers import MessageQueue
    from console.gateway.errors import GatewayError

PRODUCER_GROUP = "TREBUCHET_CONSOLE"


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message for one queue, with its properties."""

    queue: MessageQueue
    body: bytes
    properties: Mapping[str, str]
    is_half: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """A stored message; for a half message, the values needed to end its transaction."""

    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    uniq_key: str
    transaction_id: str = ""


@dataclass(frozen=True, slots=True)
class Sending:
    """The stored messages in sending order, and the error that stopped the rest."""

    sent: tuple[Sent, ...]
    problem: GatewayError | None = None


class Delivered(NamedTuple):
    """A client's result for a message delivered to it; `result` is the client's own text."""

    result: str
    remark: str
    spent_ms: int | None

    @property
    def is_consumed(self) -> bool:
        return self.result in {"CR_SUCCESS", "CR_COMMIT"}


@dataclass(frozen=True, slots=True)
class Half:
    """An undecided transaction: the latest copy of its half message."""

    broker_name: str
    queue_offset: int
    commit_log_offset: int
    topic: str
    queue_id: int
    group: str
    uniq_key: str
    keys: str
    tags: str
    body_bytes: int
    born_ms: int
    born_host: str
    age_ms: int
    check_times: int

    @property
    def age_s(self) -> float:
        return self.age_ms / 1000


@dataclass(frozen=True, slots=True)
class Halves:
    """Undecided transactions of a broker; `next_offset` is None on the last page."""

    halves: tuple[Half, ...]
    total: int
    next_offset: int | None


@dataclass(frozen=True, slots=True)
class Timer:
    """A pending timer message: its destination and due time."""

    topic: str
    queue_id: int
    due_ms: int
    uniq_key: str
    keys: str
    tags: str
    body_bytes: int
    store_ms: int


@dataclass(frozen=True, slots=True)
class Timers:
    """The requested timer messages of a broker, soonest first; `total` counts all pending ones.

    `next_due_ms` is None if no timer message is pending.
    """

    timers: tuple[Timer, ...]
    total: int
    next_due_ms: int | None
