"""Accounts of a real broker: the console's requests have the intended effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from console.gateway.accounts import AccessQuestion, BrokerAccess, BrokerAccount
from console.gateway.errors import RequestFailedError
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.gateway import gateway_to
from tests.console.gateway.support import ask
from tests.support.broker import running_broker
from tests.support.long_timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

CONSOLE = {"accessKey": "console", "secretKey": "correct-horse", "admin": True}
ORDERS = BrokerAccount(
    "order-service",
    default_group_perm="SUB",
    topic_perms={"orders": "PUB|SUB"},
    white_address="10.1.2.*",
)


@pytest.mark.parametrize("is_on", [True, False])
async def test_accounts_are_created_changed_explained_and_deleted(
    tmp_path: Path, settings, is_on: bool
) -> None:
    path = tmp_path / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({"accounts": [CONSOLE]}))
    settings.TREBUCHET_BROKER_ACCESS_KEY = CONSOLE["accessKey"]
    settings.TREBUCHET_BROKER_SECRET_KEY = CONSOLE["secretKey"]
    async with running_broker(tmp_path, aclEnable=str(is_on).lower()) as broker:
        settings.TREBUCHET_BROKERS = [f"127.0.0.1:{broker.configuration.server.listen_port}"]
        port = broker.configuration.broker.namesrv_listen_port
        brokers = RemoteBrokers([f"127.0.0.1:{port}"], PATIENCE_S)
        accounts = gateway_to(brokers).accounts
        (node,) = await ask(accounts.all)
        if not is_on:
            assert (await ask(accounts.all))[node] == BrokerAccess(is_on=False)
            with pytest.raises(RequestFailedError, match="aclEnable=true turns it on"):
                await ask(accounts.delete, node, "order-service")
            await ask(brokers.close)
            return
        with pytest.raises(RequestFailedError) as refused:
            await ask(accounts.save, node, ORDERS, "short!")
        assert "short!" not in refused.value.remark

        await ask(accounts.save, node, ORDERS, "a-secret-of-its-own")
        changed = BrokerAccount("order-service", topic_perms={"orders": "PUB"})
        await ask(accounts.save, node, changed, None)
        await ask(accounts.set_white_addresses, node, ["10.9.9.{1,2}", "10.8.*.*"])
        found = (await ask(accounts.all))[node]
        request = AccessQuestion("10.0.0.1", "PUB", "order-service", topic="orders")
        decision = await ask(accounts.explain, node, request)
        kept = yaml.safe_load(path.read_text())["accounts"][1]["secretKey"]
        await ask(accounts.delete, node, "order-service")
        left = (await ask(accounts.all))[node]
        await ask(brokers.close)

    assert isinstance(found, BrokerAccess)
    assert found.is_described
    made = found.account("order-service")
    assert made is not None
    assert (made.topic_perms, made.white_address, made.default_group_perm) == (
        {"orders": "PUB"},
        "",
        "DENY",
    )
    assert found.white_addresses == ("10.9.9.{1,2}", "10.8.*.*")
    assert kept == "a-secret-of-its-own"
    assert (decision.is_allowed, decision.rule) == (True, "topicPerms: orders=PUB")
    assert isinstance(left, BrokerAccess)
    assert [each.access_key for each in left.accounts] == ["console"]
