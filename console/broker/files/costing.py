"""Consequences of a plan: side effects that may be unexpected, and reasons to refuse it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.gateway.access import gateway

if TYPE_CHECKING:
    from console.gateway.answers import QueueStatus


class PlanRefusedError(Exception):
    """A plan that requests can't apply; the text has sentences for people."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(reasons[0])
        self.reasons = tuple(reasons)


@dataclass(frozen=True, slots=True)
class Costs:
    """A plan's possibly unexpected consequences; `is_final` means that they can't be undone."""

    sentences: tuple[str, ...]
    is_final: bool


def status_of(topic: str, broker_name: str) -> dict[int, QueueStatus]:
    """Return the minimum and maximum offsets of a topic's queues on a broker.

    Raises:
        NotFoundError: no broker has the topic.
    """
    rows = gateway().topics.status(topic)
    return {row.queue_id: row for row in rows if row.broker_name == broker_name}
