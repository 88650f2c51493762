"""Fail each flush of a broker with EIO, then cut the power, and check the acknowledgements.

After a failed flush the data is only in the page cache, so a power cut shows whether an
acknowledgement was justified. Needs root, loop devices and strace.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tests.support import raw_remoting
from tests.support.raw_remoting import RawClient
from tests.support.syscall_faults import injected
from tools.faults import checker, power, real_clients, syscalls, tested_brokers
from tools.faults.broker_kill import NotStartedError, Prober, sent_as
from tools.faults.operations import Cause, Happened, Sent, Status
from tools.faults.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from tools.faults.operations import Operation
    from tools.faults.real_clients import Programs

TOPIC, PROBED = "failing", "probed"
FLUSHES = "fsync,fdatasync,msync"
SENDS_BEFORE, SENDS = (1, 20), 8


@dataclass
class Findings(Tally):
    """The results of all cycles.

    Attributes:
        acknowledged_after: sends that were acknowledged while each flush failed.
    """

    sent_after: int = 0
    acknowledged_after: int = 0
    codes: Counter[int] = field(default_factory=Counter)

    def note_answers(self, codes: Counter[int]) -> None:
        self.codes += codes
        self.sent_after += codes.total()
        self.acknowledged_after += codes[raw_remoting.SUCCESS]

    @property
    def more(self) -> str:
        return (
            f"sent_while_failing={self.sent_after} "
            f"acknowledged_while_failing={self.acknowledged_after} answers={dict(self.codes)}"
        )


def missing() -> str:
    return power.missing() or syscalls.missing()


def run(
    directory: Path,
    cycles: int,
    dice: Random,
    *,
    kind: str = tested_brokers.OURS,
    programs: Programs | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Findings:
    """Let flushes fail, each time on a new file system.

    With `programs`, RocketMQ's own clients work next to the raw one.
    """
    findings = Findings()
    while findings.cycles < cycles and not findings.wrong:
        place = directory / f"cycle-{findings.cycles}"
        with power.file_system(place) as (image, mount):
            _cycle(place, image, mount, dice, kind, findings, programs)
        findings.cycles += 1
        say(f"{kind} {findings}")
    return findings


def _cycle(
    directory: Path,
    image: Path,
    place: Path,
    dice: Random,
    kind: str,
    findings: Findings,
    programs: Programs | None,
) -> None:
    keys: dict[str, object] = {"storePathRootDir": place / "store", "flushDiskType": "SYNC_FLUSH"}
    keys |= {} if programs is None else real_clients.KEYS
    broker = tested_brokers.broker(kind, directory / "broker", **keys)
    prober = Prober(broker, PROBED)
    of_real: list[Operation] = []
    with contextlib.ExitStack() as stack:
        stack.callback(broker.kill)
        with power.mounted(image, place):
            broker.start()
            raw_remoting.create_topic(broker.port, PROBED, queues=1)
            raw_remoting.create_topic(broker.port, TOPIC, queues=1)
            real = None
            if programs is not None:
                where = (broker.directory, broker.namesrv)
                real = real_clients.beside(programs, *where, lambda: broker.port)
                stack.enter_context(real)
                real.until_working()
            sent, _ = _send(broker.port, "before", dice.randint(*SENDS_BEFORE))
            with injected(broker.pid, FLUSHES, "error=EIO", directory / "trace"):
                failing_at = time.monotonic_ns()
                failing, codes = _send(broker.port, "failing", SENDS)
                findings.note_answers(codes)
                cut_at = time.monotonic_ns()
                power.cut_power(place)
                broker.kill()
            killed_at = time.monotonic_ns()
        with power.mounted(image, place):
            try:
                findings.recovered.append(prober.start())
            except NotStartedError:
                if kind == tested_brokers.OURS:
                    raise
                findings.not_started += 1
                return
            if not tested_brokers.is_served(broker.port, TOPIC):
                raw_remoting.create_topic(broker.port, TOPIC, queues=1)
            stored = tested_brokers.stored(broker.port, TOPIC, 1)
            if real is not None:
                real.rest()
                seen = real.come_to_end()
                there = real.stored()
                of_real = [
                    Happened(Cause.CRASH, killed_at),
                    *real_clients.doubted(seen, there, cut_at, killed_at),
                    *there,
                ]
                findings.acknowledged_after += sum(
                    isinstance(one, Sent)
                    and one.status is Status.OK
                    and failing_at < one.invoked
                    and one.returned < cut_at
                    for one in seen
                )
            broker.kill()
    report = checker.check([*sent, *failing, *stored, *of_real])
    findings.add(report)
    if kind == tested_brokers.OURS:
        if findings.acknowledged_after:
            findings.wrong.append(f"sends were acknowledged while each flush failed: {codes}")
        findings.wrong += map(str, report.findings)


def _send(port: int, name: str, count: int) -> tuple[list[Sent], Counter[int]]:
    """Send one after the other; return the sends and the answer codes."""
    sent, codes = [], Counter[int]()
    with RawClient(port) as client:
        for number in range(count):
            body = f"{name}-{number}".encode()
            invoked = time.monotonic_ns()
            fields = raw_remoting.send_fields(TOPIC)
            answer = client.ask(raw_remoting.SEND_MESSAGE, fields, body)
            codes[answer.code] += 1
            one = sent_as(name, body, TOPIC, 0, invoked, answer)
            # Rejected after a failed flush; messages that waited for it may still be stored.
            is_known = answer.code == raw_remoting.SUCCESS
            sent.append(one if is_known else replace(one, status=Status.MAYBE))
    return sent, codes
