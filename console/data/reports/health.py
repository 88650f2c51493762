"""Health of the report system: Redis, the pipeline, and the reports' own requirements.

Each problem is one sentence with its remedy. Checks don't delay pages for long: the timeout is half
a second for Redis and one second for a worker. Results are cached for seconds, or for minutes if
they rarely change.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import redis
from django.conf import settings
from django.core.cache import cache
from django.utils.translation import gettext as _
from kombu.exceptions import OperationalError

from broker_core.environment import without_secrets
from console.celery import app
from console.data.reports import catalog
from console.lib.queues import ALIVE_KEY

REDIS_TIMEOUT_S = 0.5
WORKER_TIMEOUT_S = 1.0
KEPT_S = 4
NEED_MET_CACHE_S = 300
NEED_UNMET_CACHE_S = 10
CHECK_SECONDS_MAX = 10


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and its remedy; `blocks` if no report can start."""

    sentence: str
    remedy: str
    command: str = ""
    blocks: bool = False


def problems() -> list[Problem]:
    """Return all problems that currently prevent reports from running, root cause first."""
    redis_is_down, unknown = redis_problem(), catalog_problem()
    found = [problem for problem in (redis_is_down, unknown) if problem is not None]
    found += need_problems()
    if redis_is_down is None and (worker := worker_problem()) is not None:
        found.append(worker)
    return found


def catalog_problem() -> Problem | None:
    try:
        catalog.reports()
    except catalog.CatalogError as error:
        return Problem(
            str(error),
            _("Reports can't start until it's fixed. To install the missing packages:"),
            "deploy/up",
            blocks=True,
        )
    return None


def need_problems() -> list[Problem]:
    """Return the reports' unmet needs, without duplicates."""
    checks = {need.check: None for each in catalog.known_reports().values() for need in each.needs}
    return [problem for check in checks if (problem := need_problem(check)) is not None]


def need_problem(check: tuple[str, ...]) -> Problem | None:
    key = "reports.need." + hashlib.sha256("\0".join(check).encode()).hexdigest()
    known = cache.get(key)
    if known is None:
        known = unmet_need(check)
        cache.set(key, known, NEED_UNMET_CACHE_S if known else NEED_MET_CACHE_S)
    return Problem(**known) if known else None


def unmet_need(check: tuple[str, ...]) -> dict[str, str]:
    """Run a check; return its output about what is missing, or {} if it passes."""
    try:
        answer = subprocess.run(
            check,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=settings.BASE_DIR,
            env=without_secrets(os.environ),
            timeout=CHECK_SECONDS_MAX,
            check=False,
        )
        if answer.returncode == 0:
            return {}
        content = json.loads(answer.stdout)
        return {name: str(content[name]) for name in ("sentence", "remedy", "command")}
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return {
            "sentence": _("Couldn't check whether reports have everything they need."),
            "remedy": _("Manually:"),
            "command": " ".join(check),
        }


def redis_problem() -> Problem | None:
    known = cache.get("reports.redis")
    if known is None:
        known = "up" if redis_responds(settings.TREBUCHET_REDIS_URL) else "down"
        cache.set("reports.redis", known, KEPT_S)
    if known == "up":
        return None
    return Problem(
        _("Redis at %(address)s isn't responding. Reports can't start until it does.")
        % {"address": redis_address(settings.TREBUCHET_REDIS_URL)},
        _("Messages aren't affected. To start it together with everything else:"),
        "deploy/up",
        blocks=True,
    )


def redis_responds(url: str) -> bool:
    try:
        with _client(url) as client:
            return bool(client.ping())
    except (redis.RedisError, OSError, ValueError):
        return False


def _client(url: str) -> redis.Redis:
    # redis-py expects unix:// for a Unix socket, Celery redis+socket://.
    url = "unix://" + url.removeprefix("redis+socket://") if "+socket" in url else url
    return redis.Redis.from_url(
        url, socket_connect_timeout=REDIS_TIMEOUT_S, socket_timeout=REDIS_TIMEOUT_S
    )


def redis_address(url: str) -> str:
    """Return the Redis address without the password in the URL."""
    parts = urlsplit(url)
    if parts.hostname:
        return f"{parts.hostname}:{parts.port or 6379}"
    return unquote(parts.path)


def worker_problem() -> Problem | None:
    known = cache.get("reports.worker")
    if known is None:
        known = "up" if pipeline_responds() else "down"
        cache.set("reports.worker", known, KEPT_S)
    if known == "up":
        return None
    return Problem(
        _("The pipeline worker isn't running. Reports stay queued until it starts."),
        _("deploy/up starts it. To start it yourself:"),
        "python -m console.data.pipeline.standby",
    )


def pipeline_responds() -> bool:
    """Return whether a worker is waiting for pipeline jobs or running one."""
    try:
        with _client(settings.TREBUCHET_REDIS_URL) as client:
            return bool(client.exists(ALIVE_KEY))
    except (redis.RedisError, OSError, ValueError):
        return False


def worker_responds() -> bool:
    """Return whether a Celery worker responds."""
    try:
        # With `limit`, the wait ends at the first reply.
        answers = app.control.broadcast("ping", reply=True, timeout=WORKER_TIMEOUT_S, limit=1)
    except (OperationalError, redis.RedisError, OSError):
        return False
    return bool(answers)


def blocking_problem() -> Problem | None:
    """Return the first problem that prevents reports from running."""
    return next((problem for problem in problems() if problem.blocks), None)
