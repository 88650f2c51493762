"""The Celery tasks of the lake, each of which is one job of the pipeline's session.

Beat sends them (`console.celery.pipeline_schedule`). A job with remaining work queues it behind
waiting reports. While it is queued, jobs from beat are skipped, so each log has at most one job in
the queue, however far behind it is, and a report waits for one job at most.
"""

from __future__ import annotations

import json
import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

import redis
from django.conf import settings
from kombu.exceptions import OperationalError

from console.celery import app
from console.data.pipeline.program import program
from console.data.pipeline.session import SessionError, session
from console.lib.queues import INGEST, MAINTAIN

if TYPE_CHECKING:
    from celery import Task

logger = logging.getLogger(__name__)

READ_SECONDS = 1.0
# If a job hasn't started by then, drop it: the next one does its work.
EXPIRES_SECONDS = 60


class Continuations:
    """The queued continuations of jobs. Single thread."""

    def __init__(self) -> None:
        self._sent: dict[str, float] = {}

    def may_begin(self, job: str, *, is_rest: bool) -> bool:
        """Return whether to run a job now; if its continuation is queued, only that may run."""
        if is_rest:
            self._sent.pop(job, None)
            return True
        return monotonic() - self._sent.get(job, float("-inf")) >= EXPIRES_SECONDS

    def send(self, job: str, task: Task[..., None], **arguments: str) -> None:
        """Queue the rest of a job behind waiting tasks; beat sends the job again too."""
        keywords = {**arguments, "is_rest": True}
        try:
            task.apply_async(kwargs=keywords, expires=EXPIRES_SECONDS, retry=False)
        except (OperationalError, redis.RedisError, OSError) as error:
            logger.warning("lake job not queued, will retry task=%s error=%s", task.name, error)
        else:
            self._sent[job] = monotonic()


rests = Continuations()


@app.task(name=INGEST)
def ingest(broker: str, *, is_rest: bool = False) -> None:
    """Ingest new data of a broker's log into the lake."""
    source = next((one for one in settings.TREBUCHET_LAKE_SOURCES if one["broker"] == broker), None)
    if source is None or not settings.TREBUCHET_LAKE:
        logger.warning("ingest skipped, the broker's log isn't configured broker=%s", broker)
        return
    if not rests.may_begin(broker, is_rest=is_rest):
        return
    words = ["ingest", "--broker", broker, "--store", source["store"]]
    if source.get("commit_log"):
        words += ["--commit-log", source["commit_log"]]
    if not run_job(words):
        rests.send(broker, ingest, broker=broker)


@app.task(name=MAINTAIN)
def maintain(*, is_rest: bool = False) -> None:
    """Merge the lake's small files, delete expired days and unreferenced files."""
    if not settings.TREBUCHET_LAKE or not rests.may_begin(MAINTAIN, is_rest=is_rest):
        return
    if not run_job(["maintain"]):
        rests.send(MAINTAIN, maintain)


def run_job(words: list[str]) -> bool:
    """Run one job of the lake; return whether it is complete or has failed."""
    events: list[dict[str, Any]] = []

    def on_event(line: bytes) -> None:
        try:
            events.append(json.loads(line))
        except ValueError:
            on_log(line)

    def on_log(line: bytes) -> None:
        logger.info("%s", line.decode("utf-8", "replace").rstrip())

    try:
        with session.job(program(), ["lake", *words, "--lake", settings.TREBUCHET_LAKE]):
            while session.pid is not None and not _end_of(events):
                session.read(READ_SECONDS, on_event, on_log)
            while session.read(0, on_event, on_log):
                continue
    except SessionError as error:
        logger.error("lake job not started error=%s", error)  # noqa: TRY400 - a sentence for people
        return True
    end = _end_of(events)
    if end is None or end["event"] == "failed":
        text = "the analytics program ended" if end is None else end.get("message")
        logger.error("lake job failed job=%s reason=%s", words[0], text)
        return True
    session.is_warm |= bool(end.get("is_warm"))
    return bool(end.get("is_all", True))


def _end_of(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((each for each in events if each.get("event") in ("done", "failed")), None)
