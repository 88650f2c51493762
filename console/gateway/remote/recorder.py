"""RecorderGateway over the remoting protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.errors import GatewayError
from console.gateway.requests import recorder as requests

if TYPE_CHECKING:
    from console.gateway.answers import BrokerNode, WatchFilter
    from console.gateway.flight_recorder import Level, Question, RecordedEvents, TraceLevel
    from console.gateway.remote.brokers import RemoteBrokers


class RemoteRecorder:
    """Thread-safe; calls block until the brokers answer."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        self._brokers = brokers

    def levels(self) -> dict[str, TraceLevel | GatewayError]:
        return self._brokers.run(self._levels())

    def set_level(self, level: Level, minutes: int | None = None) -> None:
        self._brokers.run(self._set_level(level, minutes))

    def recorded(
        self, question: Question, minutes: int, limit: int, wanted: WatchFilter
    ) -> dict[str, RecordedEvents | GatewayError]:
        return self._brokers.run(self._recorded(question, minutes, limit, wanted))

    async def _levels(self) -> dict[str, TraceLevel | GatewayError]:
        async def one(node: BrokerNode) -> TraceLevel | GatewayError:
            try:
                return await requests.trace_level(self._brokers.ask, node.address)
            except GatewayError as error:
                return error

        return {node.broker_name: found for node, found in await self._brokers.on_masters(one)}

    async def _set_level(self, level: Level, minutes: int | None) -> None:
        await self._brokers.on_masters(
            lambda node: requests.trace_level(self._brokers.ask, node.address, level, minutes)
        )

    async def _recorded(
        self, question: Question, minutes: int, limit: int, wanted: WatchFilter
    ) -> dict[str, RecordedEvents | GatewayError]:
        async def one(node: BrokerNode) -> RecordedEvents | GatewayError:
            try:
                return await requests.recorded(
                    self._brokers.ask, node.address, question, minutes, limit, wanted
                )
            except GatewayError as error:
                return error

        return {node.broker_name: found for node, found in await self._brokers.on_masters(one)}
