"""A cluster under a seeded schedule of all kinds of faults, and the history of its clients.

Two name servers, a SYNC_MASTER, its slave and the clients each run on a separate host (network
namespace). Each broker's store is a separate file system that can fill up (tmpfs), and each
broker's wall clock can be stepped. The run's `Variant` decides which members are ours, and whether
power fails, clocks differ and RocketMQ's own clients take part. Faults come one after the other,
and after each one a send must be acknowledged within a time limit. At the end all faults are
healed, the clients read to the end, both logs are compared and verified, and `checker` checks the
history.

A kill keeps written data in the page cache, so no acknowledged message may be lost in either flush
mode; a power cut keeps only flushed data.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from broker_core.verify.verifier import verify
from tests.support import network, raw_remoting
from tests.support.network import Network
from tests.support.raw_remoting import RawClient
from tests.support.stepped_clock import step
from tests.support.syscall_faults import injected
from tests.support.waiting import until
from tools.faults import checker, operations, power, real_clients, syscalls, tested_brokers
from tools.faults.chaos_cluster import (
    CLIENTS,
    DELAY_SECONDS,
    HOSTS,
    QUEUES,
    TOPIC,
    VERSION,
    Cluster,
)
from tools.faults.clients import Book, Client, Committer, Deferrer, Reader, Sender, as_stored, id_of
from tools.faults.operations import (
    NEVER,
    DiskFailed,
    Faulty,
    Kind,
    Log,
    Sent,
    Status,
    digest_of,
    wall_ms,
)
from tools.faults.promotion import log_bytes
from tools.faults.real_clients import RealClients
from tools.faults.schedules import FaultKind, Role, schedule
from tools.faults.tally import spread
from tools.faults.variants import OURS, Variant, variant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tools.faults.chaos_cluster import Node
    from tools.faults.history_index import Finding
    from tools.faults.real_clients import Programs
    from tools.faults.schedules import Fault

ORDERED_QUEUE, DEFERRED_QUEUE = QUEUES - 2, QUEUES - 1
BURST_PACE, PACE = 0.01, 0.05
RESETS_EACH = 200
DISK_MIB, DISK_MIB_A_MINUTE = 192, 96
"""A full disk would end a run: an idle machine writes 30 MiB in a minute."""
SPARE_BYTES_MAX = 1 << 20
FLAP_SECONDS = (0.02, 0.3)
LOSSY_SECONDS = (0.005, 0.03)
SLOW_BITS = (128_000, 2_000_000)
SLOW_FLUSH_US = (20_000, 400_000)
STEP_SECONDS = 3_600
RECOVERY_SECONDS_MAX = 60.0
END_SECONDS_MAX = 120.0
JOIN_SECONDS = 60.0
PROBE_PAUSE_SECONDS = 0.02


@dataclass
class Figures:
    """A run's results; `recovered` has seconds from healing to the next acknowledged send."""

    seed: int
    variant: Variant
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    recovered: list[float] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    report: checker.Report = field(default_factory=checker.Report)
    wrong: list[str] = field(default_factory=list)

    @property
    def blamed(self) -> list[Finding]:
        """The failures of our members; RocketMQ's own members promise less."""
        return [one for one in self.report.findings if self.variant.is_judged(one.invariant)]

    @property
    def is_right(self) -> bool:
        return not self.wrong and not self.blamed

    def __str__(self) -> str:
        report = self.report
        lines = [
            f"{self.variant}: {self.seconds:.0f} s, {self.faults.total()} faults "
            f"{dict(self.faults)}",
            f"acknowledged={report.acknowledged} answers={dict(self.codes)} "
            f"delivered={report.delivered} lost={report.lost.total()} phantom={report.phantom} "
            f"duplicates_explained={report.explained.total()} {dict(report.explained)} "
            f"duplicates_unexplained={report.unexplained}",
            spread(self.recovered),
        ]
        if report.findings:
            lines.append(str(report))
        return "\n".join([*lines, *(f"wrong: {one}" for one in self.wrong)])


