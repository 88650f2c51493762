"""Sender: messages to the queues of their topics in turn, each until a broker has acknowledged it.

Source: common/protocol/header/SendMessageRequestHeaderV2.java (4.9.7).
"""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from analytics.errors import ReportError
from broker_core.message import names, properties
from broker_core.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analytics.remote.cluster import Cluster

ATTEMPTS = 4
PAUSE_S = 0.5
IN_FLIGHT = 64
DEFAULT_TOPIC_QUEUE_NUMS = 4
SEPARATORS = frozenset(properties.NAME_VALUE_SEPARATOR + properties.PROPERTY_SEPARATOR)


class Outgoing(NamedTuple):
    """A message to send."""

    topic: str
    body: bytes
    properties: Mapping[str, str]


class Sender:
    """Sends under the name of a producer group; belongs to its cluster's event loop.

    A message whose acknowledgement is lost, or says that it may not survive, is sent again: it
    may be stored twice, each time with the same UNIQ_KEY.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._turn = itertools.count()

    async def send_all(self, messages: Sequence[Outgoing]) -> None:
        """Send messages, IN_FLIGHT of them at once; all are acknowledged on return.

        Raises:
            ReportError: one is refused, or nobody acknowledges it; others may have been stored.
        """
        for first in range(0, len(messages), IN_FLIGHT):
            sends = [self._send(message) for message in messages[first : first + IN_FLIGHT]]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome

    async def _send(self, message: Outgoing) -> None:
        text = properties.encode(message.properties)
        problem: ReportError | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(PAUSE_S * 2**attempt)
            queues = (await self._cluster.route(message.topic)).writes
            if not queues:
                raise ReportError(f"Nobody may write to the topic {message.topic} now.")
            queue = queues[next(self._turn) % len(queues)]
            fields = self._fields(message, queue.queue_id, text)
            try:
                # Another attempt goes to another queue, and so to another broker if there is one.
                await self._cluster.ask(
                    queue, RequestCode.SEND_MESSAGE_V2, fields, message.body, attempts=1
                )
            except ReportError as error:
                problem = error
            else:
                return
        assert problem is not None
        raise problem

    def _fields(self, message: Outgoing, queue_id: int, text: str) -> dict[str, str]:
        # One letter a field, in this order.
        return {
            "a": self._group,
            "b": message.topic,
            "c": names.AUTO_CREATE_TOPIC_KEY_TOPIC,
            "d": str(DEFAULT_TOPIC_QUEUE_NUMS),
            "e": str(queue_id),
            "f": "0",
            "g": str(int(datetime.now(UTC).timestamp() * 1000)),
            "h": "0",
            "i": text,
            "j": "0",
            "k": "false",
            "m": "false",
        }


def check_properties(found: Mapping[str, str]) -> None:
    """Check that a broker can store properties as they are.

    Raises:
        ReportError: a name or a value holds a separator or is empty, or all are too long.
    """
    for name, value in found.items():
        if not name or not value or not SEPARATORS.isdisjoint(name + value):
            raise ReportError(
                f"The property {name!r} cannot be sent: name and value must not be empty, nor hold "
                "the characters U+0001 or U+0002."
            )
    size = len(properties.encode(found).encode())
    if size > properties.PROPERTIES_BYTES_MAX:
        raise ReportError(
            f"The properties of a message have {size} bytes; at most "
            f"{properties.PROPERTIES_BYTES_MAX} can be sent."
        )
