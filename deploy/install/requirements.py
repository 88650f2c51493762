"""The requirements files and their locks. Standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "requirements.txt"
TEST = ROOT / "tests" / "requirements.txt"
BUILD = ROOT / "deploy" / "requirements-build.txt"
"""Installed before the others; otherwise the build would download them without hashes."""
REDIS = ROOT / "deploy" / "requirements-redis.txt"
"""For a machine without redis-server; installed without dependencies."""
OTLP = ROOT / "deploy" / "requirements-otlp.txt"
"""For a console that sends traces to a collector."""
CONNECT = ROOT / "deploy" / "requirements-connect.txt"
"""For reports and a lake with a Spark Connect server."""
FUZZ = ROOT / "deploy" / "requirements-fuzz.txt"
"""For coverage-guided tools/fuzz."""
UV = ROOT / "deploy" / "requirements-uv.txt"
"""The installer of all others, which also resolves and hashes them for deploy/lock."""
FILES = (BUILD, RUN, TEST, REDIS, OTLP, CONNECT, FUZZ, UV)

_PIN = re.compile(r"([A-Za-z0-9._-]+)(?:\[[a-z0-9,-]+\])?==([^\s;]+)(?: ; (.+))?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Entry:
    """A package in a lock.

    Attributes:
        marker: the Python and platform that it is for; empty for all.
        hashes: SHA-256, in hexadecimal, of each file that may be installed.
        wanted_by: the packages that need it; a requirements file is `-r FILE`.
    """

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    wanted_by: tuple[str, ...]


def lock_of(requirements: Path) -> Path:
    """Return the lock of a requirements file."""
    return requirements.with_suffix(".lock")


def entries(requirements: Path) -> Iterator[Entry]:
    """Yield the packages in the lock of a requirements file, as deploy/lock writes it.

    Raises:
        ValueError: a line is neither an entry nor a comment.
    """
    lock = lock_of(requirements)
    text = re.sub(r"\A(#.*\n)+", "", lock.read_text()).replace("\\\n", " ")
    # An entry starts at column 0; indented comments below it name its dependants.
    for block in re.split(r"\n(?=[^ \n])", text.strip()):
        line, *comments = block.splitlines()
        requirement, *hashes = line.split(" --hash=")
        pin = _PIN.fullmatch(requirement.strip())
        digests = [_HASH.fullmatch(f"--hash={each.strip()}") for each in hashes]
        if pin is None or not digests or None in digests:
            raise ValueError(f"{lock} has an entry that isn't pinned by version and hash: {line}")
        reasons = [each.strip().removeprefix("#").strip() for each in comments]
        reasons = [each.removeprefix("via").strip() for each in reasons]
        yield Entry(
            normal(pin[1]),
            pin[2],
            pin[3] or "",
            tuple(each[1] for each in digests if each),
            tuple(each for each in reasons if each),
        )


def pins(requirements: Path) -> dict[str, str]:
    """Return name and version of each line of a requirements file.

    Raises:
        ValueError: a line has no pinned version.
    """
    found = {}
    for line in requirements.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pin = _PIN.fullmatch(line)
            if pin is None:
                raise ValueError(f"{requirements} has a line that doesn't pin a version: {line}")
            found[normal(pin[1])] = pin[2]
    return found


def normal(name: str) -> str:
    """Return the normalized name of a package."""
    return re.sub(r"[-_.]+", "-", name).lower()
