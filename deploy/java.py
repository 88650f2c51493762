"""The Java that Spark's reports run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from deploy import system_packages
from deploy.terminal import say

OLDEST = 17
PACKAGE = "openjdk-17-jre-headless"
VERSION_TIMEOUT_S = 30


def find() -> tuple[Path | None, str]:
    """Return the java to use and, when there is none, why, as the beginning of a sentence."""
    home = os.environ.get("JAVA_HOME", "").strip()
    if home:
        java = Path(home) / "bin" / "java"
        where = f"JAVA_HOME={home}"
    else:
        found = shutil.which("java")
        if found is None:
            return None, "There is no java on PATH"
        java, where = Path(found), found
    version = _major_version(java)
    if version is None:
        return None, f"{where} has no java that runs"
    if version < OLDEST:
        return None, f"{where} is Java {version}"
    return java, ""


def ensure() -> bool:
    """Find or install Java 17+; without it say how to add it, once, and return False."""
    java, why = find()
    if java is None and system_packages.may_install() and "JAVA_HOME" not in os.environ:
        system_packages.install(PACKAGE)
        java, why = find()
    if java is None:
        say(
            f"{why}: everything but the reports works. To have them, install Java {OLDEST} or "
            f"newer ({system_packages.command_for(PACKAGE)}) and start again."
        )
    return java is not None


def _major_version(java: Path) -> int | None:
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # "1.8.0_392" is Java 8; "17.0.15" is Java 17.
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match and done.returncode == 0 else None
