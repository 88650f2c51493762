"""What reports need beside the console: Redis, a worker, Java. Each problem is one sentence.

No check holds a page up: Redis gets half a second, a worker one; answers are kept for seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import redis
from django.conf import settings
from django.core.cache import cache
from kombu.exceptions import OperationalError

from console.celery import app
from console.reports import catalog

REDIS_TIMEOUT_S = 0.5
WORKER_TIMEOUT_S = 1.0
KEPT_S = 4


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, what to do about it; `blocks` when no report can start."""

    sentence: str
    remedy: str
    command: str = ""
    blocks: bool = False


def problems() -> list[Problem]:
    """Return everything that keeps reports from running now, the first cause first."""
    found = [problem for problem in (redis_problem(), java_problem()) if problem is not None]
    if not any(problem.blocks for problem in found) and (worker := worker_problem()) is not None:
        found.append(worker)
    return found


def redis_problem() -> Problem | None:
    known = cache.get("reports.redis")
    if known is None:
        known = "up" if redis_answers(settings.TREBUCHET_REDIS_URL) else "down"
        cache.set("reports.redis", known, KEPT_S)
    if known == "up":
        return None
    return Problem(
        f"Redis at {redis_address(settings.TREBUCHET_REDIS_URL)} does not answer; reports cannot "
        "start until it does.",
        "Sending and receiving go on without it. What starts it with everything else:",
        "deploy/up",
        blocks=True,
    )


def redis_answers(url: str) -> bool:
    # redis-py writes a unix socket as unix://, Celery as redis+socket://.
    url = "unix://" + url.removeprefix("redis+socket://") if "+socket" in url else url
    try:
        client = redis.Redis.from_url(
            url, socket_connect_timeout=REDIS_TIMEOUT_S, socket_timeout=REDIS_TIMEOUT_S
        )
        try:
            return bool(client.ping())
        finally:
            client.close()
    except (redis.RedisError, OSError, ValueError):
        return False


def redis_address(url: str) -> str:
    """Return where Redis is, without the password that the URL may carry."""
    parts = urlsplit(url)
    if parts.hostname:
        return f"{parts.hostname}:{parts.port or 6379}"
    return unquote(parts.path)


def worker_problem() -> Problem | None:
    known = cache.get("reports.worker")
    if known is None:
        known = "up" if worker_answers() else "down"
        cache.set("reports.worker", known, KEPT_S)
    if known == "up":
        return None
    return Problem(
        "No worker answers; reports wait in the queue until one runs.",
        "deploy/up starts one; by hand:",
        "celery -A console worker",
    )


def worker_answers() -> bool:
    try:
        # `limit` ends the wait with the first answer.
        answers = app.control.broadcast("ping", reply=True, timeout=WORKER_TIMEOUT_S, limit=1)
    except (OperationalError, redis.RedisError, OSError):
        return False
    return bool(answers)


def java_problem() -> Problem | None:
    missing = catalog.missing_java()
    if missing is None:
        return None
    sentence, _, command = missing.rpartition(": ")
    return Problem(f"{sentence}.", "Install it with", command)
