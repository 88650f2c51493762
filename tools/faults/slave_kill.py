"""Kill the slave of a SYNC_MASTER under load; its files have all acknowledged messages.

A message is acknowledged if the master answered SUCCESS before the slave restarts: without a slave
it acknowledges nothing. The files are read before any process starts on them, by a reader that
shares no code with the broker, and each record must equal the master's, byte for byte.

With haAckMode=received that holds for a killed process, whose kernel keeps written data; with
flushed for a power cut, too.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broker_core.verify.verifier import verify
from tests.support import raw_remoting
from tests.support.broker_set import BrokerSet
from tests.support.waiting import until
from tools.faults import checker, plain_store, real_clients
from tools.faults.clients import Book, Sender, Server, as_stored
from tools.faults.operations import Cause, Happened, Sent, Status, digest_of
from tools.faults.power import cut_power, file_system, mounted
from tools.faults.promotion import log_bytes
from tools.faults.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from random import Random

    from tools.faults.operations import Operation
    from tools.faults.plain_store import Whole
    from tools.faults.real_clients import Programs, RealClients

TOPIC = "copied"
QUEUES = 2
LOAD_SECONDS = (0.05, 0.6)
ACKNOWLEDGED_MIN = 20
AGAIN_SECONDS_MAX = 120.0
CYCLES_OF_A_SET = 20
SHOWN_MAX = 5
PACE = 0.001
KEYS: dict[str, object] = {
    "brokerRole": "SYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "mappedFileSizeCommitLog": 4 << 20,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 100_000,
    "slaveTimeout": 1_000,
    "haSendHeartbeatInterval": 500,
}
RECEIVED, FLUSHED, POWER = "received", "flushed", "power"
KINDS = (RECEIVED, FLUSHED, POWER)
"""haAckMode with kill -9; POWER is flushed with a power cut."""
BROKER = ("broker_core",)


class Acknowledged(NamedTuple):
    """A message that a master answered with SUCCESS, and its log offset."""

    id: str
    digest: str
    commit_log_offset: int


@dataclass
class Findings(Tally):
    """The results of all cycles.

    `recovered` is the time from the start of the slave until sends were acknowledged. `copied` is
    the number of acknowledged messages that were checked in the files of a dead slave.
    """

    copied: int = 0

    @property
    def more(self) -> str:
        return f"looked_for_in_files={self.copied}"


class _Book(Book):
    """A book that also has the log offsets of acknowledged messages."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledged: list[Acknowledged] = []

    def note_answer(
        self, sent: Sent, server: Server, answer: raw_remoting.Answer | None
    ) -> raw_remoting.Answer | None:
        super().note_answer(sent, server, answer)
        if answer is not None and answer.code == raw_remoting.SUCCESS:
            place = int(answer.fields["msgId"][16:], 16)
            self.acknowledged.append(Acknowledged(sent.id, sent.digest, place))
        return answer


def lacking(
    acknowledged: Iterable[Acknowledged], master: Mapping[int, Whole], slave: Mapping[int, Whole]
) -> list[str]:
    """Return acknowledged messages whose record in a dead slave's files is missing or different."""
    wrong = []
    for one in acknowledged:
        there, here = master.get(one.commit_log_offset), slave.get(one.commit_log_offset)
        if there is None or digest_of(there.body) != one.digest:
            wrong.append(f"{one} is missing on the master")
        elif here is None:
            wrong.append(f"{one} was acknowledged but is missing in the slave's files")
        elif here.data != there.data:
            wrong.append(f"{one} has a different record in the slave's files")
    return wrong