def missing(chosen: Variant | None = None) -> str:
    """Return the missing prerequisites for chaos, or for one cluster, or an empty string."""
    lacking = network.missing() or syscalls.missing()
    if chosen is None or lacking:
        return lacking
    if chosen.loses_power and power.missing():
        return power.missing()
    of_original = "" if chosen.members == OURS else tested_brokers.missing(VERSION)
    return of_original or (real_clients.missing() if chosen.has_real else "")


class _Run:
    """One seed."""

    def __init__(
        self, cluster: Cluster, figures: Figures, directory: Path, real: RealClients | None
    ) -> None:
        self._cluster = cluster
        self._variant = cluster.variant
        self._real = real
        self._figures = figures
        self._directory = directory
        self._book = cluster.book
        self._dice = Random(figures.seed)
        self._probes = 0
        self._makers: dict[FaultKind, Callable[[Fault], None]] = {
            FaultKind.KILL: self._kill,
            FaultKind.STOP: self._stop,
            FaultKind.PAUSE: self._pause,
            FaultKind.FAILOVER: self._fail_over,
            FaultKind.PARTITION: self._part,
            FaultKind.ONE_WAY: self._part,
            FaultKind.FLAPPING: self._flap,
            FaultKind.LOSSY: self._flap,
            FaultKind.SLOW: self._slow_link,
            FaultKind.DISK_FULL: self._fill_disk,
            FaultKind.DISK_SLOW: self._slow_disk,
            FaultKind.DISK_FAILS: self._fail_disk,
            FaultKind.CLOCK: self._step_clock,
            FaultKind.POWER: self._cut_power,
        }

    def work(self, faults: list[Fault], say: Callable[[str], None]) -> None:
        """Run all faults under load, then heal, read to the end and record the stored messages."""
        self._recover("the start")
        if self._real is not None:
            # RocketMQ's clients exit if they can't reach a server during their startup.
            self._real.until_working()
        clients = list(self._clients())
        for client in clients:
            client.start()
        try:
            for fault in faults:
                say(str(fault))
                self._figures.faults[fault.kind.value] += 1
                began = time.monotonic_ns()
                self._makers[fault.kind](fault)
                self._recover_from(fault, began)
                time.sleep(fault.quiet_seconds)
            self._come_to_rest(clients)
        finally:
            for client in clients:
                client.stop()
            for client in clients:
                client.join(JOIN_SECONDS)
        self._compare()

    def _clients(self) -> Iterator[Client]:
        cluster, book = self._cluster, self._book

        for queue_id in range(QUEUES):
            place = (TOPIC, queue_id)
            common = (book, place, cluster.inside)
            if queue_id == DEFERRED_QUEUE:
                yield Deferrer(
                    cluster.find_master,
                    "deferrer",
                    *common,
                    delay_ns=DELAY_SECONDS * 1_000_000_000,
                    pace=PACE,
                    has_halves=not self._variant.has_checks,
                )
            elif queue_id == ORDERED_QUEUE:
                yield Sender(cluster.find_master, "ordered", *common, window=1, pace=BURST_PACE)
            else:
                yield Sender(cluster.find_master, f"sender{queue_id}", *common, pace=BURST_PACE)
            yield Reader(cluster.find_master, f"reader{queue_id}", *common, group="readers")
            yield Committer(
                cluster.find_master,
                f"committer{queue_id}",
                *common,
                group="committers",
                resets_each=RESETS_EACH,
            )
            yield Reader(
                cluster.find_slave,
                f"slave-reader{queue_id}",
                *common,
                group="slave-readers",
                is_of_master=False,
            )

    def _recover_from(self, fault: Fault, began: int) -> None:
        healed = time.monotonic_ns()
        recovered = NEVER
        try:
            self._recover(str(fault))
            recovered = time.monotonic_ns()
            self._figures.recovered.append((recovered - healed) / 1e9)
        finally:
            self._book.history.append(Faulty(str(fault), began, healed, recovered))

    def _recover(self, after: str) -> None:
        """Wait until a send is acknowledged: both brokers then have everything before it."""
        cluster = self._cluster

        def is_ok() -> bool:
            self._probes += 1
            body = f"probe-{self._probes}".encode()
            place = (TOPIC, 0)
            sent = Sent(
                *("probe", id_of(body), digest_of(body), *place, time.monotonic_ns()),
                wall_ms=wall_ms(),
            )
            answer = None
            with suppress(OSError):
                answer = cluster.ask(
                    cluster.master,
                    raw_remoting.SEND_MESSAGE,
                    raw_remoting.send_fields(TOPIC, queue_id=0),
                    body,
                )
            self._book.note_answer(sent, cluster.master.server, answer)
            return answer is not None and answer.code == raw_remoting.SUCCESS

        until(
            is_ok,
            f"a send to be acknowledged after {after}",
            seconds=RECOVERY_SECONDS_MAX,
            every_s=PROBE_PAUSE_SECONDS,
        )

    def _nodes(self, role: Role) -> list[Node]:
        cluster = self._cluster
        match role:
            case Role.MASTER:
                return [cluster.master]
            case Role.SLAVE:
                return [cluster.slave]
            case Role.NAMESRV:
                # One name server, or both.
                return self._dice.sample(cluster.namesrvs, self._dice.choice((1, 1, 2)))
            case _:
                return list(cluster.nodes)

    def _host(self, role: Role | None) -> str:
        return CLIENTS if role in (None, Role.CLIENTS) else self._nodes(role)[0].name

    def _kill(self, fault: Fault) -> None:
        nodes = self._nodes(fault.role)
        self._dice.shuffle(nodes)
        for node in nodes:
            self._cluster.kill(node)
        self._launch_after(fault.seconds, nodes)

    def _stop(self, fault: Fault) -> None:
        nodes = self._nodes(fault.role)
        self._dice.shuffle(nodes)
        for node in nodes:
            self._cluster.stop(node)
        self._launch_after(fault.seconds, nodes)

    def _launch_after(self, seconds: float, nodes: list[Node]) -> None:
        time.sleep(seconds)
        for node in nodes:
            self._cluster.launch(node)
        self._cluster.wait_for_up(*nodes)

    def _pause(self, fault: Fault) -> None:
        with self._cluster.paused(*self._nodes(fault.role)):
            time.sleep(fault.seconds)

    def _fail_over(self, fault: Fault) -> None:
        cluster = self._cluster
        cluster.kill(cluster.master)
        cluster.fail_over()
        self._launch_after(fault.seconds, [cluster.slave])
        cluster.wait_for_slave()

    def _part(self, fault: Fault) -> None:
        ends = self._host(fault.role), self._host(fault.other)
        with self._cut(*ends, both=fault.kind is FaultKind.PARTITION):
            time.sleep(fault.seconds)

    def _flap(self, fault: Fault) -> None:
        """Partition and heal repeatedly; for a lossy link so fast that TCP just loses packets."""
        ends = self._host(fault.role), self._host(fault.other)
        times = FLAP_SECONDS if fault.kind is FaultKind.FLAPPING else LOSSY_SECONDS
        over = time.monotonic() + fault.seconds
        while time.monotonic() < over:
            with self._cut(*ends, both=True):
                time.sleep(self._dice.uniform(*times))
            time.sleep(self._dice.uniform(*times) * 2)

    @contextmanager
    def _cut(self, one: str, other: str, *, both: bool) -> Iterator[None]:
        net = self._cluster.network
        net.cut(one, other)
        try:
            if both:
                net.cut(other, one)
            yield
        finally:
            net.heal()

    def _slow_link(self, fault: Fault) -> None:
        net = self._cluster.network
        net.slow(self._host(fault.role), round(between(SLOW_BITS, fault.size)))
        try:
            time.sleep(fault.seconds)
        finally:
            net.heal()

    def _fill_disk(self, fault: Fault) -> None:
        (node,) = self._nodes(fault.role)
        with self._cluster.full_disk(node, round(fault.size * SPARE_BYTES_MAX)):
            time.sleep(fault.seconds)

    def _slow_disk(self, fault: Fault) -> None:
        (node,) = self._nodes(fault.role)
        delay = f"delay_enter={between(SLOW_FLUSH_US, fault.size):.0f}"
        with injected(node.process.pid, "fdatasync", delay, self._directory / "trace"):
            time.sleep(fault.seconds)

    def _fail_disk(self, fault: Fault) -> None:
        """Let flushes fail until the broker reports it; only a restart helps then."""
        (node,) = self._nodes(fault.role)
        cluster = self._cluster
        began = time.monotonic_ns()
        self._book.is_disk_failing = True
        with injected(node.process.pid, "fdatasync", "error=EIO", self._directory / "trace"):
            until(
                lambda: "failed write" in cluster.store_state(node),
                f"{node.name} to notice its failing disk",
                seconds=END_SECONDS_MAX,
            )
            self._book.history.append(DiskFailed(node.name, began, time.monotonic_ns()))
            time.sleep(fault.seconds)
        cluster.kill(node)
        self._launch_after(0.0, [node])
        self._book.is_disk_failing = False

    def _step_clock(self, fault: Fault) -> None:
        (node,) = self._nodes(fault.role)
        step(node.clock, node.ahead_seconds + (fault.size - 0.5) * 2 * STEP_SECONDS)
        time.sleep(fault.seconds)
        step(node.clock, node.ahead_seconds)

    def _cut_power(self, fault: Fault) -> None:
        """Cut the power of a broker, or of both at once."""
        nodes = [one for one in self._nodes(fault.role) if one not in self._cluster.namesrvs]
        self._cluster.cut_power(*nodes)
        self._launch_after(fault.seconds, nodes)

    def _come_to_rest(self, clients: list[Client]) -> None:
        """Stop the senders, decide all transactions, wait for delayed messages and the readers."""
        senders = [one for one in clients if isinstance(one, Sender | Deferrer)]
        for sender in senders:
            sender.stop()
        for sender in senders:
            sender.join(JOIN_SECONDS)
        if self._real is not None:
            self._real.rest()
        self._settle([one for one in senders if isinstance(one, Deferrer)])
        self._recover("the end of all faults")
        if self._real is not None and not self._variant.has_checks:
            with self._cluster.inside():
                master = self._cluster.master
                real_clients.let_check(master.port, master.address)
        self._wait_for_deferred()
        self._cluster.until_same()
        ends = [len(self._read(self._cluster.master, queue_id)) for queue_id in range(QUEUES)]
        readers = [one for one in clients if isinstance(one, Reader)]

        def is_read() -> bool:
            return all(one.queue_offset >= ends[one.queue_id] for one in readers)

        # The checker reports readers that don't reach the end.
        with suppress(AssertionError):
            until(is_read, "the readers to reach the end", seconds=END_SECONDS_MAX)
        if self._real is not None:
            self._book.history += self._real.come_to_end(self._cluster.servers())

    def _settle(self, deferrers: list[Deferrer]) -> None:
        """Send all outcomes again: an END gets no answer, and a failover may have lost some."""
        master = self._cluster.master
        for one in deferrers:
            for half in one.halves:
                with self._cluster.inside(), RawClient(master.port, host=master.address) as client:
                    answer = one.end(client, half)
                if answer.code != raw_remoting.SUCCESS and master.is_ours:
                    self._figures.wrong.append(f"couldn't end {half}: {answer}")

    def _wait_for_deferred(self) -> None:
        expected = {
            one.id
            for one in self._book.history
            if isinstance(one, Sent) and one.kind is Kind.DELAYED and one.status is Status.OK
        }

        def is_there() -> bool:
            there = {id_of(one.body) for one in self._read(self._cluster.master, DEFERRED_QUEUE)}
            return expected <= there

        # The checker reports missing messages.
        with suppress(AssertionError):
            # They are late by the skew of a new master whose clock is behind.
            seconds = END_SECONDS_MAX + self._variant.skew
            until(is_there, "the delayed messages", seconds=seconds, every_s=0.5)

    def _read(self, node: Node, queue_id: int, topic: str = TOPIC) -> list[raw_remoting.Record]:
        with self._cluster.inside():
            return raw_remoting.read_queue(node.port, topic, queue_id, host=node.address)

    def _compare(self) -> None:
        """Record the stored messages of both brokers; then stop them and verify their files."""
        cluster, history = self._cluster, self._book.history
        end = cluster.until_same()
        for queue_id in range(QUEUES):
            records = self._read(cluster.master, queue_id)
            if records != self._read(cluster.slave, queue_id):
                self._figures.wrong.append(f"queue {queue_id} differs on the slave")
            history += as_stored(records, TOPIC, queue_id)
        if self._real is not None:
            history += self._real.stored()
        for node in (cluster.slave, cluster.master):
            self._cluster.stop(node)
            log = log_bytes(node.process, end)
            history.append(Log(node.name, end, digest_of(log)))
            if node.is_ours:
                self._figures.wrong += verify(node.process.store).problems


