"""TransactionListener: decides transactions that their producer leaves undecided.

Source: broker/transaction/AbstractTransactionalMessageCheckListener.java (4.9.7).
Differs: what a listener does not resolve goes to TRANS_CHECK_MAX_TIME_TOPIC, as without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Resolution(Enum):
    """What becomes of a half message."""

    PARK = "park"
    """Moved to TRANS_CHECK_MAX_TIME_TOPIC, from where RESUME_CHECK_HALF_MESSAGE takes it back."""
    COMMIT = "commit"
    ROLL_BACK = "roll back"


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    """A transaction that is not decided. Times are milliseconds since the epoch."""

    producer_group: str
    topic: str
    """Where it goes when it is committed."""
    queue_id: int
    uniq_key: str
    properties: Mapping[str, str]
    """Read-only; the broker's own marks (REAL_TOPIC, TRANSACTION_CHECK_TIMES, ...) among them."""
    body: bytes
    """As sent: compressed when the producer compressed it."""
    born_host: str
    born_timestamp: int
    check_times: int
    """So often was the producer asked."""
    commit_log_offset: int
    """Of the half message that stands for the transaction now."""


class TransactionListener(Protocol):
    """The broker calls it when it would ask a producer, and when it has asked often enough.

    It calls on the event loop, in the rounds of transactionCheckInterval: a call that takes long or
    waits holds up every client.
    """

    interface_version: int

    def resolve_discard(self, half: HalfMessage) -> Resolution:
        """Decide: the producer was asked transactionCheckMax times, or the message is older than
        fileReservedTime.

        Asked again in the next round when what was decided could not be stored. An exception, or
        anything else than a Resolution, is logged once, counted, and means PARK.
        """
        ...

    def send_check(self, half: HalfMessage, ask: Callable[[], bool]) -> bool:
        """Have the producer asked: ask() sends CHECK_TRANSACTION_STATE to one that is connected,
        and is False when none of the group is. Return whether somebody was asked.

        Not to call ask() is to ask by means of one's own, or not at all this time; the check is
        counted all the same. An exception is logged once and counted; the producer is asked then,
        if it was not yet.
        """
        ...
