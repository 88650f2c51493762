"""A process that puts messages as fast as it can, until somebody kills it.

    python -m tests.faults.writer STORE_DIR FLUSH_DISK_TYPE FIRST_NUMBER

Each acknowledged message is a line `number queue_id queue_offset` on standard output, written after
the store has promised what its flush mode promises.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import uvloop

from broker_core.clock import SystemClock
from broker_core.storage import FileStorage
from broker_core.store.message_store import MessageStore
from broker_core.store.results import PutMessageStatus
from tests.support.builders import HOST, put, store_config

if TYPE_CHECKING:
    from broker_core.config import StoreConfig

TOPIC = "killed"
QUEUES = 4
GROUP = 50
LOG_FILE_SIZE = 4 << 20


def config(root: str, flush_disk_type: str) -> StoreConfig:
    return store_config(
        store_path_root_dir=root,
        flush_disk_type=flush_disk_type,
        mapped_file_size_commit_log=LOG_FILE_SIZE,
        mapped_file_size_consume_queue=20_000,
        max_index_num=5_000,
    )


def body_of(number: int) -> bytes:
    """Return a message's body: its number, and a length of its own."""
    return b"%d" % number + b"." * (number * 37 % 900)


async def main(root: str, flush_disk_type: str, number: int) -> None:
    store = MessageStore(config(root, flush_disk_type), SystemClock(), FileStorage(), HOST)
    store.load()
    await store.start()
    while True:
        group = []
        for _ in range(GROUP):
            result = put(
                store, TOPIC, number % QUEUES, body_of(number), keys=f"key{number}", tags="T"
            )
            assert result.status is PutMessageStatus.PUT_OK, result.status
            group.append((number, result))
            number += 1
        last = store.until_durable(group[-1][1])
        if last is not None:
            assert await last is PutMessageStatus.PUT_OK
        lines = [f"{n} {n % QUEUES} {result.queue_offset}\n" for n, result in group]
        os.write(sys.stdout.fileno(), "".join(lines).encode())
        await asyncio.sleep(0)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
