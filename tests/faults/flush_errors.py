"""Each flush of a broker fails with EIO, then the power goes: what it acknowledged meanwhile.

What a failed flush was to write is in the page cache only, so that a cut shows what the
acknowledgement was worth. Needs root, loop devices and strace.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tests.faults import checker, power, syscalls, tried
from tests.faults.broker_kill import NotStartedError, Prober, sent_as
from tests.faults.operations import Status
from tests.faults.tally import Tally
from tests.support import raw_remoting
from tests.support.injected import injected
from tests.support.raw_remoting import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from tests.faults.operations import Sent

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
    kind: str = tried.OURS,
    say: Callable[[str], None] = lambda text: None,
) -> Findings:
    """Let flushes fail, each time on a new file system."""
    findings = Findings()
    while findings.cycles < cycles and not findings.wrong:
        place = directory / f"cycle-{findings.cycles}"
        with power.file_system(place) as (image, mount):
            _cycle(place, image, mount, dice, kind, findings)
        findings.cycles += 1
        say(f"{kind} {findings}")
    return findings


def _cycle(
    directory: Path, image: Path, place: Path, dice: Random, kind: str, findings: Findings
) -> None:
    keys = {"storePathRootDir": place / "store", "flushDiskType": "SYNC_FLUSH"}
    broker = tried.broker(kind, directory / "broker", **keys)
    prober = Prober(broker, PROBED)
    try:
        with power.mounted(image, place):
            broker.start()
            raw_remoting.create_topic(broker.port, PROBED, queues=1)
            raw_remoting.create_topic(broker.port, TOPIC, queues=1)
            sent, _ = _send(broker.port, "before", dice.randint(*SENDS_BEFORE))
            with injected(broker.pid, FLUSHES, "error=EIO", directory / "trace"):
                failing, codes = _send(broker.port, "failing", SENDS)
                findings.note_answers(codes)
                power.cut_power(place)
                broker.kill()
        with power.mounted(image, place):
            try:
                findings.recovered.append(prober.start())
            except NotStartedError:
                if kind == tried.OURS:
                    raise
                findings.not_started += 1
                return
            if not tried.is_served(broker.port, TOPIC):
                raw_remoting.create_topic(broker.port, TOPIC, queues=1)
            stored = tried.stored(broker.port, TOPIC, 1)
            broker.kill()
    finally:
        broker.kill()
    report = checker.check([*sent, *failing, *stored])
    findings.add(report)
    if kind == tried.OURS:
        if codes[raw_remoting.SUCCESS]:
            findings.wrong.append(f"sends were acknowledged while each flush failed: {codes}")
        findings.wrong += map(str, report.findings)


def _send(port: int, name: str, count: int) -> tuple[list[Sent], Counter[int]]:
    """Send one after the other; return what was sent, and the codes of the answers."""
    sent, codes = [], Counter[int]()
    with RawClient(port) as client:
        for number in range(count):
            body = f"{name}-{number}".encode()
            invoked = time.monotonic_ns()
            fields = raw_remoting.send_fields(TOPIC)
            answer = client.ask(raw_remoting.SEND_MESSAGE, fields, body)
            codes[answer.code] += 1
            one = sent_as(name, body, TOPIC, 0, invoked, answer)
            # Refused because a flush failed: what waited for it may be there all the same.
            is_known = answer.code == raw_remoting.SUCCESS
            sent.append(one if is_known else replace(one, status=Status.MAYBE))
    return sent, codes
