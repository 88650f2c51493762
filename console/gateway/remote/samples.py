"""SampleGateway over the remoting protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.errors import GatewayError
from console.gateway.remote.brokers import each
from console.gateway.requests import samples
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from console.gateway.answers import BrokerNode
    from console.gateway.remote.brokers import RemoteBrokers
    from console.gateway.sample import BrokerSample


class RemoteSamples:
    """Thread-safe; calls block until the brokers answer."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        self._brokers = brokers

    def take(self) -> dict[BrokerNode, BrokerSample | GatewayError]:
        return self._brokers.run(self._take())

    async def _take(self) -> dict[BrokerNode, BrokerSample | GatewayError]:
        async def one(node: BrokerNode) -> BrokerSample | GatewayError:
            try:
                return await samples.broker_sample(self._brokers.ask, node, now_ms())
            except GatewayError as error:
                return error

        return dict(await each((await self._brokers.cluster()).nodes, one))
