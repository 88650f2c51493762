"""Health of the report system: Redis, a worker, and the needs that each report describes.

Each problem is one sentence with its remedy. No check delays a page for long: Redis has half a
second to answer, a worker one second. Answers are cached for seconds, rarely changing ones for
minutes.
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
from console.reports import catalog

REDIS_TIMEOUT_S = 0.5
WORKER_TIMEOUT_S = 1.0
KEPT_S = 4
NEED_MET_KEPT_S = 300
NEED_UNMET_KEPT_S = 10
CHECK_SECONDS_MAX = 10


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and its remedy; `blocks` if no report can start."""

    sentence: str
    remedy: str
    command: str = ""
    blocks: bool = False


def problems() -> list[Problem]:
    """Return all problems that keep reports from running now, the root cause first."""
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
            _("No report can start until it does. What installs its packages:"),
            "deploy/up",
            blocks=True,
        )
    return None


def need_problems() -> list[Problem]:
    """Return the unmet needs of the reports, each once."""
    checks = {need.check: None for each in catalog.known_reports().values() for need in each.needs}
    return [problem for check in checks if (problem := need_problem(check)) is not None]


def need_problem(check: tuple[str, ...]) -> Problem | None:
    key = "reports.need." + hashlib.sha256("\0".join(check).encode()).hexdigest()
    known = cache.get(key)
    if known is None:
        known = unmet_need(check)
        cache.set(key, known, NEED_UNMET_KEPT_S if known else NEED_MET_KEPT_S)
    return Problem(**known) if known else None


def unmet_need(check: tuple[str, ...]) -> dict[str, str]:
    """Run a check; return its answer about what is missing, {} if nothing is."""
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
        said = json.loads(answer.stdout)
        return {name: str(said[name]) for name in ("sentence", "remedy", "command")}
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return {
            "sentence": _("It cannot be checked whether reports have what they need."),
            "remedy": _("By hand:"),
            "command": " ".join(check),
        }


def redis_problem() -> Problem | None:
    known = cache.get("reports.redis")
    if known is None:
        known = "up" if redis_answers(settings.TREBUCHET_REDIS_URL) else "down"
        cache.set("reports.redis", known, KEPT_S)
    if known == "up":
        return None
    return Problem(
        _("Redis at %(address)s does not answer; reports cannot start until it does.")
        % {"address": redis_address(settings.TREBUCHET_REDIS_URL)},
        _("Messages flow without it. What starts it with everything else:"),
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
        _("No worker answers; reports wait in the queue until one runs."),
        _("deploy/up starts one; by hand:"),
        "celery -A console worker",
    )


def worker_answers() -> bool:
    try:
        # `limit` ends the wait with the first answer.
        answers = app.control.broadcast("ping", reply=True, timeout=WORKER_TIMEOUT_S, limit=1)
    except (OperationalError, redis.RedisError, OSError):
        return False
    return bool(answers)
