"""A broker in this process, on free loopback ports."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from broker_core import config
from broker_core.broker import Broker
from tests.support.ports import accepts, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.clock import Clock
    from broker_core.storage import Storage

COMMIT_LOG_BYTES = 4 << 20


def free_listen_port() -> int:
    """Return a free port whose VIP port, two below, is free as well."""
    while True:
        port = free_port()
        if not accepts(port - 2):
            return port


def configuration_for(directory: Path, **keys: object) -> config.Configuration:
    table = {
        "brokerName": "broker-a",
        "listenPort": free_listen_port(),
        "namesrvListenPort": free_port(),
        "storePathRootDir": directory / "store",
        "mappedFileSizeCommitLog": COMMIT_LOG_BYTES,
        "maxHashSlotNum": 1000,
        "maxIndexNum": 4000,
        **keys,
    }
    configuration, errors = config.build({key: str(value) for key, value in table.items()})
    assert not errors, [str(error) for error in errors]
    return configuration


@asynccontextmanager
async def running_broker(
    directory: Path,
    *,
    clock: Clock | None = None,
    storage: Storage | None = None,
    **keys: object,
) -> AsyncIterator[Broker]:
    """Run a broker while the block runs; its store stays in the directory."""
    broker = Broker(configuration_for(directory, **keys), clock, storage)
    broker.load()
    try:
        await broker.start()
        yield broker
    finally:
        await broker.shutdown()
