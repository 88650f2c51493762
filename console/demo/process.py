"""The demo process: a child of the web process, recorded in `demo.json`.

It needs neither Redis nor a worker. Only the web process holds the other end of its standard input,
so the demo ends with the web process, even if that is killed.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from console.processes import identity, is_running, signal_group

logger = logging.getLogger(__name__)

DEMO_SECONDS = 600
STOP_GRACE_S = 5.0
LOG_TAIL_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class DemoState:
    """Whether the demo runs, until when, or why it ended."""

    is_running: bool
    started_at: datetime | None = None
    ends_at: datetime | None = None
    failure: str = ""

    @property
    def seconds_left(self) -> int:
        if self.ends_at is None:
            return 0
        return max(0, int((self.ends_at - timezone.now()).total_seconds()))


class DemoProcess:
    """Starts and stops the child. Thread-safe; a lock prevents two clicks from starting two
    children.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> bool:
        """Start the demo; return False if it is already running."""
        with self._lock:
            if self._state().is_running:
                return False
            self._release()
            with log_file().open("wb") as log:
                child = subprocess.Popen(
                    command(),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=settings.BASE_DIR,
                    start_new_session=True,
                )
            self._child = child
            record = {
                "process": identity(child.pid),
                "startedAt": timezone.now().isoformat(),
                "seconds": DEMO_SECONDS,
            }
            temporary = record_file().with_suffix(".tmp")
            temporary.write_text(json.dumps(record))
            temporary.replace(record_file())
            logger.info("demo started pid=%d seconds=%d", child.pid, DEMO_SECONDS)
            return True

    def stop(self) -> bool:
        """Stop the demo gracefully; return False if it isn't running."""
        with self._lock:
            if not self._state().is_running:
                self._release()
                return False
            process = load_record().get("process")
            signal_group(process, signal.SIGINT)
            child = self._child
            if child is not None:
                try:
                    child.wait(timeout=STOP_GRACE_S)
                except subprocess.TimeoutExpired:
                    signal_group(process, signal.SIGKILL)
            self._release()
            record_file().unlink(missing_ok=True)
            logger.info("demo stopped")
            return True

    def state(self) -> DemoState:
        with self._lock:
            return self._state()

    def _state(self) -> DemoState:
        code = self._child.poll() if self._child is not None else None
        record = load_record()
        try:
            started = datetime.fromisoformat(str(record["startedAt"])).astimezone(UTC)
            ends = started + timedelta(seconds=int(record["seconds"]))
        except (KeyError, ValueError):
            return DemoState(is_running=False)
        if is_running(record.get("process")):
            return DemoState(is_running=True, started_at=started, ends_at=ends)
        failure = "" if not code else last_line(log_file())
        return DemoState(is_running=False, started_at=started, failure=failure)

    def _release(self) -> None:
        """Close an ended child's pipe and reap the process."""
        child, self._child = self._child, None
        if child is None:
            return
        if child.stdin is not None:
            child.stdin.close()
        child.wait()


def command() -> list[str]:
    return [
        sys.executable,
        str(settings.BASE_DIR / "manage.py"),
        "demo",
        "--seconds",
        str(DEMO_SECONDS),
        "--end-with-stdin",
    ]


def record_file() -> Path:
    return Path(settings.TREBUCHET_DATA) / "demo.json"


def log_file() -> Path:
    return Path(settings.TREBUCHET_DATA) / "demo.log"


def load_record() -> dict[str, Any]:
    try:
        record = json.loads(record_file().read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def last_line(path: Path) -> str:
    try:
        tail = path.read_bytes()[-LOG_TAIL_BYTES:]
    except OSError:
        return ""
    lines = tail.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:500] if lines else ""


demo_process = DemoProcess()
