"""World: one seed's brokers, disks, network, clients and faults, and the resulting failures."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import random
import sys
import warnings
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, TypeVar
from unittest import mock

import msgspec

from broker_core.errors import RemotingError
from broker_core.formats.cq_unit import UNIT_SIZE
from broker_core.store import bulk_scan, flush, message_store, recovery
from tests.support.pair import assert_same_logs, queue_units
from tools.faults.checker import check
from tools.faults.inline import LoopFlushThread
from tools.faults.operations import (
    Cause,
    Delivered,
    DiskFailed,
    Happened,
    Sent,
    Started,
    Status,
    Stored,
    digest_of,
)
from tools.faults.simulation import groups, plan as plans
from tools.faults.simulation.client import (
    TOPICS,
    Client,
    Consumer,
    Notes,
    Producer,
    id_of,
    read_all,
)
from tools.faults.simulation.copies import Copies
from tools.faults.simulation.host import HA_PORT, NAMESRV_PORT, STORE, Host
from tools.faults.simulation.liar import Liar
from tools.faults.simulation.loop import InlineExecutor, SimulatedLoop
from tools.faults.simulation.network import Network
from tools.faults.simulation.node import HostClock, Process
from tools.faults.simulation.plan import MASTER, SLAVE, Event, Fault, Plan
from tools.faults.store_comparison import check_files, read_everything

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from broker_core.broker import Broker
    from tools.faults.operations import Operation

Mixed = TypeVar("Mixed", groups.MixedProducer, groups.Prober, groups.Member)
CLIENTS = "10.0.0.9"
GROUPS = (groups.ALL, groups.TAGGED, groups.SELECTED)
IN_FLIGHT_S = 0.2
"""Data that a dead process has sent arrives within this time."""
CODE_SIZE = 8
CHUNK_BYTES = 16 * 1024
QUIET_S = 6.0
"""After healing, everything is sent, replicated and read within this time."""
DELAYED_S = 4.0
"""Extra time for deferred messages."""
READ_TRIES = 10
END_S = 60.0
CAUGHT_UP_S = 60
STOP_S = 30


@dataclass
class Outcome:
    """A run's results.

    Attributes:
        digest: of the trace: of everything that arrived, began and ended, with its time.
        seconds: simulated time.
    """

    seed: int
    plan: Plan
    digest: str = ""
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    acknowledged: int = 0
    delivered: int = 0
    crashes: int = 0
    codes: dict[int, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)


class World:
    """One seed's world; call `run` once."""

    def __init__(self, seed: int, *, is_mixed: bool = False, keeps_trace: bool = False) -> None:
        draw = plans.mixed if is_mixed else plans.drawn
        self.plan = draw(plans.dice_of(seed))
        self.loop = SimulatedLoop(Random(f"disk {seed}"))  # type: ignore[abstract]
        self._outcome = Outcome(seed, self.plan)
        self._seed = seed
        self._trace = hashlib.blake2b(digest_size=16)
        self._keeps_trace = keeps_trace
        self._network = Network(self.loop, Random(f"network {seed}"), self.log_event)
        self._notes = Notes(self.loop.time)
        self._dice = Random(f"clients {seed}")
        self._clients = Process(CLIENTS)
        self._clock = HostClock(self.loop)
        self._lost_to: list[tuple[float, int]] = []
        """Crashes that may lose acknowledged messages: their times, and the first lost log offset.
        """
        self.master = self._host(MASTER)
        self.slave = self._host(SLAVE) if self.plan.has_slave else None
        self._liar: Liar | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def log_event(self, what: str) -> None:
        """Add to the trace."""
        line = f"{self.loop.now:.9f} {what}"
        self._trace.update(line.encode() + b"\n")
        if self._keeps_trace:
            self._outcome.trace.append(line)

    def run(self) -> Outcome:
        """Run to the end."""
        brokers_dice = random.getstate()
        random.seed(self._seed)
        was_collecting = gc.isenabled()
        gc.disable()
        errors = _Errors(self._outcome.wrong)
        try:
            with ExitStack() as stack:
                for module in (message_store, flush, recovery, bulk_scan):
                    stack.enter_context(
                        mock.patch.object(module, "ThreadPoolExecutor", InlineExecutor)
                    )
                stack.enter_context(mock.patch.object(flush, "FlushThread", LoopFlushThread))
                # A store of 64 KiB needs no buffers of megabytes.
                stack.enter_context(mock.patch.object(bulk_scan, "CHUNK_BYTES", CHUNK_BYTES))
                for place in ("broker_core.remoting.server", "broker_core.ha.master"):
                    stack.enter_context(mock.patch(f"{place}.listen", self._network.listen))
                if self.slave is not None:
                    copies = Copies(self.slave, self.plan.ack_mode, self._notes)
                    stack.enter_context(copies.watched())
                    if self.plan.has_liar:
                        self._liar = self._made_liar(copies)
                stack.enter_context(errors)
                self.loop.set_exception_handler(errors.unhandled)
                self.loop.run_until_complete(self._run())
        finally:
            self._abandon()
            random.setstate(brokers_dice)
            if was_collecting:
                gc.enable()
        self._outcome.digest = self._trace.hexdigest()
        self._outcome.seconds = self.loop.now
        return self._outcome

    def _host(self, name: str) -> Host:
        plan = self.plan
        role = "ASYNC_MASTER" if plan.role == "ALONE" else plan.role
        keys: dict[str, object] = {
            "flushDiskType": "SYNC_FLUSH" if plan.is_sync else "ASYNC_FLUSH",
            "transientStorePoolEnable": str(plan.is_pooled).lower(),
            "enableConsumeQueueExt": str(plan.is_extended).lower(),
            "enabledAppendPropCRC": str(plan.is_guarded).lower(),
            "haAckMode": plan.ack_mode,
            # A slave that begins at the last file lacks earlier data.
            "syncFromLastFile": "false",
            "brokerRole": role,
        }
        if plan.is_mixed:
            keys["enablePropertyFilter"] = "true"
        if name == SLAVE:
            keys |= {
                "brokerRole": "SLAVE",
                "brokerId": 1,
                "haMasterAddress": f"{MASTER}:{HA_PORT}",
                "namesrvAddr": f"{MASTER}:{NAMESRV_PORT}",
                "embeddedNamesrv": "false",
            }
        return Host(
            name,
            self.loop,
            self._network,
            keys,
            self.log_event,
            self._crashed,
            is_native=plan.is_native,
        )

    def _made_liar(self, copies: Copies) -> Liar:
        dice = Random(f"liar {self._seed}")
        return Liar(self.loop, self.master, dice, self.log_event, lambda: copies.reported)

    def _crashed(self, host: Host, safe_to: int) -> None:
        self._outcome.crashes += 1
        self._notes.operations.append(Happened(cause=Cause.CRASH, at=self._notes.now_ns()))
        if host is self.master:
            self._lost_to.append((self.loop.now + IN_FLIGHT_S, safe_to))

    async def _run(self) -> None:
        plan = self.plan
        self.master.on_start = self._note_start
        self.master.start()
        if self.slave is not None:
            self.slave.start()
        makers: list[Client] = [
            Producer(
                f"p{number}",
                self.master.address,
                self._clock,
                self._notes,
                Random(f"producer {self._seed} {number}"),
                delays=plan.delays,
            )
            for number in range(plan.producers)
        ]
        reader = Consumer(
            "c", self.master.address, self._clock, self._notes, Random(f"consumer {self._seed}")
        )
        members: list[Client] = []
        if plan.is_mixed:
            makers += self._mixed_producers()
            members += [self._mixed(groups.Member, name) for name in GROUPS]
        for one in (*makers, reader, *members):
            self._spawn(one.run())  # type: ignore[attr-defined]
        if self._liar is not None:
            self._spawn(self._liar.run(), self._liar.process)
        for event in plan.events:
            self.loop.call_at(event.at, self._happen, event)
        await asyncio.sleep(plan.duration)
        if plan.is_master_lost:
            await self._read_the_slave(makers, reader)
        else:
            await self._read_the_master(makers, [reader, *members])

    def _mixed_producers(self) -> list[Client]:
        """Return the producers of transactions, and the probers of a slave."""
        found: list[Client] = [self._mixed(groups.MixedProducer, "m")]
        if self.slave is not None:
            found.append(self._mixed(groups.Prober, "prober", self.slave))
        return found

    def _mixed(self, kind: type[Mixed], name: str, host: Host | None = None) -> Mixed:
        dice = Random(f"{name} {self._seed}")
        address = (host or self.master).address
        return kind(name, address, self._clock, self._notes, dice)

    def _spawn(
        self, coroutine: Coroutine[object, object, None], process: Process | None = None
    ) -> None:
        def spawn() -> None:
            self._tasks.append(self.loop.create_task(coroutine))

        (process or self._clients).run(spawn)

    def _happen(self, event: Event) -> None:
        host = self.slave if event.host == SLAVE else self.master
        assert host is not None
        self.log_event(f"fault {event.fault} {event.host}")
        match event.fault:
            case Fault.KILL | Fault.CUT:
                if not host.process.is_alive:
                    return

                def crash() -> None:
                    if event.fault is Fault.KILL:
                        host.kill()
                    else:
                        host.cut_power(event.call, event.kept)
                    self.loop.later(event.duration, host.start)

                if event.call:
                    host.at_call(event.call, crash)
                else:
                    crash()
            case Fault.STOP:
                host.stop()
            case Fault.PART:
                self._network.part(MASTER, SLAVE)
                self.loop.later(event.duration * 6, self._network.heal)
            case Fault.BREAK:
                self._network.break_one()
            case Fault.STEP:
                host.clock.ahead_ms += (-1) ** event.call * plans.WALL_STEP_MS
            case Fault.DISK:
                host.is_disk_failing = True
                host.storage.fail("fdatasync", nth=event.call + 1)
                host.storage.on_failure = lambda _: self._note_failed_disk(host)
                self.loop.later(event.duration, host.kill)
                self.loop.later(event.duration * 2, host.start)

    def _note_start(self, host: Host) -> None:
        self._notes.operations.append(Started(host.address, self._notes.now_ns()))

    def _note_failed_disk(self, host: Host) -> None:
        host.storage.on_failure = None
        now = self._notes.now_ns()
        self._notes.operations.append(DiskFailed(host.address, now, now))

    async def _read_the_master(self, makers: list[Client], readers: list[Client]) -> None:
        self._network.heal()
        for host in self._hosts():
            host.storage.on_call = None
            host.storage.heal("fdatasync")
            if host.is_disk_failing:
                # Until then it acknowledges nothing and shows only flushed data.
                host.is_disk_failing = False
                host.kill()
            if not host.process.is_alive:
                host.start()
        await asyncio.sleep(1.0)
        for one in makers:
            one.is_over = True
        await asyncio.sleep(QUIET_S + (DELAYED_S if self.plan.delays else 0))
        for reader in readers:
            reader.is_over = True
        stored = await self._read(self.master)
        await self._compare_stores()
        self._end_liar()
        self._judge(self._promised(stored), stored)
        for host in self._hosts():
            await self._stop(host)

    async def _read_the_slave(self, makers: list[Client], reader: Client) -> None:
        """Lose the master permanently: its slave has all acknowledged messages."""
        for one in (*makers, reader):
            one.is_over = True
        self._end_liar()
        assert self.slave is not None
        self.master.is_gone = True
        self._network.part(MASTER, SLAVE)
        # Acknowledgements of a dead process are still in flight.
        self.master.cut_power(0, 0.0)
        self.slave.storage.on_call = None
        self.slave.storage.heal("fdatasync")
        await asyncio.sleep(6.0)
        if not self.slave.process.is_alive:
            self.slave.start()
        await asyncio.sleep(6.0)
        broker = self.slave.broker
        assert broker is not None, "the slave started without its master"
        store = broker.storage.store
        end = store.max_commit_log_offset
        stored = [
            Stored(
                id=id_of(body),
                digest=digest_of(body),
                topic=topic,
                queue_id=queue_id,
                queue_offset=queue_offset,
            )
            for (topic, queue_id, queue_offset, _), body in read_everything(store).items()
            if topic in TOPICS
        ]
        self._lost_to = [
            (when, safe_to) for when, safe_to in self._lost_to if when < self.plan.duration
        ]
        self._judge(self._promised(stored, reads_to=end), stored)

    def _end_liar(self) -> None:
        if self._liar is not None:
            self._outcome.wrong += self._liar.wrong
            self._liar.process.is_alive = False
            self._network.close_of(self._liar.process)

    async def _read(self, host: Host) -> list[Stored]:
        client = Client("drain", host.address, self._clock, self._notes, self._dice)
        found: list[Stored] = []

        async def read() -> None:
            error: RemotingError | None = None
            for _ in range(READ_TRIES):
                try:
                    mixed = groups.TOPICS if self.plan.is_mixed else ()
                    found.extend(await read_all(client, (*TOPICS, *mixed)))
                except RemotingError as failed:
                    # It may be restarting.
                    error = failed
                    await asyncio.sleep(1.0)
                else:
                    return
            self._outcome.wrong.append(f"couldn't read {host.name}: {error}")

        self._spawn(read())
        task = self._tasks[-1]
        with suppress(TimeoutError):
            await asyncio.wait_for(task, END_S)
        return found

    def _hosts(self) -> list[Host]:
        return [self.master] if self.slave is None else [self.master, self.slave]

    def _promised(self, stored: list[Stored], reads_to: int | None = None) -> list[Operation]:
        """Return the history without messages that a crash was allowed to lose."""
        operations: list[Operation | None] = list(self._notes.operations)
        there = {(one.topic, one.queue_id, one.queue_offset, one.id) for one in stored}
        promised = {
            one.id for one in operations if isinstance(one, Sent) and one.status is Status.OK
        }
        for answered in self._notes.answered:
            one = operations[answered.number]
            is_lost = any(
                answered.at <= when and answered.commit_log_offset >= safe_to
                for when, safe_to in self._lost_to
            )
            if isinstance(one, Sent) and is_lost and not self.plan.is_sync:
                operations[answered.number] = msgspec.structs.replace(one, status=Status.MAYBE)
            elif (
                isinstance(one, Delivered)
                and (one.topic, one.queue_id, one.queue_offset, one.id) not in there
            ):
                # Messages that no slave had acknowledged may have been read from the lost master.
                is_behind = reads_to is not None and (
                    answered.commit_log_offset >= reads_to or one.id not in promised
                )
                if is_behind or (is_lost and not self.plan.is_sync):
                    operations[answered.number] = None
        return [one for one in operations if one is not None]

    def _judge(self, history: list[Operation], stored: list[Stored]) -> None:
        for task in self._tasks:
            if task.done() and (error := task.exception()) is not None:
                raise error
        report = check([*history, *stored])
        self._outcome.acknowledged = report.acknowledged
        self._outcome.delivered = report.delivered
        self._outcome.codes = self._notes.codes
        for host in self._hosts():
            self._outcome.wrong += host.wrong
        for finding in report.findings:
            if not self._is_allowed(finding.invariant, finding.text):
                self._outcome.wrong.append(str(finding))

    def _is_allowed(self, invariant: str, text: str) -> bool:
        """Whether the faults of this run explain a finding."""
        if self.plan.is_master_lost and invariant == "I15" and "never delivered" in text:
            # There are no readers left; losing a master while it stops doesn't count as a crash.
            return True
        if not self._outcome.crashes:
            return False
        if invariant == "I7":
            # A power cut may lose the middle of unflushed data; the offsets stay.
            return "lacks" in text and any(one.fault is Fault.CUT for one in self.plan.events)
        # A kill between the delivery of a deferred message and its record repeats it.
        return self.plan.delays and invariant in {"I2", "I15"} and "late/" in text

    async def _compare_stores(self) -> None:
        if self.slave is None:
            return
        for _ in range(CAUGHT_UP_S):
            if self._is_caught_up(self.slave):
                break
            await asyncio.sleep(1.0)
        master, slave = self.master.broker, self.slave.broker
        if master is None or slave is None:
            self._outcome.wrong.append("a broker isn't running at the end")
            return
        if not all(safe_to for _, safe_to in self._lost_to):
            # If a master may have lost its whole log, a slave may lack all its records; it follows
            # no master until its operator has chosen a log.
            return
        if any(one.storage.store.files.quarantine.ranges for one in (master, slave)):
            # Data lost in the middle of one log by a power cut is still in the other.
            return
        try:
            assert_same_logs(master, slave)
            assert self._units(master) == self._units(slave)
        except AssertionError:
            self._outcome.wrong.append("I25: logs or queues of master and slave differ")

    def _units(self, broker: Broker) -> dict[tuple[str, int], list[bytes]]:
        """Return the units, if any; extension addresses differ between brokers."""
        length = UNIT_SIZE - CODE_SIZE if self.plan.is_extended else UNIT_SIZE
        return {
            place: [units[at : at + length] for at in range(0, len(units), UNIT_SIZE)]
            for place, units in queue_units(broker).items()
            # A queue whose messages are lost stays, empty, at the same offset.
            if units
        }

    def _is_caught_up(self, slave: Host) -> bool:
        if self.master.broker is None or slave.broker is None:
            return False
        there, here = self.master.broker.storage.store, slave.broker.storage.store
        return (
            here.max_commit_log_offset == there.max_commit_log_offset
            and not here.dispatch_behind_bytes
        )

    async def _stop(self, host: Host) -> None:
        host.is_gone = True
        host.stop()
        for _ in range(STOP_S):
            if not host.process.is_alive:
                break
            await asyncio.sleep(1.0)
        if host.process.is_alive:
            self._outcome.wrong.append(f"{host.name} didn't stop")
        # Cuts leave damage, and clock steps between two processes leave records with falling times.
        elif self._seed % 10 == 0 and not {Fault.CUT, Fault.STEP}.intersection(
            event.fault for event in self.plan.events
        ):
            try:
                check_files(host.storage, str(STORE))
            except AssertionError as error:
                self._outcome.wrong.append(f"files of {host.name}: {str(error)[:300]}")

    def _abandon(self) -> None:
        """Drop everything, so that nothing of this run ends during the next.

        Unfinished work of dead processes may end in any way.
        """
        complain, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for host in self._hosts():
                    host.forget()
                self._clients.is_alive = False
                if self._liar is not None:
                    self._liar.process.is_alive = False
                self._tasks.clear()
                self.loop.forget()
        finally:
            sys.unraisablehook = complain


class _Errors(logging.Handler):
    """Counts the broker's logged tracebacks as failures."""

    def __init__(self, wrong: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._wrong = wrong
        self._level = logging.NOTSET

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            self._wrong.append(f"I32: {record.getMessage()}: {type(error).__name__}: {error}")

    def unhandled(self, loop: object, context: dict[str, object]) -> None:
        self._wrong.append(f"I32: {context.get('message')}: {context.get('exception')!r}")

    def __enter__(self) -> _Errors:
        root = logging.getLogger("broker_core")
        self._level = root.level
        root.setLevel(logging.ERROR)
        root.addHandler(self)
        root.propagate, self._propagated = False, root.propagate
        return self

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger("broker_core")
        root.removeHandler(self)
        root.setLevel(self._level)
        root.propagate = self._propagated


def run(seed: int, *, is_mixed: bool = False, keeps_trace: bool = False) -> Outcome:
    """Run a seed."""
    return World(seed, is_mixed=is_mixed, keeps_trace=keeps_trace).run()
