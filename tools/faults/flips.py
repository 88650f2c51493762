"""One flipped bit anywhere in the log: at most one message is lost, and the store reports it.

With guards (enabledAppendPropCRC=true), the store reports every flip in a record. Otherwise a flip
in an unguarded part may alter a message unnoticed.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.formats import record
from tests.support.builders import LOG_FILE_SIZE, a_store, get, put, store_config
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tools.faults.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from broker_core.config.store import StoreConfig
    from broker_core.store.message_store import MessageStore

MESSAGES = 300
QUEUES = 3


@dataclass
class Findings(Tally):
    """The results of all flips, one per cycle; each acknowledged message can be hit once.

    Attributes:
        altered: unreported flips.
    """

    altered: int = 0

    @property
    def more(self) -> str:
        return f"altered={self.altered}"


def run(count: int, dice: Random, *, is_guarded: bool = False) -> Findings:
    """Flip a bit of a killed store, open it and count, repeatedly."""
    config = store_config(enabled_append_prop_crc=is_guarded)
    killed, bodies, ends = asyncio.run(_killed_store(config))
    findings = Findings()
    for _ in range(count):
        start, end = ends[dice.randrange(len(ends))] if is_guarded else (0, ends[-1][1])
        position, bit = dice.randrange(start, end), dice.randrange(8)
        hurt = killed.crash()
        path = next(
            path
            for path in hurt.files
            if path.parent.name == "commitlog"
            and int(path.name) == position // LOG_FILE_SIZE * LOG_FILE_SIZE
        )
        hurt.files[path].data[position % LOG_FILE_SIZE] ^= 1 << bit
        _check(hurt, config, bodies, f"bit {bit} of byte {position}", findings)
        findings.cycles += 1
        findings.acknowledged += MESSAGES
    if is_guarded and findings.altered:
        findings.wrong.append(f"{findings.altered} flips in records were not detected")
    return findings


async def _killed_store(
    config: StoreConfig,
) -> tuple[FaultyStorage, list[bytes], list[tuple[int, int]]]:
    """Return a killed store, its bodies, and the ranges of their records."""
    storage = FaultyStorage()
    store = a_store(ManualClock(), storage, config)
    store.load()
    await store.start()
    bodies = [b"%d" % n + b"." * (n * 37 % 700) for n in range(MESSAGES)]
    ends = []
    for n, body in enumerate(bodies):
        result = put(store, queue_id=n % QUEUES, body=body, tags=f"T{n % 7}", keys=f"k{n}")
        ends.append((result.commit_log_offset, result.commit_log_offset + result.wrote_size))
    killed = storage.crash()
    await store.shutdown()
    return killed, bodies, ends


def _bodies(store: MessageStore, queue_id: int) -> Iterator[tuple[int, bytes]]:
    """Yield readable messages without properties, which aren't guarded."""
    queue_offset = 0
    while queue_offset < store.max_offset_in_queue("TopicTest", queue_id):
        result = get(store, queue_offset, queue_id=queue_id)
        view = memoryview(b"".join(result.buffers))
        position = 0
        while position < len(view):
            head = record.examine(view, position, len(view), None, check_crc=False)
            yield head.queue_offset, bytes(view[head.body_from : head.body_to])
            position += head.size
        queue_offset = result.next_begin_offset


def _check(
    storage: FaultyStorage,
    config: StoreConfig,
    bodies: list[bytes],
    what: str,
    findings: Findings,
) -> None:
    store = a_store(ManualClock(), storage, config)
    began = time.monotonic()
    report = store.load()
    findings.recovered.append(time.monotonic() - began)
    found: dict[int, bytes] = {}
    for queue_id in range(QUEUES):
        for queue_offset, body in _bodies(store, queue_id):
            number = queue_offset * QUEUES + queue_id
            findings.unexplained += number in found
            found[number] = body
        if store.max_offset_in_queue("TopicTest", queue_id) != MESSAGES // QUEUES:
            findings.wrong.append(f"{what}: queue {queue_id} has a different end")
    lost = MESSAGES - len(found)
    findings.lost += lost
    if lost > 1 or lost > len(report.damaged):
        findings.wrong.append(f"{what}: {lost} lost, reported {report.damaged}")
    others = sum(bodies[n] != body for n, body in found.items())
    findings.phantom += others
    if others:
        findings.wrong.append(f"{what}: a body was altered")
    if store.topics() != ["TopicTest"]:
        findings.wrong.append(f"{what}: topics are {store.topics()}")
    findings.altered += not report.damaged
    store.close()
