"""Costs of a plan: what it does that nobody may expect, or why it cannot be carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.gateway.access import gateway

if TYPE_CHECKING:
    from console.gateway.answers import QueueStatus


class PlanRefusedError(Exception):
    """A plan asks for what no request does, in sentences for people."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(reasons[0])
        self.reasons = tuple(reasons)


@dataclass(frozen=True, slots=True)
class Costs:
    """What a plan does that nobody may expect; `is_final` where nothing brings it back."""

    sentences: tuple[str, ...]
    is_final: bool


def status_of(topic: str, broker_name: str) -> dict[int, QueueStatus]:
    """Return the ends of a topic's queues on a broker.

    Raises:
        NotFoundError: no broker has the topic.
    """
    rows = gateway().topics.status(topic)
    return {row.queue_id: row for row in rows if row.broker_name == broker_name}
