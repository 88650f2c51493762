"""Assign queues to the consumers of a group, and set whether they pull or pop.

5.x clients leave this to the broker with setClientRebalance(false).

Source: broker/processor/QueryAssignmentProcessor.java (5.3.3),
client/consumer/rebalance/Allocate*.java (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.message.names import is_retry_topic
from broker_core.metadata.request_modes import POP, PULL, RequestMode
from broker_core.protocol import java_json
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.clients.consumers import Consumers
    from broker_core.metadata.request_modes import RequestModes
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection

    Queue = tuple[str, int]
    QueuesOf = Callable[[str], Awaitable[list[Queue]]]

T = TypeVar("T")

ALL_QUEUES = -1
SHARED_MAX = 1 << 16


class _AssignmentQuery(msgspec.Struct, rename="camel"):
    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: str | None = None


class AssignmentProcessor:
    """QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401), GET_ALL_MESSAGE_REQUEST_MODE (402).

    Event loop only.

    `queues_of` returns the (broker name, queue_id) of a topic's queues in the whole cluster.
    """

    def __init__(self, consumers: Consumers, modes: RequestModes, queues_of: QueuesOf) -> None:
        self._consumers = consumers
        self._modes = modes
        self._queues_of = queues_of

    async def query_assignment(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """QUERY_ASSIGNMENT. Answers SUCCESS with the queues, empty for a non-member."""
        query = _read(request, _AssignmentQuery)
        mode = self._modes.find(query.topic, query.consumer_group)
        kind = PULL if mode is None or is_retry_topic(query.topic) else mode.mode
        queues = sorted(await self._queues_of(query.topic))
        if query.message_model != "BROADCASTING":
            queues = self._share(query, mode, kind, queues)
        body: dict[str, Any] = {}
        if queues:
            body["messageQueueAssignments"] = [
                {
                    "messageQueue": {
                        "brokerName": broker_name,
                        "queueId": queue_id,
                        "topic": query.topic,
                    },
                    "mode": kind,
                }
                for broker_name, queue_id in queues
            ]
        return request.answer(ResponseCode.SUCCESS, None, {}, java_json.encode(body))

    async def set_message_request_mode(
        self, request: RemotingCommand, _: Connection
    ) -> RemotingCommand:
        """SET_MESSAGE_REQUEST_MODE. Answers SUCCESS after the file is written; NO_PERMISSION."""
        mode = _read(request, RequestMode)
        if is_retry_topic(mode.topic):
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"
            )
        if (
            mode.mode not in (PULL, POP)
            or not -SHARED_MAX <= mode.pop_share_queue_num <= SHARED_MAX
        ):
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"couldn't set mode {mode.mode!r} with popShareQueueNum "
                f"{mode.pop_share_queue_num}; use PULL or POP, and a number between "
                f"{-SHARED_MAX} and {SHARED_MAX}",
            )
        self._modes.put(mode)
        await self._modes.writer.until_written(mode.topic)
        return request.answer(ResponseCode.SUCCESS)

    def all_modes(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_ALL_MESSAGE_REQUEST_MODE. Answers SUCCESS with messageRequestMode.json's content."""
        body = java_json.encode(self._modes.document())
        return request.answer(ResponseCode.SUCCESS, body=body)

    def _share(
        self, query: _AssignmentQuery, mode: RequestMode | None, kind: str, queues: list[Queue]
    ) -> list[Queue]:
        group = self._consumers.find(query.consumer_group)
        clients = [] if group is None else sorted(set(group.client_ids()))
        if query.client_id not in clients or not queues:
            return []
        allocate = STRATEGIES.get(query.strategy_name or "AVG")
        if allocate is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"unknown strategy {query.strategy_name!r}; use {' or '.join(STRATEGIES)}",
            )
        index = clients.index(query.client_id)
        if kind != POP or mode is None:
            return allocate(queues, len(clients), index)
        shared = mode.pop_share_queue_num
        if shared <= 0 or shared >= len(clients) - 1:
            # Every client pops from all queues; the broker finds the queues with messages.
            return sorted({(broker_name, ALL_QUEUES) for broker_name, _ in queues})
        if len(clients) > len(queues):
            return [queues[index % len(queues)]]
        mine = [
            queue
            for step in range(shared + 1)
            for queue in allocate(queues, len(clients), (index + step) % len(clients))
        ]
        return sorted(set(mine))


def averagely(queues: list[Queue], clients: int, index: int) -> list[Queue]:
    """Return a client's share of consecutive queues."""
    size, more = divmod(len(queues), clients)
    begin = index * size + min(index, more)
    return queues[begin : begin + size + (index < more)]


def in_turn(queues: list[Queue], clients: int, index: int) -> list[Queue]:
    """Return a client's share as every n-th queue."""
    return queues[index::clients]


STRATEGIES = {"AVG": averagely, "AVG_BY_CIRCLE": in_turn}


def _read(request: RemotingCommand, kind: type[T]) -> T:
    try:
        return java_json.decode_as(request.body, kind)
    except ValueError as error:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR, f"couldn't decode the request's body: {error}"
        ) from error
