"""MessageCalls: what can be put between the store and its users."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.store.results import GetMessageResult, PutBatchResult, PutMessageResult


class MessageCalls(NamedTuple):
    """The calls that put and get messages, with the parameters of MessageStore's."""

    put_message: Callable[..., PutMessageResult]
    put_batch: Callable[..., PutBatchResult]
    get_message: Callable[..., GetMessageResult | Awaitable[GetMessageResult]]
    look_message: Callable[..., memoryview | None]
    query_message: Callable[..., list[memoryview]]
