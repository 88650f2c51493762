"""TransactionListener: decides transactions that their producer leaves undecided.

Source: broker/transaction/AbstractTransactionalMessageCheckListener.java (4.9.7).
Differs: unresolved messages go to TRANS_CHECK_MAX_TIME_TOPIC, as without a listener.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Resolution(Enum):
    """The decision about a half message."""

    PARK = "park"
    """Move to TRANS_CHECK_MAX_TIME_TOPIC; RESUME_CHECK_HALF_MESSAGE can move it back."""
    COMMIT = "commit"
    ROLL_BACK = "roll back"


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    """An undecided transaction. Times are milliseconds since the epoch."""

    producer_group: str
    topic: str
    """The topic for the committed message."""
    queue_id: int
    uniq_key: str
    properties: Mapping[str, str]
    """Read-only; they include the broker's own properties (REAL_TOPIC, TRANSACTION_CHECK_TIMES,
    ...).
    """
    body: bytes
    """As sent: compressed if the producer compressed it."""
    born_host: str
    born_timestamp: int
    check_times: int
    """How often the producer was asked."""
    commit_log_offset: int
    """The offset of the half message that currently represents the transaction."""


class TransactionListener(Protocol):
    """Called before each check of a transaction, and when its checks are exhausted.

    The broker calls it on the event loop, in the rounds of transactionCheckInterval: a slow or
    blocking call delays every client.
    """

    interface_version: int

    def resolve_discard(self, half: HalfMessage) -> Resolution:
        """Decide a transaction after transactionCheckMax checks or fileReservedTime.

        Called again in the next round if the decision couldn't be stored. An exception, or a result
        that isn't a Resolution, is logged once, counted, and means PARK.
        """
        ...

    def send_check(self, half: HalfMessage, ask: Callable[[], bool]) -> bool:
        """Have the producer asked; return whether it was.

        ask() sends CHECK_TRANSACTION_STATE to a connected producer of the group, and returns False
        if there is no such producer. The listener may also ask by other means, or skip this round;
        the check is counted in either case. An exception is logged once and counted; the producer
        is then asked unless it was already.
        """
        ...
