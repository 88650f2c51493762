"""Fake AccountGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.accounts import AccessDecision, BrokerAccess
from console.gateway.errors import SYSTEM_ERROR, RequestFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from console.gateway.accounts import AccessQuestion, BrokerAccount
    from console.gateway.answers import BrokerNode
    from console.gateway.errors import GatewayError
    from console.gateway.fakes.broker import FakeBroker


class FakeAccounts:
    """Returns `broker.access` by address; access control is off for other addresses."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker

    def all(self) -> dict[BrokerNode, BrokerAccess | GatewayError]:
        self.broker.check()
        nodes = (self.broker.node, *self.broker.slaves) if self.broker.has_broker else ()
        off = BrokerAccess(is_on=False)
        return {each: self.broker.access.get(each.address, off) for each in nodes}

    def save(self, node: BrokerNode, account: BrokerAccount, secret: str | None) -> None:
        """Save an account, and its secret in `broker.secrets`."""
        found = self._of(node)
        is_new = found.account(account.access_key) is None
        if secret is None and (is_new or not found.is_described):
            raise RequestFailedError(node.address, SYSTEM_ERROR, "there is no secretKey")
        rest = tuple(e for e in found.accounts if e.access_key != account.access_key)
        self._put(node, (*rest, account), found.white_addresses)
        if secret is not None:
            self.broker.secrets[node.address, account.access_key] = secret

    def delete(self, node: BrokerNode, access_key: str) -> None:
        found = self._of(node)
        if found.account(access_key) is None:
            raise RequestFailedError(node.address, SYSTEM_ERROR, "there is no such account")
        rest = tuple(each for each in found.accounts if each.access_key != access_key)
        self._put(node, rest, found.white_addresses)

    def set_white_addresses(self, node: BrokerNode, addresses: Sequence[str]) -> None:
        self._put(node, self._of(node).accounts, tuple(addresses))

    def explain(self, node: BrokerNode, question: AccessQuestion) -> AccessDecision:
        """Decide by the topic's permission alone; the broker's own tests cover the full rules."""
        found = self._of(node)
        if not found.is_described:
            raise RequestFailedError(node.address, 3, "request type 30015 not supported")
        account = found.account(question.access_key)
        if account is None:
            return AccessDecision(False, "unknownAccount", "", False)
        word = account.topic_perms.get(question.topic, account.default_topic_perm)
        rule = f"topicPerms: {question.topic}={word}"
        is_allowed = question.action in word
        return AccessDecision(is_allowed, "permission", rule, False, self.broker.validators)

    def _of(self, node: BrokerNode) -> BrokerAccess:
        self.broker.check()
        found = self.broker.access.get(node.address)
        if not isinstance(found, BrokerAccess) or not found.is_on:
            raise RequestFailedError(node.address, SYSTEM_ERROR, "access control is off")
        return found

    def _put(
        self, node: BrokerNode, accounts: tuple[BrokerAccount, ...], white: tuple[str, ...]
    ) -> None:
        is_described = self._of(node).is_described
        self.broker.access[node.address] = BrokerAccess(
            True, accounts, white, is_described=is_described
        )
