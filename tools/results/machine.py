"""Describe the machine, Python and commit of a measurement."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from datetime import UTC, datetime
from pathlib import Path

from tests.support.sources import ROOT


def about() -> dict[str, str]:
    """Return the machine, the Python and the commit."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _said("git", "rev-parse", "--short=10", "HEAD") or "unknown",
        "python": f"{platform.python_version()}, {_build()}",
        "java": (_said("java", "-version").splitlines() or ["none"])[0],
        "processor": f"{_model()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.0f} GiB",
        "kernel": platform.release(),
    }


def provenance(program: str) -> dict[str, str]:
    """Return the date, commit, machine and command of a measurement that ends now.

    `program` is the module for `python -m`, with its subcommand if it has one.
    """
    found = about()
    return {
        "date": found["date"],
        "commit": found["commit"],
        "machine": f"{found['processor']}, {found['memory']}",
        "command": shlex.join(["python", "-m", *program.split(), *sys.argv[1:]]),
    }


def _build() -> str:
    if "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS")):
        return "built with optimization"
    # The configuration doesn't show how a distribution optimizes its Python.
    is_packaged = sys.base_prefix == "/usr"
    return "the distribution's" if is_packaged else "built without optimization"


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return (done.stdout or done.stderr).strip()
