"""The time and the memory that the connections of one process share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.listening.memory import HELD_BYTES_MAX, MemoryBudget
from broker_core.listening.turns import Turns

if TYPE_CHECKING:
    from broker_core.clock import Clock


class Budgets:
    """Shared by all servers of a process, regardless of their protocol. Event loop only.

    Attributes:
        turns: decides when a connection may continue to serve its requests.
        memory: limits the bytes that connections hold.
    """

    __slots__ = ("memory", "turns")

    def __init__(self, clock: Clock, held_bytes_max: int = HELD_BYTES_MAX) -> None:
        self.turns = Turns(clock)
        self.memory = MemoryBudget(held_bytes_max)
