"""The gateway twice: a fake, and the real one with a broker in this process.

The contract tests of this folder pass with both, so that the fake in page tests behaves like a
broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.gateway.fakes.gateway import fake_gateway
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.gateway import gateway_to
from tests.console.gateway.support import ask
from tests.support.broker import running_broker
from tests.support.long_timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from console.gateway.ports import Gateway


@pytest.fixture(params=["fake", "real"])
async def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gateway]:
    if request.param == "fake":
        yield fake_gateway()
        return
    async with running_broker(tmp_path, enablePropertyFilter="true") as broker:
        port = broker.configuration.broker.namesrv_listen_port
        brokers = RemoteBrokers([f"127.0.0.1:{port}"], PATIENCE_S)
        made = gateway_to(brokers)
        yield made
        await made.messages.close()
        await ask(brokers.close)