class _Set:
    """A master that stays up, and a slave that is killed."""

    def __init__(
        self,
        directory: Path,
        kind: str,
        dice: Random,
        findings: Findings,
        module: Sequence[str],
        programs: Programs | None,
    ) -> None:
        mode = RECEIVED if kind == RECEIVED else FLUSHED
        of_real = {} if programs is None else real_clients.KEYS
        self._set = BrokerSet(directory, {**of_real, **KEYS, "haAckMode": mode})
        self._programs = programs
        self._real: RealClients | None = None
        self._clients = ExitStack()
        self._master, self._slave = self._set.brokers
        self._slave.module = list(module)
        self._has_disk = kind == POWER
        self._dice = dice
        self._findings = findings
        self._book = _Book()
        self._seen = 0
        """The number of acknowledged messages already checked."""
        self._senders: list[Sender] = []
        self._disk = ExitStack()
        self._mount = ExitStack()
        self._image: Path | None = None

    def start(self) -> None:
        if self._has_disk:
            # The store is mounted next to the image, where no other namespace keeps it alive.
            self._image, _ = self._disk.enter_context(file_system(self._slave.directory))
            self._mount.enter_context(mounted(self._image, self._slave.store))
        self._set.__enter__()
        raw_remoting.create_topic(self._master.port, TOPIC, queues=QUEUES)
        server = Server("", "127.0.0.1", self._master.port)
        for queue_id in range(QUEUES):
            place = (TOPIC, queue_id)
            sender = Sender(lambda: server, f"q{queue_id}", self._book, place, pace=PACE)
            self._senders.append(sender)
            sender.start()
        if self._programs is not None:
            where = (self._set.directory, self._set.namesrv_address)
            real = real_clients.beside(self._programs, *where, lambda: self._master.port)
            self._real = self._clients.enter_context(real)
            self._real.until_working()
        self._wait_for_acknowledgements()

    def end(self) -> None:
        for sender in self._senders:
            sender.stop()
        self._clients.close()
        self._set.__exit__()
        self._mount.close()
        self._disk.close()

    def cycle(self) -> None:
        """Kill the slave, check acknowledged messages, restart it."""
        time.sleep(self._dice.uniform(*LOAD_SECONDS))
        self._let_die()
        self._look_into_files()
        if self._findings.wrong:
            return
        started_at = time.monotonic()
        self._slave.launch()
        self._wait_for_acknowledgements()
        self._findings.recovered.append(time.monotonic() - started_at)

    def finish(self) -> None:
        """Let the slave catch up; then both must be equal and match the clients' history."""
        for sender in self._senders:
            sender.stop()
        for sender in self._senders:
            sender.join(AGAIN_SECONDS_MAX)
        of_real: list[Operation] = []
        if self._real is not None:
            self._real.rest()
            of_real = [*self._real.come_to_end(), *self._real.stored()]
        end = self._set.until_same(self._master, self._slave)
        wrong = self._findings.wrong
        if log_bytes(self._master, end) != log_bytes(self._slave, end):
            wrong.append(f"the logs differ before offset {end}")
        stored = [
            one
            for queue_id in range(QUEUES)
            for one in as_stored(
                raw_remoting.read_queue(self._master.port, TOPIC, queue_id), TOPIC, queue_id
            )
        ]
        report = checker.check([*self._book.history, *stored, *of_real])
        self._findings.add(report)
        wrong += map(str, report.findings)
        for broker in (self._slave, self._master):
            if broker.stop() != 0:
                wrong.append(f"a broker did not stop:\n{broker.words()[-2000:]}")
            wrong += verify(broker.store).problems

    def _wait_for_acknowledgements(self) -> None:
        """Wait until the master waits for the slave and the load continues."""
        least = len(self._book.acknowledged) + ACKNOWLEDGED_MIN
        try:
            until(
                lambda: len(self._book.acknowledged) >= least,
                "acknowledged sends",
                seconds=AGAIN_SECONDS_MAX,
            )
        except AssertionError as error:
            words = "\n---\n".join(one.words()[-3000:] for one in self._set.brokers)
            raise AssertionError(f"{error}\n{words}") from None

    def _let_die(self) -> None:
        """Kill the slave; with a separate disk, cut and restore the power."""
        if self._image is None:
            self._slave.kill()
        else:
            # Stopped first, because a slave without power can't report.
            os.kill(self._slave.pid, signal.SIGSTOP)
            cut_power(self._slave.store)
            self._slave.kill()
            self._mount.close()
            self._mount.enter_context(mounted(self._image, self._slave.store))
        self._book.history.append(Happened(Cause.CRASH, time.monotonic_ns()))

    def _look_into_files(self) -> None:
        slave = plain_store.whole_records(self._slave.store)
        # Messages acknowledged so far were reported before the slave died.
        acknowledged = self._book.acknowledged[self._seen :]
        self._seen += len(acknowledged)
        wrong = lacking(acknowledged, plain_store.whole_records(self._master.store), slave)
        self._findings.copied += len(acknowledged)
        if self._real is not None:
            # The client libraries don't return log offsets.
            digests = {digest_of(one.body) for one in slave.values()}
            for one in self._real.history():
                if isinstance(one, Sent) and one.status is Status.OK:
                    self._findings.copied += 1
                    if one.digest not in digests:
                        wrong.append(
                            f"{one.id} was acknowledged but is missing in the slave's files"
                        )
        self._findings.lost += len(wrong)
        self._findings.wrong += wrong[:SHOWN_MAX]


def run(
    directory: Path,
    kind: str,
    cycles: int,
    dice: Random,
    *,
    module: Sequence[str] = BROKER,
    programs: Programs | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Findings:
    """Kill slaves; a new set every few cycles keeps the logs short. `module` runs the slave.

    With `programs`, RocketMQ's own clients work next to the raw ones.
    """
    findings = Findings()
    while findings.cycles < cycles and not findings.wrong:
        brokers = _Set(directory / f"set-{findings.cycles}", kind, dice, findings, module, programs)
        try:
            brokers.start()
            for _ in range(min(CYCLES_OF_A_SET, cycles - findings.cycles)):
                brokers.cycle()
                findings.cycles += 1
                say(f"{kind} {findings}")
                if findings.wrong:
                    return findings
            brokers.finish()
        finally:
            brokers.end()
    return findings
