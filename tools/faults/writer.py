"""A process that puts messages as fast as it can until it's killed.

    python -m tools.faults.writer STORE_DIR FLUSH_DISK_TYPE FIRST_NUMBER [GROUPS]

Prints a line `number queue_id queue_offset` for each message that is acknowledged in its flush
mode. FLUSH_DISK_TYPE has two more values: with `TRANSIENT_STORE_POOL` a message is acknowledged
when it's readable, with `CONSUME_QUEUE_EXT` queues have extensions. With GROUPS it also deletes
topics, stops after that many groups and prints `done`; then a rejected group doesn't end it, and
an acknowledgement after a failed flush makes it print `acknowledged after`.
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
    from broker_core.config.store import StoreConfig
    from broker_core.store.results import PutMessageResult

POOLED = "TRANSIENT_STORE_POOL"
EXTENDED = "CONSUME_QUEUE_EXT"
TOPIC = "killed"
DELETED_TOPIC = "deleted"
QUEUES = 4
GROUP = 50
BUSY_S = 0.001
GROUPS_BETWEEN_DELETIONS = 4
LOG_FILE_SIZE = 4 << 20
LOG_FILE_SIZE_OF_BOUNDED = 128 << 10


def config(root: str, flush_disk_type: str, log_file_size: int = LOG_FILE_SIZE) -> StoreConfig:
    return store_config(
        store_path_root_dir=root,
        flush_disk_type=(
            "ASYNC_FLUSH" if flush_disk_type in {POOLED, EXTENDED} else flush_disk_type
        ),
        transient_store_pool_enable=flush_disk_type == POOLED,
        enable_consume_queue_ext=flush_disk_type == EXTENDED,
        mapped_file_size_consume_queue_ext=20_000,
        mapped_file_size_commit_log=log_file_size,
        mapped_file_size_consume_queue=20_000,
        max_index_num=5_000,
    )


def body_of(number: int) -> bytes:
    """Return a body of a distinct length that contains its number."""
    return b"%d" % number + b"." * (number * 37 % 900)


async def put_group(store: MessageStore, number: int) -> tuple[PutMessageStatus, list[str]]:
    """Put messages; return the last one's status and the lines that acknowledge them."""
    group: list[tuple[int, PutMessageResult]] = []
    for n in range(number, number + GROUP):
        result = put(store, TOPIC, n % QUEUES, body_of(n), keys=f"key{n}", tags="T")
        if result.status is not PutMessageStatus.PUT_OK:
            return result.status, []
        group.append((n, result))
    last = store.acknowledge.until_acknowledged(group[-1][1])
    status = PutMessageStatus.PUT_OK if last is None else await last
    return status, [f"{n} {n % QUEUES} {result.queue_offset}\n" for n, result in group]


def readable(store: MessageStore, line: str) -> bool:
    """Whether the message of a line is readable."""
    _, queue_id, queue_offset = map(int, line.split())
    return queue_offset < store.max_offset_in_queue(TOPIC, queue_id)


async def main(root: str, flush_disk_type: str, number: int, groups: int | None) -> None:
    log_file_size = LOG_FILE_SIZE if groups is None else LOG_FILE_SIZE_OF_BOUNDED
    settings = config(root, flush_disk_type, log_file_size)
    store = MessageStore(settings, SystemClock(), FileStorage(), HOST)
    store.load()
    await store.start()
    done = 0
    waiting: list[str] = []
    while groups is None or done < groups:
        had_failed = "failed write" in store.runtime_info()["storeState"]
        status, lines = await put_group(store, number)
        if status is PutMessageStatus.PUT_OK:
            if had_failed:
                say("acknowledged after\n")
            waiting += lines
            say("".join(line for line in waiting if readable(store, line)))
            waiting = [line for line in waiting if not readable(store, line)]
        elif status is PutMessageStatus.OS_PAGE_CACHE_BUSY:
            await asyncio.sleep(BUSY_S)
        else:
            assert groups is not None, status
        number += GROUP
        done += 1
        if groups is not None:
            put(store, DELETED_TOPIC, body=b"to be deleted")
            if done % GROUPS_BETWEEN_DELETIONS == 0:
                store.delete_topic(DELETED_TOPIC)
        await asyncio.sleep(0)
    await store.shutdown()
    say("done\n")


def say(text: str) -> None:
    os.write(sys.stdout.fileno(), text.encode())


if __name__ == "__main__":
    uvloop.run(
        main(
            sys.argv[1],
            sys.argv[2],
            int(sys.argv[3]),
            int(sys.argv[4]) if len(sys.argv) > 4 else None,
        )
    )
