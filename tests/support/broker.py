"""A broker in this process, on free loopback ports."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from broker_core.broker import Broker
from broker_core.config.loading import build
from tests.support.long_timeouts import PATIENT
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.clock import Clock
    from broker_core.config.configuration import Configuration
    from broker_core.storage import Storage

COMMIT_LOG_BYTES = 4 << 20


def configuration_for(directory: Path, **keys: object) -> Configuration:
    table = {
        "brokerName": "broker-a",
        "listenPort": free_port(),
        "namesrvListenPort": free_port(),
        "storePathRootDir": directory / "store",
        "mappedFileSizeCommitLog": COMMIT_LOG_BYTES,
        "maxHashSlotNum": 1000,
        "maxIndexNum": 4000,
        **PATIENT,
        **keys,
    }
    configuration, errors = build({key: str(value) for key, value in table.items()})
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
