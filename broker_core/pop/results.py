"""Requests to the POP engine, and its results."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from broker_core.pop.checkpoint import OFFSETS_MAX

if TYPE_CHECKING:
    from broker_core.pop.checkpoint import QueueKey
    from broker_core.store.results import MessageFilter

TO_END = 1
"""The initMode of a new group that starts at a queue's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopRequest:
    """A consumer's request for messages. queue_id -1 means all queues of the topic."""

    group: str
    topic: str
    queue_id: int = -1
    count: int = OFFSETS_MAX
    invisible_ms: int
    init_mode: int = TO_END
    message_filter: MessageFilter | None = None
    is_ordered: bool = False
    attempt_id: str | None = None
    retries_max: int | None = None
    """Redeliveries after which an ordered message becomes a dead letter; None for no limit."""


class LeasedBatch(NamedTuple):
    """Messages of one queue that a pop leased together."""

    key: QueueKey
    is_retry: bool
    start_offset: int
    offsets: list[int]
    records: list[memoryview]
    times: list[int]
    """Earlier deliveries of each message; zeros where the record has the number itself."""


@dataclass(slots=True)
class PopResult:
    """The messages that a pop leased."""

    pop_time_ms: int
    invisible_ms: int
    batches: list[LeasedBatch] = field(default_factory=list)
    count: int = 0
    rest_count: int = 0
    """Messages left in the queues."""
    is_full: bool = False
    """Whether the group or the broker has reached its limit of leases."""
    is_unwritable: bool = False
    """Whether the store refused to store a lease."""
    is_partial: bool = False
    """Whether the pop left messages unread that another pop may lease."""


class Outcome(Enum):
    """Outcome of an acknowledgement or of a change of the invisible time."""

    DONE = "DONE"
    GONE = "GONE"
    """The handle has no lease: it ended, or never existed."""
    UNWRITABLE = "UNWRITABLE"


class ChangeResult(NamedTuple):
    """The new lease; its handle replaces the old one."""

    outcome: Outcome
    pop_time_ms: int = 0
    invisible_ms: int = 0
