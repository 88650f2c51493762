"""The brokers behind the blocking gateways: one event loop with one shared connection each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from django.utils.translation import get_language, gettext as _, override

from console.gateway.answers import Cluster
from console.gateway.errors import (
    BrokerDownError,
    GatewayError,
    NameServerDownError,
    UnconfirmedBrokerError,
)
from console.gateway.loop import LoopThread
from console.gateway.remote.requester import Requester
from console.gateway.requests import cluster
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from broker_core.protocol.command import RemotingCommand
    from console.gateway.answers import BrokerNode

# Total time that a page waits for its broker requests.
OPERATION_TIMEOUT_S = 10.0
# Concurrent requests per page.
REQUESTS_AT_ONCE_MAX = 32

T = TypeVar("T")
Item = TypeVar("Item")


class RemoteBrokers:
    """Looks up brokers at the name servers and sends them requests, on its own event loop.

    Call `run` from any thread; the coroutines must run on the loop. Holds no state besides
    connections, so pages always show the brokers' current answers.
    """

    def __init__(self, name_servers: Sequence[str], timeout_s: float) -> None:
        self.name_servers = tuple(name_servers)
        self.timeout_s = timeout_s
        self._thread = LoopThread("gateway")
        self._requester: Requester | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return a coroutine's result; it uses the language of the calling thread.

        Raises:
            GatewayError: it didn't end within OPERATION_TIMEOUT_S.
        """
        try:
            return self._thread.run(speaking(get_language(), coroutine), OPERATION_TIMEOUT_S)
        except TimeoutError as error:
            raise GatewayError(
                _("The brokers took longer than %(seconds)d seconds.")
                % {"seconds": OPERATION_TIMEOUT_S},
                _("The brokers may be busy. Try again, or check their logs."),
            ) from error

    def close(self) -> None:
        """Close all connections; only for tests, since a process can simply end."""
        if self._requester is not None:
            self.run(self._requester.shutdown())
            self._requester = None
        self._thread.stop()

    async def ask(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        return await self._open_requester()(address, command, timeout_s)

    async def cluster(self) -> Cluster:
        """Return the first answer from a name server.

        Raises:
            NameServerDownError: no name server responds.
        """
        reasons = []
        for address in self.name_servers:
            try:
                nodes = await cluster.cluster_info(self.ask, address)
            except BrokerDownError as error:
                reasons.append(error.reason)
            else:
                return Cluster(nodes=nodes, name_server=address, read_at_ms=now_ms())
        raise NameServerDownError(list(self.name_servers), "; ".join(sorted(set(reasons))))

    async def masters(self) -> tuple[BrokerNode, ...]:
        """Return the masters that requests may be sent to.

        Raises:
            GatewayError: no broker is registered.
        """
        masters = (await self.cluster()).masters
        if not masters:
            raise GatewayError(
                _("No brokers are registered with the name server."),
                _("Start a broker whose namesrvAddr is %(address)s.")
                % {"address": "; ".join(self.name_servers)},
            )
        requester = self._open_requester()
        known = tuple(node for node in masters if requester.may_ask(node.address))
        if not known:
            raise UnconfirmedBrokerError(masters[0].address)
        return known

    async def on_masters(
        self, work: Callable[[BrokerNode], Awaitable[T]]
    ) -> list[tuple[BrokerNode, T]]:
        return await each(await self.masters(), work)

    async def on_named(
        self, broker_names: Iterable[str], work: Callable[[BrokerNode], Awaitable[None]]
    ) -> None:
        """Do work on the named masters.

        Raises:
            GatewayError: one of them isn't registered or confirmed; no work was done.
        """
        wanted = set(broker_names)
        requester = self._open_requester()
        masters = [node for node in (await self.cluster()).masters if node.broker_name in wanted]
        for node in masters:
            if not requester.may_ask(node.address):
                raise UnconfirmedBrokerError(node.address)
        missing = wanted - {node.broker_name for node in masters}
        if missing:
            raise GatewayError(
                _("No broker named %(names)s is registered.")
                % {"names": ", ".join(sorted(missing))}
            )
        await each(masters, work)

    def _open_requester(self) -> Requester:
        if self._requester is None:
            self._requester = Requester(self.timeout_s, name_servers=self.name_servers)
        return self._requester


async def speaking(language: str | None, coroutine: Coroutine[Any, Any, T]) -> T:
    """Return a coroutine's result, with this language active while it runs."""
    with override(language):
        return await coroutine


async def each(items: Iterable[Item], work: Callable[[Item], Awaitable[T]]) -> list[tuple[Item, T]]:
    """Do work for each item concurrently; the first failure cancels the rest."""
    items = list(items)
    room = asyncio.Semaphore(REQUESTS_AT_ONCE_MAX)

    async def one(item: Item) -> T:
        async with room:
            return await work(item)

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(one(item)) for item in items]
    try:
        return list(zip(items, await asyncio.gather(*tasks), strict=True))
    finally:
        for task in tasks:
            task.cancel()
