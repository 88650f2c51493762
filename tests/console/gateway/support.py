"""Helpers for the gateway's contract tests."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from console.gateway.answers import Client, MessageQueue, OutgoingMessage, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from console.gateway.ports import Gateway

P = ParamSpec("P")
T = TypeVar("T")

ORDERS = TopicConfig("Orders", 2, 2, 6)
CALLERS = ThreadPoolExecutor(6, "gateway-call")
"""A separate pool: a broker in this loop uses the loop's threads for some answers, and waiting
callers would occupy them all.
"""
BILLING = Client("member-1", "pg", "billing", ("Orders",), sub_version=1)


async def ask(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a blocking gateway as a view does, in a thread other than the broker's loop."""
    here = contextvars.copy_context()
    made = partial(here.run, call, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(CALLERS, made)


async def send(gateway: Gateway, topic: str, *, queue_id: int, count: int) -> list[int]:
    """Send messages to one queue; return their queue offsets."""
    await gateway.messages.route(topic)
    queue = MessageQueue(topic, "broker-a", queue_id)
    message = OutgoingMessage(topic, b"hello", tags="TagA", keys="k1 k2", born_ms=1)
    return [await gateway.messages.send(queue, message, "pg") for _ in range(count)]
