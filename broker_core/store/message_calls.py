"""MessageCalls: the interface for code that wraps the store's put and get calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.store.results import GetMessageResult, PutBatchResult, PutMessageResult


class MessageCalls(NamedTuple):
    """The calls that put and get messages, with the same parameters as in MessageStore."""

    put_message: Callable[..., PutMessageResult]
    put_batch: Callable[..., PutBatchResult]
    get_message: Callable[..., GetMessageResult | Awaitable[GetMessageResult]]
    look_message: Callable[..., memoryview | None]
    query_message: Callable[..., list[memoryview]]
