"""Power cuts: an ext4 file system of its own forgets everything that was not flushed.

The shutdown ioctl of ext4 stops a mounted file system as a power cut would: the page cache and the
open journal are gone. Needs root and loop devices.

What counts is what was acknowledged before the ioctl. No machine acknowledges after a power cut;
here the writer lives on for a moment, and the kernel may answer a flush that the ioctl overtakes
with success, although the journal that would have made its blocks readable is gone.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.broker_kill import Sender
from tests.faults.kill import ROOT, Findings as Killed, check
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = (2).to_bytes(4, "little")
IMAGE_BYTES = 192 << 20
CUT_AFTER_SECONDS = (0.05, 0.4)
SERVICE_NOT_AVAILABLE = 14


@dataclass
class Findings:
    """The results of all cuts."""

    cuts: int = 0
    acknowledged: int = 0
    stored: int = 0
    wrong: list[str] = field(default_factory=list)


def missing() -> str:
    """Return what this machine lacks for power cuts, nothing if they are possible."""
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
        # Frames of the traceback hold the file system; they go with the process.
        subprocess.run(["umount", "--lazy", str(place)], check=False)
        raise
    # A mapping keeps the file system busy until its last reference goes.
    gc.collect()
    subprocess.run(["umount", str(place)], check=True)


@contextlib.contextmanager
def file_system(directory: Path) -> Iterator[tuple[Path, Path]]:
    """Make an image of an empty file system and a mount point; leave no loop device behind."""
    image, place = directory / "image", directory / "mounted"
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


def run(directory: Path, cuts: int, dice: Random) -> Findings:
    """Put in SYNC_FLUSH and cut the power, again and again, on one file system."""
    findings = Findings()
    promised: dict[tuple[int, int], int] = {}
    number = 0
    with file_system(directory) as (image, place):
        for _ in range(cuts):
            with mounted(image, place):
                for line in _until_cut(place, number, dice):
                    acknowledged, queue_id, queue_offset = map(int, line.split())
                    promised[queue_id, queue_offset] = acknowledged
                    findings.acknowledged += 1
            with mounted(image, place):
                seen = Killed()
                number = check(place / "store", "SYNC_FLUSH", promised, seen)
                findings.stored = seen.stored
                findings.wrong += seen.wrong
            findings.cuts += 1
            if findings.wrong:
                break
    return findings


def run_broker(directory: Path, cuts: int, dice: Random) -> Findings:
    """Send to a broker in SYNC_FLUSH, cut the power, pull every acknowledged message at once.

    Each cycle sends to a new topic, which nobody makes again after the cut.
    """
    findings = Findings()
    promised: dict[str, dict[int, bytes]] = {}
    with file_system(directory) as (image, place):
        broker = BrokerProcess(
            directory / "broker",
            storePathRootDir=place / "store",
            flushDiskType="SYNC_FLUSH",
            mappedFileSizeCommitLog=4 << 20,
            maxHashSlotNum=1_000,
            maxIndexNum=20_000,
        )
        for cut in range(cuts):
            topic = f"cut-{cut}"
            try:
                with mounted(image, place):
                    broker.start()
                    promised[topic] = _send_until_cut(broker, place, topic, dice, findings)
                with mounted(image, place):
                    broker.start()
                    for known, acknowledged in promised.items():
                        _compare(broker.port, known, acknowledged, findings)
                    if broker.stop() != 0:
                        findings.wrong.append("the broker did not stop by itself")
            finally:
                broker.kill()
            findings.cuts += 1
            if findings.wrong:
                break
    return findings


def _send_until_cut(
    broker: BrokerProcess, place: Path, topic: str, dice: Random, findings: Findings
) -> dict[int, bytes]:
    """Return the acknowledged messages by their promised queue_offsets."""
    raw_remoting.create_topic(broker.port, topic, queues=1)
    sender = Sender(broker.port, topic, 0, topic=topic)
    sender.start()
    time.sleep(dice.uniform(*CUT_AFTER_SECONDS))
    acknowledged = dict(sender.acknowledged)
    cut_power(place)
    broker.kill()
    sender.join(30)
    # A flush that fails as the power goes promises nothing.
    refused = [one for one in sender.refused if one.code != SERVICE_NOT_AVAILABLE]
    findings.wrong += [f"refused: {answer}" for answer in refused]
    findings.acknowledged += len(acknowledged)
    return acknowledged


def _compare(port: int, topic: str, acknowledged: dict[int, bytes], findings: Findings) -> None:
    stored = raw_remoting.read_queue(port, topic, 0)
    findings.stored += len(stored)
    if [one.queue_offset for one in stored] != list(range(len(stored))):
        findings.wrong.append(f"{topic} has gaps")
    for queue_offset, body in acknowledged.items():
        if queue_offset >= len(stored) or stored[queue_offset].body != body:
            findings.wrong.append(f"{body[:40]!r} is not at {topic}/{queue_offset}")


def cut_power(place: Path) -> None:
    fd = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH)
    finally:
        os.close(fd)


def _until_cut(place: Path, number: int, dice: Random) -> list[str]:
    command = [sys.executable, "-m", "tests.faults.writer", str(place / "store"), "SYNC_FLUSH"]
    with subprocess.Popen(
        [*command, str(number)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as writer:
        assert writer.stdout is not None
        said = writer.stdout.readline()
        time.sleep(dice.uniform(*CUT_AFTER_SECONDS))
        os.set_blocking(writer.stdout.fileno(), False)
        said += writer.stdout.read() or b""
        cut_power(place)
        writer.kill()
    return said.decode().split("\n")[:-1]
