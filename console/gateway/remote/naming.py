"""NameServerGateway over the remoting protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from console.gateway.errors import BrokerDownError, GatewayError, NameServerDownError
from console.gateway.requests import naming

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from console.gateway.naming import NameServerView
    from console.gateway.remote.brokers import RemoteBrokers

T = TypeVar("T")


class RemoteNaming:
    """Thread-safe; calls block until the brokers answer."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        self._brokers = brokers

    def views(self, topic: str, namespace: str) -> dict[str, NameServerView | GatewayError]:
        return self._brokers.run(self._views(topic, namespace))

    def put(self, address: str, namespace: str, key: str, value: str) -> None:
        self._on(address, naming.put(self._brokers.ask, address, namespace, key, value))

    def remove(self, address: str, namespace: str, key: str) -> None:
        self._on(address, naming.remove(self._brokers.ask, address, namespace, key))

    def set_writable(self, broker_name: str, *, is_writable: bool) -> int:
        ask = self._brokers.ask
        return max(
            self._on_all(
                lambda address: naming.set_writable(
                    ask, address, broker_name, is_writable=is_writable
                )
            ),
            default=0,
        )

    async def _views(self, topic: str, namespace: str) -> dict[str, NameServerView | GatewayError]:
        found: dict[str, NameServerView | GatewayError] = {}
        for address in self._brokers.name_servers:
            try:
                found[address] = await naming.view(self._brokers.ask, address, topic, namespace)
            except BrokerDownError as error:
                found[address] = NameServerDownError([address], error.reason)
            except GatewayError as error:
                found[address] = error
        return found

    def _on(self, address: str, work: Coroutine[object, object, None]) -> None:
        async def one() -> None:
            try:
                await work
            except BrokerDownError as error:
                raise NameServerDownError([address], error.reason) from error

        self._brokers.run(one())

    def _on_all(self, work: Callable[[str], Awaitable[T]]) -> list[T]:
        async def each() -> list[T]:
            return [await work(address) for address in self._brokers.name_servers]

        return self._brokers.run(each())
