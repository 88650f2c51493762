"""One of our brokers for all tests of the cluster source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.remote.connections import close_clusters
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    one = BrokerProcess(tmp_path_factory.mktemp("broker"))
    one.start()
    yield one
    close_clusters()
    one.stop()


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """A topic with two queues, named after the test."""
    name = f"t-{abs(hash(request.node.nodeid))}"
    raw_remoting.create_topic(broker.port, name, queues=2)
    return name
