"""AccountGateway over the remoting protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.errors import GatewayError
from console.gateway.remote.brokers import each
from console.gateway.requests import accounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from console.gateway.accounts import (
        AccessDecision,
        AccessQuestion,
        BrokerAccess,
        BrokerAccount,
    )
    from console.gateway.answers import BrokerNode
    from console.gateway.remote.brokers import RemoteBrokers


class RemoteAccounts:
    """Thread-safe; calls block until the brokers answer."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        self._brokers = brokers

    def all(self) -> dict[BrokerNode, BrokerAccess | GatewayError]:
        return self._brokers.run(self._all())

    def save(self, node: BrokerNode, account: BrokerAccount, secret: str | None) -> None:
        self._brokers.run(accounts.save(self._brokers.ask, node.address, account, secret))

    def delete(self, node: BrokerNode, access_key: str) -> None:
        self._brokers.run(accounts.delete(self._brokers.ask, node.address, access_key))

    def set_white_addresses(self, node: BrokerNode, addresses: Sequence[str]) -> None:
        self._brokers.run(accounts.set_white_addresses(self._brokers.ask, node.address, addresses))

    def explain(self, node: BrokerNode, question: AccessQuestion) -> AccessDecision:
        return self._brokers.run(accounts.explain(self._brokers.ask, node.address, question))

    async def _all(self) -> dict[BrokerNode, BrokerAccess | GatewayError]:
        async def one(node: BrokerNode) -> BrokerAccess | GatewayError:
            try:
                return await accounts.access(self._brokers.ask, node.address)
            except GatewayError as error:
                return error

        return dict(await each((await self._brokers.cluster()).nodes, one))
