"""A consumer's own status, requested through a broker (GET_CONSUMER_RUNNING_INFO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.answers import MessageQueue, Subscription


@dataclass(frozen=True, slots=True)
class RunningQueue:
    """A queue assigned to a consumer."""

    queue: MessageQueue
    commit_offset: int | None
    cached_messages: int | None
    last_pull_ms: int | None
    last_consume_ms: int | None
    is_locked: bool
    is_dropped: bool


@dataclass(frozen=True, slots=True)
class RunningTopic:
    """A consumer's own statistics for a topic."""

    topic: str
    consume_rt_ms: float | None
    ok_tps: float | None
    failed_tps: float | None
    failed_last_hour: int | None


@dataclass(frozen=True, slots=True)
class RunningInfo:
    """One consumer's status. `threads` is its thread dump, empty unless requested."""

    client_id: str
    properties: Mapping[str, str]
    subscriptions: tuple[Subscription, ...]
    queues: tuple[RunningQueue, ...]
    topics: tuple[RunningTopic, ...]
    threads: str = ""
