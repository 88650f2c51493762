"""Messages that people send, what became of them, and transactions that wait for their outcome."""

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
    """A message for one queue, with the properties that it is to carry."""

    queue: MessageQueue
    body: bytes
    properties: Mapping[str, str]
    is_half: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that a broker has stored; of a half one, what its end has to name."""

    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    uniq_key: str
    transaction_id: str = ""


@dataclass(frozen=True, slots=True)
class Sending:
    """What was stored, in the order of sending, and why it is not all."""

    sent: tuple[Sent, ...]
    problem: GatewayError | None = None


class Delivered(NamedTuple):
    """How a client dealt with a message that it was handed; `result` is its own word."""

    result: str
    remark: str
    spent_ms: int | None

    @property
    def is_consumed(self) -> bool:
        return self.result in {"CR_SUCCESS", "CR_COMMIT"}


@dataclass(frozen=True, slots=True)
class Half:
    """A transaction that a broker has no outcome of: the last copy of its half message."""

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
    """Undecided transactions of a broker; `next_offset` None: there are no more."""

    halves: tuple[Half, ...]
    total: int
    next_offset: int | None
