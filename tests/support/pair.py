"""A master and a slave in this process, and assertions that their stores are equal."""

from __future__ import annotations

import hashlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.broker import running_broker
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker

CAUGHT_UP_SECONDS = 60.0


def ha_address(master: Broker) -> str:
    """Return the address where a broker serves its log."""
    return f"127.0.0.1:{master.configuration.ha.ha_listen_port}"


@asynccontextmanager
async def running_slave(directory: Path, master: Broker, **keys: Any) -> AsyncIterator[Broker]:
    """Run a slave of a master while the block runs; its store stays in the directory."""
    table: dict[str, Any] = {
        "brokerRole": "SLAVE",
        "brokerId": 1,
        "haMasterAddress": ha_address(master),
        **keys,
    }
    async with running_broker(directory, **table) as slave:
        yield slave


async def until_caught_up(master: Broker, slave: Broker) -> None:
    """Wait until the slave has dispatched everything that the master has."""
    there = master.storage.store
    here = slave.storage.store
    await until_async(
        lambda: (
            here.max_commit_log_offset == there.max_commit_log_offset
            and not here.dispatch_behind_bytes
        ),
        "the slave to catch up with its master",
        seconds=CAUGHT_UP_SECONDS,
    )


def log_digest(broker: Broker, offset_from: int, offset_to: int) -> str:
    """Return the SHA-256 of a range of a broker's log."""
    digest = hashlib.sha256()
    log = broker.storage.store.files.log
    while offset_from < offset_to:
        view = log.committed_view(offset_from)
        assert view is not None, f"the log has nothing at {offset_from}"
        piece = view[: offset_to - offset_from]
        digest.update(piece)
        offset_from += len(piece)
    return digest.hexdigest()


def queue_units(broker: Broker) -> dict[tuple[str, int], bytes]:
    """Return the readable units of each ConsumeQueue, from its first message on."""
    found = {}
    for queue in broker.storage.store.files.queues:
        units = b""
        queue_offset = queue.min_offset
        while queue_offset < queue.max_offset:
            more = bytes(queue.units(queue_offset, queue.max_offset - queue_offset))
            units += more
            queue_offset += len(more) // 20
        found[queue.topic, queue.queue_id] = units
    return found


def assert_same_logs(master: Broker, slave: Broker) -> None:
    """Assert that the slave's log is a part of its master's."""
    there, here = master.storage.store, slave.storage.store
    begin, end = here.min_commit_log_offset, here.max_commit_log_offset
    assert end == there.max_commit_log_offset
    assert log_digest(slave, begin, end) == log_digest(master, begin, end)


def assert_same_stores(master: Broker, slave: Broker) -> None:
    """Assert that the slave's log is a part of its master's, with the same queues and keys."""
    assert_same_logs(master, slave)
    there, here = master.storage.store, slave.storage.store
    if here.min_commit_log_offset == there.min_commit_log_offset:
        assert queue_units(slave) == queue_units(master)
        assert here.index_last_update == there.index_last_update
