"""Callbacks of the timer service."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.message.message import MessageExt
    from broker_core.store.results import PutMessageResult

    DeliveryCallback = Callable[[MessageExt, str, int, PutMessageResult], None]
    DeferralCallback = Callable[[int, PutMessageResult], None]


def _claim_nothing(_message: MessageExt) -> bool:
    return False


async def _store_nothing() -> bool:
    return True


def _ignore() -> None:
    """Do nothing; the default for `on_loaded`."""


class Events(NamedTuple):
    """Callbacks of the service.

    Attributes:
        on_delivered: called with a delivered message, its topic, its queue and its put.
        on_deferred: called with the queue and the put of a pending message.
        claim: called with a pending message that RocketMQ may have stored. If it returns True,
            another service keeps the message's content, and the timer is finished.
        store_claimed: makes that content durable, before the timers are recorded as finished;
            returns False if the store failed.
        on_loaded: called when the pending timers are known.
    """

    on_delivered: DeliveryCallback | None = None
    on_deferred: DeferralCallback | None = None
    claim: Callable[[MessageExt], bool] = _claim_nothing
    store_claimed: Callable[[], Awaitable[bool]] = _store_nothing
    on_loaded: Callable[[], None] = _ignore