def between(bounds: tuple[int, int], size: float) -> float:
    """Return the value between two bounds for a size from 0 to 1."""
    low, high = bounds
    return low + (high - low) * size


def run(
    directory: Path,
    seed: int,
    minutes: float,
    *,
    members: str | None = None,
    has_real: bool = True,
    keep: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Figures:
    """Run one seed; after a failure the history is saved to `keep`.

    The seed chooses `members` unless given; `has_real` says whether RocketMQ's own clients work
    next to the raw ones.
    """
    chosen = variant(seed, members, has_real=has_real)
    figures = Figures(seed, chosen)
    say(str(chosen))
    book, is_over = Book(), False
    disk_mib = DISK_MIB + round(DISK_MIB_A_MINUTE * minutes)
    programs = real_clients.build(directory / "programs") if chosen.has_real else None
    began = time.monotonic()
    with Network(HOSTS) as net:
        cluster = Cluster(directory, net, book, chosen, disk_mib=disk_mib)
        try:
            with cluster, ExitStack() as stack:
                real = None
                if programs is not None:
                    real = stack.enter_context(_real_clients(programs, cluster, directory, seed))
                one = _Run(cluster, figures, directory, real)
                one.work(schedule(seed, 60 * minutes, chosen.targets), say)
                is_over = True
        except (AssertionError, OSError) as error:
            # The reason comes last, because reports of a failed run often keep only its end.
            figures.wrong.append(f"{cluster.words()}\n{error!r}")
    figures.seconds = time.monotonic() - began
    figures.codes = book.codes
    # An aborted run has no final state to compare.
    if is_over:
        figures.report = checker.check(book.history)
    if keep is not None and not figures.is_right:
        keep.mkdir(parents=True, exist_ok=True)
        file = keep / f"chaos-{seed}.jsonl"
        operations.write(file, book.history)
        say(f"history saved to {file}")
    return figures


def _real_clients(programs: Programs, cluster: Cluster, directory: Path, seed: int) -> RealClients:
    """Return RocketMQ's own clients, running on the clients' host."""

    def read(topic: str, queue_id: int) -> list[raw_remoting.Record]:
        master = cluster.master
        with cluster.inside():
            return raw_remoting.read_queue(master.port, topic, queue_id, host=master.address)

    prefix = cluster.network.prefix(CLIENTS)
    where = (programs, directory, cluster.namesrv_addresses)
    return RealClients(*where, read, prefix, seed=seed)
