"""Power cuts: a separate ext4 file system loses everything that wasn't flushed.

The shutdown ioctl of ext4 stops a mounted file system as a power cut would: the page cache and the
open journal are lost. Needs root and loop devices.

Only messages acknowledged before the ioctl count. No machine acknowledges after a power cut; here
the writer lives on for a moment, and the kernel may report success for a flush during the ioctl,
although the journal that would have made its blocks readable is lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from broker_core.verify.verifier import verify
from tests.support import raw_remoting
from tests.support.waiting import until
from tools.faults import checker, real_clients, tested_brokers
from tools.faults.broker_kill import (
    ACKNOWLEDGED_MIN,
    JOIN_SECONDS,
    Findings as OfKills,
    NotStartedError,
    Prober,
    Reader,
    Sender,
)
from tools.faults.kill import ROOT, Findings as Killed, check
from tools.faults.operations import NEVER, Cause, Happened, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tools.faults.operations import Operation, Stored
    from tools.faults.real_clients import Programs, RealClients

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = (2).to_bytes(4, "little")
IMAGE_BYTES = 192 << 20
CUT_AFTER_SECONDS = (0.05, 0.4)
CUTS_OF_A_STORE = 20
SERVICE_NOT_AVAILABLE = 14
PROBED = "probed"
"""A separate topic, so that the first sender after a start creates no other one."""


@dataclass
class OfStore(Killed):
    """The results of all cuts of a process that is only a store."""

    @property
    def more(self) -> str:
        return f"stored={self.stored}"


@dataclass
class OfBroker(OfKills):
    """The results of all cuts of a broker.

    Attributes:
        not_served: topics that answered TOPIC_NOT_EXIST after the start, until a send; their
            messages
            don't count as lost.
    """

    not_served: int = 0

    @property
    def more(self) -> str:
        return f"{super().more} topics_not_served={self.not_served}"


def missing() -> str:
    """Return the missing prerequisites for power cuts, or an empty string."""
    if os.geteuid() != 0:
        return "root"
    if not Path("/dev/loop-control").exists():
        return "loop devices"
    if shutil.which("mkfs.ext4") is None:
        return "mkfs.ext4 (apt-get install e2fsprogs)"
    free = subprocess.run(["losetup", "--find"], capture_output=True, check=False)
    return "" if free.returncode == 0 else "a free loop device"


@contextlib.contextmanager
def mounted(image: Path, place: Path) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    try:
        yield
    except BaseException:
        # Frames of the traceback keep the file system busy until the process ends.
        subprocess.run(["umount", "--lazy", str(place)], check=False)
        raise
    # A mapping keeps the file system busy until its last reference is gone.
    gc.collect()
    subprocess.run(["umount", str(place)], check=True)


@contextlib.contextmanager
def file_system(directory: Path) -> Iterator[tuple[Path, Path]]:
    """Create an image of an empty file system and a mount point; leave no loop device behind.

    The mount point is shared among mount namespaces. Otherwise a process that creates one
    meanwhile, such as `ip netns exec`, keeps a file system without power alive, and the next mount
    gets that one.
    """
    image, place = directory / "image", directory / "mounted"
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", str(directory), str(directory)], check=True)
    subprocess.run(["mount", "--make-shared", str(directory)], check=True)
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    try:
        yield image, place
    finally:
        command = ["losetup", "--noheadings", "--output", "NAME", "--associated", str(image)]
        left = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        for device in left:
            subprocess.run(["losetup", "--detach", device], check=False)
        image.unlink()
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def run(
    directory: Path, cuts: int, dice: Random, *, say: Callable[[str], None] = lambda text: None
) -> OfStore:
    """Put in SYNC_FLUSH and cut the power, repeatedly; a file system gets a few cuts."""
    findings = OfStore()
    stored = 0
    while findings.cycles < cuts and not findings.wrong:
        with file_system(directory) as (image, place):
            _cut_a_store(image, place, min(CUTS_OF_A_STORE, cuts - findings.cycles), dice, findings)
        # Per file system, because a check counts from zero.
        stored += findings.stored
        findings.stored = stored
        say(f"store {findings}")
    return findings


def _cut_a_store(image: Path, place: Path, cuts: int, dice: Random, findings: OfStore) -> None:
    promised: dict[tuple[int, int], int] = {}
    number = 0
    for _ in range(cuts):
        with mounted(image, place):
            for line in _until_cut(place, number, dice):
                acknowledged, queue_id, queue_offset = map(int, line.split())
                promised[queue_id, queue_offset] = acknowledged
                findings.acknowledged += 1
        with mounted(image, place):
            number = check(place / "store", "SYNC_FLUSH", promised, findings)
        findings.cycles += 1
        if findings.wrong:
            break


def run_broker(
    directory: Path,
    cuts: int,
    dice: Random,
    *,
    kind: str = tested_brokers.OURS,
    programs: Programs | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> OfBroker:
    """Send to a broker in SYNC_FLUSH, cut the power, pull every acknowledged message at once.

    Each cycle sends to a new topic, which isn't created again after the cut. A file system gets a
    few cuts and is checked then. With `programs`, RocketMQ's own clients work all the time.
    """
    findings = OfBroker()
    while findings.cycles < cuts and not findings.wrong:
        with file_system(directory) as (image, place):
            of_broker = directory / f"broker-{findings.cycles}"
            one = _Cut(of_broker, place, kind, dice, findings, programs)
            try:
                for number in range(min(CUTS_OF_A_STORE, cuts - findings.cycles)):
                    findings.cycles += 1
                    one.cycle(image, f"cut-{number}", is_first=number == 0)
                    if findings.wrong:
                        break
                with mounted(image, place):
                    one.finish()
            except NotStartedError:
                if kind == tested_brokers.OURS:
                    raise
                findings.not_started += 1
            finally:
                one.end()
        say(f"{kind} {findings}")
    return findings


class _Cut:
    """A broker on a file system that repeatedly loses power."""

    def __init__(
        self,
        directory: Path,
        place: Path,
        kind: str,
        dice: Random,
        findings: OfBroker,
        programs: Programs | None,
    ) -> None:
        self._place = place
        self._kind = kind
        self._dice = dice
        self._findings = findings
        store = place / "store"
        keys: dict[str, object] = {"storePathRootDir": store, "flushDiskType": "SYNC_FLUSH"}
        keys |= {} if programs is None else real_clients.KEYS
        self._programs = programs
        self._real: RealClients | None = None
        self._processes = contextlib.ExitStack()
        self._powerless: list[tuple[int, int]] = []
        """From each cut to the end of the process; answers in between aren't guaranteed."""
        self._broker = tested_brokers.broker(kind, directory, **keys)
        self._prober = Prober(self._broker, PROBED)
        self._history: list[Operation] = []
        self._topics = [PROBED]
        self._read_to: dict[str, int] = {}

    def cycle(self, image: Path, topic: str, *, is_first: bool) -> None:
        try:
            with mounted(image, self._place):
                if is_first:
                    self._broker.start()
                    raw_remoting.create_topic(self._broker.port, PROBED, queues=1)
                    self._start_real_clients()
                else:
                    self._prober.start()
                self._send_until_cut(topic)
            with mounted(image, self._place):
                self._findings.recovered.append(self._prober.start())
                self._look_for(topic)
                self._stop()
        finally:
            self._broker.kill()

    def finish(self) -> None:
        """Read all topics, and check the history of all clients."""
        try:
            self._prober.start()
            stored = [one for each in self._topics for one in self._stored(each)]
            history = [*self._history, *self._prober.history, *stored, *self._of_real_clients()]
            self._findings.judge(self._kind, checker.check(history))
            self._stop()
            if self._kind == tested_brokers.OURS:
                self._findings.wrong += verify(self._place / "store").problems
        finally:
            self._broker.kill()

    def end(self) -> None:
        self._processes.close()

    def _start_real_clients(self) -> None:
        if self._programs is not None:
            where = (self._broker.directory, self._broker.namesrv)
            real = real_clients.beside(self._programs, *where, lambda: self._broker.port)
            self._real = self._processes.enter_context(real)
            self._real.until_working()

    def _of_real_clients(self) -> list[Operation]:
        """Return the finished history of RocketMQ's own clients, and the stored messages."""
        if self._real is None:
            return []
        self._real.rest()
        history = self._real.come_to_end()
        stored = self._real.stored()
        for since, until_ns in self._powerless:
            history = real_clients.doubted(history, stored, since, until_ns)
        return [*history, *stored]

    def _send_until_cut(self, topic: str) -> None:
        """Load a new topic until the power fails; drop later answers and reads."""
        port = self._broker.port
        raw_remoting.create_topic(port, topic, queues=1)
        self._topics.append(topic)
        sender = Sender(port, topic, 0, topic=topic)
        reader = Reader(port, topic, 0, 0, topic=topic)
        for client in (sender, reader):
            client.start()
        until(lambda: len(sender.acknowledged) >= ACKNOWLEDGED_MIN, "sends to be acknowledged")
        time.sleep(self._dice.uniform(*CUT_AFTER_SECONDS))
        cut_at = time.monotonic_ns()
        cut_power(self._place)
        self._broker.kill()
        for client in (sender, reader):
            client.join(JOIN_SECONDS)
        self._powerless.append((cut_at, time.monotonic_ns()))
        self._history.append(Happened(Cause.CRASH, time.monotonic_ns()))
        self._history += [
            one if one.returned < cut_at else replace(one, returned=NEVER, status=Status.MAYBE)
            for one in sender.history
        ]
        seen = [one for one in reader.history if one.at < cut_at]
        self._history += seen
        self._read_to[topic] = seen[-1].queue_offset + 1 if seen else 0
        if self._kind == tested_brokers.OURS:
            # A flush that fails during the power cut guarantees nothing.
            refused = [one for one in sender.refused if one.code != SERVICE_NOT_AVAILABLE]
            self._findings.wrong += [f"refused: {answer}" for answer in refused]

    def _look_for(self, topic: str) -> None:
        """Check whether a topic is served; if not, create it again."""
        if tested_brokers.is_served(self._broker.port, topic):
            return
        self._findings.not_served += 1
        if self._kind == tested_brokers.OURS:
            self._findings.wrong.append(f"{topic} is not served after the cut")
        raw_remoting.create_topic(self._broker.port, topic, queues=1)

    def _stored(self, topic: str) -> list[Stored]:
        """Return a topic's stored messages, and let its group read to the end."""
        self._look_for(topic)
        found = tested_brokers.stored(self._broker.port, topic, 1)
        reader = Reader(
            self._broker.port, f"{topic}-end", 0, self._read_to.get(topic, 0), topic=topic
        )
        reader.read(to_end=True)
        self._history += reader.history
        return found

    def _stop(self) -> None:
        if self._broker.stop() != 0 and self._kind == tested_brokers.OURS:
            self._findings.wrong.append("the broker didn't stop by itself")


def cut_power(place: Path) -> None:
    fd = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH)
    finally:
        os.close(fd)


def _until_cut(place: Path, number: int, dice: Random) -> list[str]:
    command = [sys.executable, "-m", "tools.faults.writer", str(place / "store"), "SYNC_FLUSH"]
    with subprocess.Popen(
        [*command, str(number)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as writer:
        assert writer.stdout is not None
        output = writer.stdout.readline()
        time.sleep(dice.uniform(*CUT_AFTER_SECONDS))
        os.set_blocking(writer.stdout.fileno(), False)
        output += writer.stdout.read() or b""
        cut_power(place)
        writer.kill()
    return output.decode().split("\n")[:-1]
