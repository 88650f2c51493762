"""The class-data archive of Spark that all tests share.

Without the archive, class loading takes most of the CPU time of each Spark start.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

from analytics.class_archive import ClassArchive
from analytics.java import require_java
from tests.support.sources import ROOT

SECONDS = 600


def make() -> None:
    """Create the archive if it's missing; concurrent test runs wait for one of them to do it.

    Raises:
        ReportError: there is no usable Java.
    """
    archive = ClassArchive.of(require_java())
    if archive is None:
        return
    with (archive.directory / "making").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.file.exists():
            command = [sys.executable, "-m", "tests.support.spark_class_archive"]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS, check=True
            )
