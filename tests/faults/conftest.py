"""Shared fixtures of fault runs."""

from __future__ import annotations

import pytest

from tests.conftest import built
from tests.support import go_client
from tools.faults import real_clients
from tools.faults.real_clients import Programs


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs | None:
    """RocketMQ's own clients, or None if they can't be built, which is reported."""
    if real_clients.missing():
        return None
    java = built(real_clients.VERSION, tmp_path_factory)
    return Programs(java, go_client.build(tmp_path_factory.mktemp("go")))


def skip_without(programs: Programs | None) -> None:
    """Report at the end of a run that it only had raw clients."""
    if programs is None:
        pytest.skip(f"NOT TESTED: Java and Go clients, which need {real_clients.missing()}")
