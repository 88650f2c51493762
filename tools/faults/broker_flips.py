"""Flip one bit in the log of a killed broker, and check the rest after its next start.

A log is filled and left as after a kill. Each cycle flips a bit in a copy of it, starts a broker
on the copy and reads everything.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support import raw_remoting
from tests.support.raw_remoting import RawClient
from tools.faults import checker, tested_brokers
from tools.faults.broker_kill import NotStartedError, Prober, sent_as
from tools.faults.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from tools.faults.operations import Sent

TOPIC, PROBED = "flipped", "probed"
QUEUES = 4
MESSAGES = 3_000
FIRST_FILE = f"commitlog/{0:020d}"
OF_ONE_MESSAGE = {"I1", "I7"}
"""The findings for a single lost message: the message itself, and its empty offset."""


@dataclass
class Findings(Tally):
    """The results of all flips; each cycle has all messages.

    Attributes:
        lost_at_most: the most messages that one flip lost.
        altered: messages whose body differs from the sent one.
    """

    lost_at_most: int = 0
    altered: int = 0
    found: Counter[str] = field(default_factory=Counter)

    @property
    def more(self) -> str:
        return (
            f"lost_by_one_flip_at_most={self.lost_at_most} altered={self.altered} "
            f"found={dict(self.found)}"
        )


def run(
    directory: Path,
    count: int,
    dice: Random,
    *,
    kind: str = tested_brokers.OURS,
    say: Callable[[str], None] = lambda text: None,
) -> Findings:
    """Flip bits, one at a time."""
    findings = Findings()
    filled = directory / "filled"
    broker = tested_brokers.broker(kind, filled, flushDiskType="SYNC_FLUSH")
    try:
        broker.start()
        raw_remoting.create_topic(broker.port, TOPIC, queues=QUEUES)
        sent = _send(broker.port)
    finally:
        broker.kill()
    whole = directory / "whole"
    broker.store.rename(whole)
    end = len((whole / FIRST_FILE).read_bytes().rstrip(b"\0"))
    while findings.cycles < count and not findings.wrong:
        shutil.copytree(whole, broker.store)
        position, bit = dice.randrange(end), dice.randrange(8)
        _flip(broker.store / FIRST_FILE, position, bit)
        prober = Prober(broker, PROBED)
        try:
            findings.recovered.append(prober.start())
            stored = tested_brokers.stored(broker.port, TOPIC, QUEUES)
            report = checker.check([*sent, *stored])
            _judge(findings, kind, f"bit {bit} of byte {position}", report)
        except NotStartedError:
            if kind == tested_brokers.OURS:
                raise
            findings.not_started += 1
        finally:
            broker.kill()
        findings.cycles += 1
        shutil.rmtree(broker.store)
        say(f"{kind} {findings}")
    return findings


def _judge(findings: Findings, kind: str, what: str, report: checker.Report) -> None:
    lost = report.lost.total()
    findings.add(report)
    findings.lost_at_most = max(findings.lost_at_most, lost)
    findings.altered += sum(one.invariant == "I3" for one in report.findings)
    findings.found += Counter(one.invariant for one in report.findings)
    others = [one for one in report.findings if one.invariant not in OF_ONE_MESSAGE]
    if kind == tested_brokers.OURS and (lost > 1 or others):
        findings.wrong.append(f"{what}: {lost} lost, {[*map(str, others)]}")


def _send(port: int) -> list[Sent]:
    """Send all messages; each must be acknowledged."""
    sent = []
    with RawClient(port) as client:
        for number in range(MESSAGES):
            body = f"m-{number}".encode().ljust(number * 37 % 700, b".")
            queue_id = number % QUEUES
            fields = raw_remoting.send_fields(TOPIC, queue_id=queue_id, properties="TAGS\x01T")
            invoked = time.monotonic_ns()
            answer = client.ask(raw_remoting.SEND_MESSAGE, fields, body)
            assert answer.code == raw_remoting.SUCCESS, answer
            sent.append(sent_as("sender", body, TOPIC, queue_id, invoked, answer))
    return sent


def _flip(file: Path, position: int, bit: int) -> None:
    with file.open("r+b") as log:
        log.seek(position)
        (value,) = log.read(1)
        log.seek(position)
        log.write(bytes([value ^ 1 << bit]))
