"""Cluster: requests to the name servers and brokers of a cluster, each answered or one sentence.

    async with Cluster(access) as cluster:
        for queue in await cluster.queues("orders"):
            print(queue, await cluster.extent(queue))

Source: client/impl/MQClientAPIImpl.java (4.9.7).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from analytics.errors import ReportError
from broker_core.errors import RemotingError
from broker_core.protocol import java_json
from broker_core.protocol.bodies.route import TopicRouteData
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.client import RemotingClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from analytics.remote.access import Access

ATTEMPTS = 4
PAUSE_S = 0.5
MASTER_ID = 0
PERM_READ, PERM_WRITE = 4, 2
QUEUE_NUMS_MAX = 65_536
ASKED_AT_ONCE = 16
BUSY = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})
_ORDINARY = frozenset({ResponseCode.SUCCESS})


class Queue(NamedTuple):
    """One queue of a topic, where it is."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic} on {self.broker_name}"


class Route(NamedTuple):
    """The queues of a topic for readers and for writers, and the addresses of their brokers."""

    reads: tuple[Queue, ...]
    writes: tuple[Queue, ...]
    addresses: Mapping[str, str]


class Cluster:
    """Asks the brokers of a cluster. Belongs to one event loop; close it by leaving its block."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._client = RemotingClient(tls=access.tls_context(), signer=access.credentials())
        self._routes: dict[str, Route] = {}

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.shutdown()

    async def topics(self) -> list[str]:
        """Return all topics that the name servers know.

        Raises:
            ReportError: no name server answers.
        """
        answer = await self._ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        body = java_json.decode(answer.body) if answer.body else {}
        return sorted(str(topic) for topic in (body or {}).get("topicList") or [])

    async def route(self, topic: str) -> Route:
        """Return where a topic is.

        Raises:
            ReportError: no name server answers, or none knows the topic.
        """
        if topic not in self._routes:
            fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
            answer = await self._ask_namesrv(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                fields,
                also=frozenset({ResponseCode.TOPIC_NOT_EXIST}),
            )
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                where = ";".join(self._access.namesrv_addr)
                raise ReportError(f"There is no topic {topic} at the name server {where}.")
            self._routes[topic] = _route_of(topic, answer.body)
        return self._routes[topic]

    async def extents(self, queues: Sequence[Queue]) -> dict[Queue, tuple[int, int]]:
        """Return the extent of each queue; some are asked for at once.

        Raises:
            ReportError: a broker does not answer.
        """
        turn = asyncio.Semaphore(ASKED_AT_ONCE)

        async def one(queue: Queue) -> tuple[int, int]:
            async with turn:
                return await self.extent(queue)

        found = await asyncio.gather(*(one(queue) for queue in queues))
        return dict(zip(queues, found, strict=True))

    async def extent(self, queue: Queue) -> tuple[int, int]:
        """Return the least offset of a queue and the one behind its last message.

        Raises:
            ReportError: the broker does not answer.
        """
        fields = {"topic": queue.topic, "queueId": str(queue.queue_id)}
        least, behind = [
            _offset(await self.ask(queue, code, fields), queue)
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        ]
        return least, max(least, behind)

    async def offset_by_time(self, queue: Queue, timestamp_ms: int) -> int:
        """Return an offset near the messages stored at a time; brokers differ in which.

        Raises:
            ReportError: the broker does not answer.
        """
        fields = {
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "timestamp": str(timestamp_ms),
        }
        answer = await self.ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        return _offset(answer, queue)

    async def ask(
        self,
        queue: Queue,
        code: RequestCode,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        also: frozenset[int] = frozenset(),
        attempts: int = ATTEMPTS,
    ) -> RemotingCommand:
        """Ask the broker of a queue, again where it is busy or gone for a moment.

        Raises:
            ReportError: it does not answer, or with a code neither of success nor in `also`.
        """
        problem = ""
        for attempt in range(attempts):
            if attempt:
                await asyncio.sleep(PAUSE_S * 2**attempt)
                self._routes.pop(queue.topic, None)
            address = (await self.route(queue.topic)).addresses.get(queue.broker_name)
            if address is None:
                problem = f"The name server knows no broker {queue.broker_name} any more."
                continue
            try:
                answer = await self._client.request(
                    address,
                    RemotingCommand.request(code, dict(fields), body),
                    self._access.timeout_s,
                )
            except RemotingError as error:
                problem = f"The broker {queue.broker_name} at {address} does not answer: {error}."
                continue
            if answer.code in _ORDINARY or answer.code in also:
                return answer
            problem = (
                f"The broker {queue.broker_name} at {address} refuses {code.name} for {queue}: "
                f"{_words(answer)}"
            )
            if answer.code not in BUSY:
                break
        raise ReportError(problem)

    async def _ask_namesrv(
        self, code: RequestCode, fields: Mapping[str, str], also: frozenset[int] = frozenset()
    ) -> RemotingCommand:
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(PAUSE_S * 2**attempt)
            for address in self._access.namesrv_addr:
                try:
                    answer = await self._client.request(
                        address,
                        RemotingCommand.request(code, dict(fields)),
                        self._access.timeout_s,
                    )
                except RemotingError as error:
                    problem = f"The name server at {address} does not answer: {error}."
                    continue
                if answer.code in _ORDINARY or answer.code in also:
                    return answer
                problem = f"The name server at {address} refuses {code.name}: {_words(answer)}"
                if answer.code not in BUSY:
                    raise ReportError(problem)
        raise ReportError(problem)


def _route_of(topic: str, body: bytes) -> Route:
    try:
        data = TopicRouteData.decode(body)
    except ValueError as error:
        raise ReportError(f"The name server's route of {topic} cannot be read: {error}.") from error
    # Where no master is, its slave may still be read.
    addresses = {
        broker.broker_name: broker.broker_addrs.get(
            MASTER_ID, broker.broker_addrs[min(broker.broker_addrs)]
        )
        for broker in data.broker_datas
        if broker.broker_addrs
    }
    with_master = {
        broker.broker_name for broker in data.broker_datas if MASTER_ID in broker.broker_addrs
    }
    reads: list[Queue] = []
    writes: list[Queue] = []
    for queues in sorted(data.queue_datas, key=lambda each: each.broker_name):
        name = queues.broker_name
        if queues.perm & PERM_READ and name in addresses:
            count = min(queues.read_queue_nums, QUEUE_NUMS_MAX)
            reads += [Queue(topic, name, queue_id) for queue_id in range(count)]
        if queues.perm & PERM_WRITE and name in with_master:
            count = min(queues.write_queue_nums, QUEUE_NUMS_MAX)
            writes += [Queue(topic, name, queue_id) for queue_id in range(count)]
    return Route(tuple(reads), tuple(writes), addresses)


def _offset(answer: RemotingCommand, queue: Queue) -> int:
    try:
        return int(answer.ext_fields["offset"])
    except (KeyError, ValueError) as error:
        raise ReportError(f"The broker's answer about {queue} has no offset.") from error


def _words(answer: RemotingCommand) -> str:
    return f"code {answer.code}, {(answer.remark or 'no reason given').splitlines()[0][:200]}"
