"""The pipeline's Celery worker: queue `pipeline`, one job at a time.

    python -m console.data.pipeline.worker

`console.data.pipeline.standby` becomes this process for the first job. After TREBUCHET_SPARK_IDLE
seconds without a job, it ends its session and becomes the standby again; sooner if no job needed
Spark.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from time import monotonic
from typing import Any

import redis
from celery.signals import worker_ready
from django.conf import settings

from console.celery import app
from console.data.pipeline.session import session
from console.data.pipeline.standby import AFTER_WORK, WORKER
from console.lib.queues import ALIVE_KEY, ALIVE_SECONDS, QUEUE

# `__name__` is __main__ when run as a program.
logger = logging.getLogger(WORKER)

COLD_IDLE_SECONDS = 60
CHECK_SECONDS = 5.0
REDIS_SECONDS_MAX = 2.0
RUNS_AS_ROOT = "You're running the worker with superuser privileges"


class Idle:
    """Detects that there has been no job for long, and stops the worker."""

    def __init__(self) -> None:
        self.has_arrived = False
        self._began = monotonic()

    def look(self) -> None:
        """Refresh the alive key in Redis, and stop the worker if it is idle."""
        refresh_alive_key()
        seconds = monotonic() - max(session.ended_at, self._began)
        limit = settings.TREBUCHET_SPARK_IDLE
        if not session.is_warm:
            limit = min(limit, COLD_IDLE_SECONDS)
        if not self.has_arrived and not session.is_busy and seconds >= limit:
            logger.info("session idle, stopping seconds=%.0f", seconds)
            self.has_arrived = True
            os.kill(os.getpid(), signal.SIGTERM)


idle = Idle()


def refresh_alive_key() -> None:
    try:
        client = redis.Redis.from_url(
            settings.TREBUCHET_REDIS_URL.replace("redis+socket://", "unix://"),
            socket_timeout=REDIS_SECONDS_MAX,
        )
        with client:
            client.set(ALIVE_KEY, "worker", ex=ALIVE_SECONDS)
    except (redis.RedisError, OSError, ValueError) as error:
        logger.warning("pipeline state not sent to Redis error=%s", error)


@worker_ready.connect
def on_worker_ready(sender: Any = None, **_: object) -> None:
    idle.look()
    sender.timer.call_repeatedly(CHECK_SECONDS, idle.look)


def main() -> int:
    # The standby ignores SIGCHLD, which its children inherit.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if os.geteuid() == 0:
        # Celery warns about pickle, which the settings don't accept: tasks are JSON.
        warnings.filterwarnings("ignore", RUNS_AS_ROOT)
    arguments = ["--quiet", "worker", "--queues", QUEUE, "--pool", "threads", "--concurrency", "1"]
    arguments += ["--prefetch-multiplier", "1", "--loglevel", "INFO", "--without-gossip"]
    arguments += ["--without-mingle", "--hostname", f"{QUEUE}-{settings.TREBUCHET_WEB.port}@%h"]
    try:
        app.worker_main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    else:
        code = 0
    if not idle.has_arrived:
        session.end()
        return code
    left = session.end(in_order=True)
    words = [AFTER_WORK] + ([] if left is None else [str(left)])
    os.execv(sys.executable, [sys.executable, "-m", "console.data.pipeline.standby", *words])


if __name__ == "__main__":
    sys.exit(main())
