"""The power is cut: an ext4 file system of its own forgets all that was not flushed.

The shutdown ioctl of ext4 stops a mounted file system as a power cut would: what is in the page
cache or the journal only is gone. Needs root and loop devices.
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

from tests.faults.kill import ROOT, Findings as Killed, check

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = (2).to_bytes(4, "little")
IMAGE_BYTES = 192 << 20
CUT_AFTER_SECONDS = (0.05, 0.4)


@dataclass
class Findings:
    """What all cuts together have shown."""

    cuts: int = 0
    acknowledged: int = 0
    stored: int = 0
    wrong: list[str] = field(default_factory=list)


def missing() -> str:
    """Return what this machine lacks; nothing when power can be cut."""
    if os.geteuid() != 0:
        return "root"
    if not Path("/dev/loop-control").exists():
        return "loop devices"
    return "" if shutil.which("mkfs.ext4") else "mkfs.ext4"


@contextlib.contextmanager
def mounted(image: Path, place: Path) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    try:
        yield
    finally:
        # A mapping goes with the last that refers to it, and keeps the file system busy till then.
        gc.collect()
        subprocess.run(["umount", str(place)], check=True)


def run(directory: Path, cuts: int, dice: Random) -> Findings:
    """Put in SYNC_FLUSH and cut the power, again and again, on one file system."""
    findings = Findings()
    image, place = directory / "image", directory / "mounted"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    promised: dict[tuple[int, int], int] = {}
    number = 0
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


def _until_cut(place: Path, number: int, dice: Random) -> list[str]:
    command = [sys.executable, "-m", "tests.faults.writer", str(place / "store"), "SYNC_FLUSH"]
    with subprocess.Popen(
        [*command, str(number)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(dice.uniform(*CUT_AFTER_SECONDS))
        fd = os.open(place, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(fd)
        # What was said before the cut counts, and what was said after it all the more.
        writer.kill()
        lines = (first + writer.stdout.read()).decode().split("\n")
    return [line for line in lines[:-1] if line]
