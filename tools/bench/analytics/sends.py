"""The latency of sends during other work on the machine: a separate broker, paced sends."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from analytics.errors import ReportError
from analytics.remote.access import Access
from analytics.remote.cluster import Cluster
from analytics.remote.send import Outgoing, Sender
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SENDS_A_SECOND = 2000
SENDS_A_TURN = 10
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
ASKED_AGAIN_SECONDS = 0.5
TOPIC = "bench"
QUEUES = 8
BODY = bytes(1024)


@contextmanager
def broker(directory: Path) -> Iterator[str]:
    """Run a broker with its name server until the block ends; yield the name server's address."""
    listen_port, ha_port, namesrv_port = free_port(), free_port(), free_port()
    directory.mkdir(parents=True)
    configuration = directory / "broker.conf"
    configuration.write_text(
        f"storePathRootDir={directory / 'store'}\nlistenPort={listen_port}\n"
        f"namesrvListenPort={namesrv_port}\nhaListenPort={ha_port}\n"
        "bindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nmappedFileSizeCommitLog=268435456\n"
    )
    topics = directory / "store" / "config" / "topics.json"
    topics.parent.mkdir(parents=True)
    topic = {"topicName": TOPIC, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
    topics.write_text(json.dumps({"topicConfigTable": {TOPIC: topic}}))
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "broker_core", "-c", str(configuration)],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield f"127.0.0.1:{namesrv_port}"
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def p99_ms(namesrv_addr: str, seconds: float) -> float:
    """Send at a steady pace for some seconds; return the 99th percentile of the latency.

    Raises:
        ReportError: the broker didn't start, or rejected a send.
    """
    return asyncio.run(_p99_ms(namesrv_addr, seconds))


async def _p99_ms(namesrv_addr: str, seconds: float) -> float:
    latencies: list[float] = []

    async def one(sender: Sender) -> None:
        begun = time.perf_counter()
        await sender.send_all([Outgoing(TOPIC, BODY, {"KEYS": "bench"})])
        latencies.append(time.perf_counter() - begun)

    async with Cluster(Access((namesrv_addr,))) as cluster:
        sender = Sender(cluster, "bench")
        await _first_send(sender)
        sends: list[asyncio.Task[None]] = []
        begun = time.perf_counter()
        for turn in range(int(seconds * SENDS_A_SECOND / SENDS_A_TURN)):
            due = begun + turn * SENDS_A_TURN / SENDS_A_SECOND
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            sends += [asyncio.create_task(one(sender)) for _ in range(SENDS_A_TURN)]
        await asyncio.gather(*sends)
    return sorted(latencies)[len(latencies) * 99 // 100] * 1000


async def _first_send(sender: Sender) -> None:
    give_up = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            await sender.send_all([Outgoing(TOPIC, BODY, {"KEYS": "bench"})])
        except ReportError:
            if time.monotonic() > give_up:
                raise
            await asyncio.sleep(ASKED_AGAIN_SECONDS)
        else:
            return
