"""Measure how fast a start reads the log with warm caches."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from broker_core.clock import SystemClock
from broker_core.config.store import StoreConfig
from broker_core.message import properties as message_properties
from broker_core.storage import FileStorage
from broker_core.store.message_store import MessageStore
from tests.support.builders import HOST, recover
from tools.faults.kill import ROOT

if TYPE_CHECKING:
    from pathlib import Path

QUEUES = 8
FILL = "import asyncio, sys; from tools.faults import recovery_speed as r; asyncio.run(r.fill())"


async def fill() -> None:
    """Fill a store (arguments: directory, megabytes, body size) and exit as if killed."""
    root, megabytes, body_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    config = StoreConfig(store_path_root_dir=root)
    store = MessageStore(config, SystemClock(), FileStorage(), HOST)
    store.load()
    await store.start()
    number = 0
    while store.max_commit_log_offset < megabytes << 20:
        key, tags = f"{number:032X}", f"Tag{number % 5}"
        properties = {"TAGS": tags, "KEYS": f"k{number}", "UNIQ_KEY": key, "CLUSTER": "c"}
        store.put_message(
            "TopicTest",
            number % QUEUES,
            os.urandom(body_size),
            message_properties.encode(properties),
            tags=tags,
            keys=f"k{number}",
            uniq_key=key,
            flag=0,
            sys_flag=0,
            born_timestamp=1,
            born_host=HOST,
        )
        number += 1
    os._exit(0)


def run(directory: Path, megabytes: int, body_size: int) -> list[str]:
    """Return a line for each of three starts; the first one warms the caches."""
    root = directory / "store"
    command = [sys.executable, "-c", FILL, str(root), str(megabytes), str(body_size)]
    subprocess.run(command, cwd=ROOT, check=True)
    config = StoreConfig(store_path_root_dir=str(root))
    lines = []
    for what in ("killed, first", "killed", "stopped"):
        if what == "stopped":
            (root / "abort").unlink()
        started, used = time.perf_counter(), time.process_time()
        report = recover(config, SystemClock(), FileStorage())
        elapsed, used = time.perf_counter() - started, time.process_time() - used
        size = (report.scanned_to - report.scanned_from) / 1e6
        lines.append(
            f"{what}: {report.records} records, {size:.0f} MB in {elapsed:.2f} s, "
            f"{size / elapsed:.0f} MB/s ({size / used:.0f} MB a second of CPU)"
        )
    return lines
