"""kill -9 at random times: each acknowledged message is at its promised offset."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.clock import SystemClock
from broker_core.storage import FileStorage
from broker_core.store.message_store import MessageStore
from broker_core.verify.verifier import verify
from tests.support.builders import HOST, read_all
from tools.faults.tally import Tally
from tools.faults.writer import LOG_FILE_SIZE, QUEUES, TOPIC, body_of, config

if TYPE_CHECKING:
    from random import Random

ROOT = Path(__file__).resolve().parents[2]
KILL_AFTER_SECONDS_MAX = 0.04


@dataclass
class Findings(Tally):
    """The results of all cycles; a store has recovered when it's loaded."""

    stored: int = 0


def run(directory: Path, flush_disk_type: str, cycles: int, dice: Random) -> Findings:
    """Fill and kill the same store repeatedly."""
    findings = Findings()
    promised: dict[tuple[int, int], int] = {}
    number = 0
    for _ in range(cycles):
        for line in _until_killed(directory, flush_disk_type, number, dice):
            acknowledged, queue_id, queue_offset = map(int, line.split())
            promised[queue_id, queue_offset] = acknowledged
            findings.acknowledged += 1
        number = check(directory, flush_disk_type, promised, findings)
        findings.cycles += 1
        if findings.wrong:
            break
    return findings


def _until_killed(directory: Path, flush_disk_type: str, number: int, dice: Random) -> list[str]:
    command = [sys.executable, "-m", "tools.faults.writer", str(directory), flush_disk_type]
    with subprocess.Popen([*command, str(number)], cwd=ROOT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(dice.uniform(0.0, KILL_AFTER_SECONDS_MAX))
        writer.kill()
        lines = (first + writer.stdout.read()).decode().split("\n")
    # The kill truncated the text after the last newline.
    return [line for line in lines[:-1] if line]


def check(
    directory: Path,
    flush_disk_type: str,
    promised: dict[tuple[int, int], int],
    findings: Findings,
    log_file_size: int = LOG_FILE_SIZE,
) -> int:
    """Recover a store and compare; return the next message number."""
    settings = config(str(directory), flush_disk_type, log_file_size)
    store = MessageStore(settings, SystemClock(), FileStorage(), HOST)
    report = store.load()
    findings.recovered.append(report.duration_ms / 1_000)
    numbers: set[int] = set()
    findings.stored = 0
    for queue_id in range(QUEUES):
        messages = read_all(store, TOPIC, queue_id)
        findings.stored += len(messages)
        if [m.queue_offset for m in messages] != list(range(len(messages))):
            findings.wrong.append(f"queue {queue_id} has gaps")
        stored = {m.queue_offset: m.body for m in messages}
        for (queue, queue_offset), number in promised.items():
            if queue == queue_id and stored.get(queue_offset) != body_of(number):
                findings.lost += 1
                findings.wrong.append(f"{number} is missing at {queue_id}/{queue_offset}")
        for message in messages:
            number = int(message.body.rstrip(b"."))
            if message.body != body_of(number):
                findings.phantom += 1
                findings.wrong.append(f"{message.body[:40]!r} was never sent")
            elif number in numbers:
                findings.unexplained += 1
                findings.wrong.append(f"{number} was stored twice")
            numbers.add(number)
    if report.damaged:
        findings.wrong.append(f"damage: {report.damaged}")
    store.close()
    findings.wrong += verify(directory).problems
    return max(numbers, default=-1) + 1
