"""Waits for the pipeline's first job in a dozen megabytes, then becomes its worker.

    python -m console.data.pipeline.standby

The worker (`console.data.pipeline.worker`) becomes this process again when it has been idle for
long; supervisors see a single process. Standard library only: a Redis client would use more memory
than all of this, and only two commands are needed.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from console.lib.queues import ALIVE_KEY, ALIVE_SECONDS, QUEUE, UNACKNOWLEDGED_KEY

if TYPE_CHECKING:
    from types import FrameType

VARIABLE = "TREBUCHET_REDIS_URL"
URL_DEFAULT = "redis://127.0.0.1:6379/0"
WORKER = "console.data.pipeline.worker"
# The worker was idle and didn't crash, so no tasks need to be requeued.
AFTER_WORK = "--after-work"
POLL_SECONDS = 0.5
ALIVE_REPORT_SECONDS = 5.0
RETRY_SECONDS = 2.0
ANSWER_SECONDS_MAX = 10.0
PORT = 6379


class Redis:
    """A minimal Redis connection."""

    def __init__(self, url: str) -> None:
        """Raises OSError if Redis doesn't respond."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        if parts.scheme in ("unix", "redis+socket"):
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(ANSWER_SECONDS_MAX)
            self._socket.connect(unquote(parts.path))
            database = query.get("db", query.get("virtual_host", ["0"]))[0]
        else:
            host = parts.hostname or "127.0.0.1"
            self._socket = socket.create_connection((host, parts.port or PORT), ANSWER_SECONDS_MAX)
            if parts.scheme == "rediss":
                import ssl  # four megabytes that are rarely needed

                self._socket = ssl.create_default_context().wrap_socket(
                    self._socket, server_hostname=host
                )
            database = query.get("db", [parts.path.strip("/") or "0"])[0]
        self._answers: IO[bytes] = self._socket.makefile("rb")
        if parts.password:
            user = [unquote(parts.username)] if parts.username else []
            self.ask("AUTH", *user, unquote(parts.password))
        if database != "0":
            self.ask("SELECT", database)

    def ask(self, *words: str) -> str:
        """Return the one-line reply to a command.

        Raises:
            OSError: Redis is down, or refused the command.
        """
        encoded = [word.encode() for word in words]
        request = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
        self._socket.sendall(b"*%d\r\n%s" % (len(words), request))
        line = self._answers.readline().decode("utf-8", "replace").rstrip()
        if not line:
            raise OSError("Redis closed the connection")
        if line.startswith("-"):
            raise OSError(f"Redis rejected {words[0]}: {line[1:]}")
        return line[1:]

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


def wait_for_job(url: str, *, after_work: bool) -> None:
    """Return when a job is queued, or when a killed worker's job must be requeued."""
    is_first = not after_work
    while True:
        try:
            redis = Redis(url)
        except (OSError, ValueError) as error:
            _say("WARNING", f"pipeline waits for Redis: {error}")
            time.sleep(RETRY_SECONDS)
            continue
        try:
            if is_first and int(redis.ask("ZCARD", UNACKNOWLEDGED_KEY)):
                return
            is_first = False
            _wait(redis)
        except (OSError, ValueError) as error:
            _say("WARNING", f"pipeline waits for Redis: {error}")
        else:
            return
        finally:
            redis.close()


def _wait(redis: Redis) -> None:
    """Return when a job is queued; meanwhile, keep the alive key set."""
    reported_at = float("-inf")
    while True:
        if time.monotonic() - reported_at >= ALIVE_REPORT_SECONDS:
            redis.ask("SET", ALIVE_KEY, "standby", "EX", str(ALIVE_SECONDS))
            reported_at = time.monotonic()
        if int(redis.ask("LLEN", QUEUE)):
            return
        time.sleep(POLL_SECONDS)


def url_of(environment: dict[str, str]) -> str:
    """Return the Redis URL, read like the console's settings."""
    given = environment.get(VARIABLE, "").strip()
    file = environment.get(f"{VARIABLE}_FILE", "").strip()
    if not given and file:
        given = Path(file).read_text(encoding="utf-8").strip()
    return given or URL_DEFAULT


def _say(level: str, text: str) -> None:
    now = time.gmtime()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", now)
    sys.stderr.write(f"{stamp},000 {level} {WORKER}: {text}\n")


def main(arguments: list[str]) -> int:
    # Processes that were still ending when the worker became this process: reap them, and kill any
    # that remain.
    left = [int(word) for word in arguments if word.isdigit()]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def on_signal(number: int, frame: FrameType | None) -> None:
        for group in left:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue
        os._exit(0)

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    _say("INFO", "pipeline standing by")
    wait_for_job(url_of(dict(os.environ)), after_work=AFTER_WORK in arguments)
    os.execv(sys.executable, [sys.executable, "-m", WORKER])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
