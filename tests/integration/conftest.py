from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.broker import running_broker
from tests.support.client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path) as running:
        yield running


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    made = Client(f"127.0.0.1:{broker.listen_port}")
    yield made
    await made.shutdown()
