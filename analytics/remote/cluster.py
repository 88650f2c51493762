"""Cluster: sends requests to name servers and brokers; each failure is one sentence.

    async with Cluster(access) as cluster:
        for queue in await cluster.queues("orders"):
            print(queue, await cluster.extent(queue))

Source: client/impl/MQClientAPIImpl.java (4.9.7).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from analytics.errors import ReportError
from broker_core.clock import SystemClock
from broker_core.errors import RemotingError
from broker_core.protocol import java_json
from broker_core.protocol.bodies.route import TopicRouteData
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.client import RemotingClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from types import TracebackType

    from analytics.remote.access import Access
    from broker_core.clock import Clock

A = TypeVar("A")
T = TypeVar("T")

MASTER_ID = 0
PERM_READ, PERM_WRITE = 4, 2
QUEUE_NUMS_MAX = 65_536
REQUESTS_AT_ONCE = 16
BUSY = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})
_ORDINARY = frozenset({ResponseCode.SUCCESS})


class RefusedError(ReportError):
    """A broker refused the request."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


class NoTopicError(ReportError):
    """The topic doesn't exist on the name servers."""


class Queue(NamedTuple):
    """One queue of a topic on one broker."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic} on {self.broker_name}"


class Route(NamedTuple):
    """The readable and writable queues of a topic, and the addresses of their brokers."""

    reads: tuple[Queue, ...]
    writes: tuple[Queue, ...]
    addresses: Mapping[str, str]


class Cluster:
    """A client of a cluster. Belongs to one event loop; close it by leaving its block."""

    def __init__(self, access: Access, clock: Clock | None = None) -> None:
        self.access = access
        self._clock = clock or SystemClock()
        self._client = RemotingClient(
            clock=self._clock,
            tls=access.tls_context(),
            signer=access.credentials(),
            # Only name servers are trusted by address; they supply the brokers' addresses.
            trusts=lambda address: address in access.namesrv_addr,
        )
        self._routes: dict[str, tuple[Route, float]] = {}

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
        """Return all topics that the name servers list.

        Raises:
            ReportError: no name server responds.
        """
        answer = await self._ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        body = java_json.decode(answer.body) if answer.body else {}
        return sorted(str(topic) for topic in (body or {}).get("topicList") or [])

    def forget_routes(self) -> None:
        """Discard all routes, because topics may have been created, deleted or moved."""
        self._routes.clear()

    async def route(self, topic: str) -> Route:
        """Return the route of a topic.

        Raises:
            NoTopicError: no name server has the topic.
            ReportError: no name server responds.
        """
        now = self._clock.monotonic()
        route, found_at = self._routes.get(topic, (None, 0.0))
        if route is None or now - found_at > self.access.route_poll_s:
            fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
            answer = await self._ask_namesrv(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                fields,
                also=frozenset({ResponseCode.TOPIC_NOT_EXIST}),
            )
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                where = ";".join(self.access.namesrv_addr)
                raise NoTopicError(f"The name server {where} has no topic {topic}.")
            route = _route_of(topic, answer.body)
            self._routes[topic] = route, now
        return route

    async def extents(self, queues: Sequence[Queue]) -> dict[Queue, tuple[int, int]]:
        """Return the extent of each queue, querying several at a time.

        Raises:
            ReportError: a broker doesn't respond.
        """
        return dict(zip(queues, await at_once(self.extent, queues), strict=True))

    async def extent(self, queue: Queue) -> tuple[int, int]:
        """Return the least offset of a queue and the offset after its last message.

        Raises:
            ReportError: the broker doesn't respond.
        """
        fields = {"topic": queue.topic, "queueId": str(queue.queue_id)}
        least, behind = [
            _offset(await self.ask(queue, code, fields), queue)
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        ]
        return least, max(least, behind)

    async def offset_by_time(self, queue: Queue, timestamp_ms: int) -> int:
        """Return an offset near the messages stored at a time; brokers choose it differently.

        Raises:
            ReportError: the broker doesn't respond.
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
        retries: int | None = None,
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Send a request to the broker of a queue; repeat it while the broker is busy or
        unreachable.

        `retries` and `timeout_s` override the settings in Access.

        Raises:
            RefusedError: the response code is neither success nor in `also`.
            ReportError: the broker doesn't respond.
        """
        problem = ReportError("")
        for attempt in range(1 + (self.access.retries if retries is None else retries)):
            await self.pause(attempt)
            if attempt:
                self._routes.pop(queue.topic, None)
            address = (await self.route(queue.topic)).addresses.get(queue.broker_name)
            if address is None:
                problem = ReportError(
                    f"The name server no longer lists the broker {queue.broker_name}."
                )
                continue
            try:
                answer = await self._client.request(
                    address,
                    RemotingCommand.request(code, dict(fields), body),
                    self.access.timeout_s if timeout_s is None else timeout_s,
                )
            except RemotingError as error:
                problem = ReportError(
                    f"The broker {queue.broker_name} at {address} doesn't respond: {error}."
                )
                continue
            if answer.code in _ORDINARY or answer.code in also:
                return answer
            problem = RefusedError(
                f"The broker {queue.broker_name} at {address} rejected {code.name} for {queue}: "
                f"{_words(answer)}",
                answer.code,
            )
            if answer.code not in BUSY:
                break
        raise problem

    async def pause(self, attempt: int) -> None:
        """Wait before an attempt, except before the first, attempt 0."""
        if attempt:
            await self._clock.sleep(self.access.retry_interval_s * 2 ** (attempt - 1))

    async def _ask_namesrv(
        self, code: RequestCode, fields: Mapping[str, str], also: frozenset[int] = frozenset()
    ) -> RemotingCommand:
        problem = ""
        for attempt in range(1 + self.access.retries):
            await self.pause(attempt)
            for address in self.access.namesrv_addr:
                try:
                    answer = await self._client.request(
                        address,
                        RemotingCommand.request(code, dict(fields)),
                        self.access.timeout_s,
                    )
                except RemotingError as error:
                    problem = f"The name server at {address} doesn't respond: {error}."
                    continue
                if answer.code in _ORDINARY or answer.code in also:
                    return answer
                problem = f"The name server at {address} rejected {code.name}: {_words(answer)}"
                if answer.code not in BUSY:
                    raise ReportError(problem)
        raise ReportError(problem)


async def at_once(ask: Callable[[A], Awaitable[T]], items: Sequence[A]) -> list[T]:
    """Return the result for each item, running several calls at a time."""
    turn = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def one(item: A) -> T:
        async with turn:
            return await ask(item)

    return await asyncio.gather(*(one(item) for item in items))


def _route_of(topic: str, body: bytes) -> Route:
    try:
        data = TopicRouteData.decode(body)
    except ValueError as error:
        raise ReportError(
            f"The name server sent an invalid route for {topic}: {error}. Check that the address "
            "is a name server's."
        ) from error
    # Without a master, its slave may still serve reads.
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
        raise ReportError(f"The broker's response for {queue} has no valid offset.") from error


def _words(answer: RemotingCommand) -> str:
    return f"code {answer.code}, {(answer.remark or 'no reason given').splitlines()[0][:200]}"
