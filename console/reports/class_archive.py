"""The archive of Spark's classes, made beside the worker when it begins: runs start sooner then.

`python -m analytics.class_archive` says what it is, and does nothing where there is one already.
Making takes most of a minute of a processor that nobody else wants, once for each Java and Spark.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

from django.conf import settings

from broker_core.environment import without_secrets
from console.processes import identity, signal_group

VARIABLE = "TREBUCHET_SPARK_CLASSES"


class Making:
    """The making of the archive, if it is wanted; ends with the worker."""

    def __init__(self) -> None:
        self._process: dict[str, Any] | None = None

    def begin(self) -> None:
        """Begin, where the environment names a directory for it."""
        if not os.environ.get(VARIABLE, "").strip():
            return
        process = subprocess.Popen(
            [sys.executable, "-m", "analytics.class_archive"],
            stdin=subprocess.DEVNULL,
            cwd=settings.BASE_DIR,
            env=without_secrets(os.environ),
            start_new_session=True,
        )
        self._process = identity(process.pid)
        threading.Thread(target=process.wait, name="class-archive", daemon=True).start()

    def end(self) -> None:
        """End it where it has got to; the next worker begins anew."""
        signal_group(self._process, signal.SIGKILL)
