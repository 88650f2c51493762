"""The Celery app of the console: JSON only, UTC, schedules in the database.

`celery -A console worker` and `celery -A console beat` find it here. The broker is the Redis at
`TREBUCHET_REDIS_URL`; results are stored in the console's database, not in Redis.
"""

from __future__ import annotations

import logging
import logging.config
import os
from typing import Any

import kombu
from celery import Celery
from celery.app.amqp import AMQP
from celery.signals import setup_logging
from django.conf import settings

from console.lib.queues import INGEST, MAINTAIN, QUEUE

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
# A test runs Django's checks. In worker and beat they would load every page, which takes more than
# half of their startup time, and 40 MiB.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")

# The maximum run time of a report; the runner then ends it gracefully with a message.
REPORT_SECONDS_MAX = 3 * 3600
# The worker's own limit is later and ends a runner that hangs.
TASK_SECONDS_MAX = REPORT_SECONDS_MAX + 120
# Intervals in seconds of the pipeline's own tasks, if there is a lake.
INGEST_EVERY_S, MAINTAIN_EVERY_S = 30, 300
PIPELINE_TASKS = (
    *("console.reports.run_report", "console.reports.run_scheduled_report"),
    *(INGEST, MAINTAIN),
)
REDIS_TRIED_EVERY_S = 2.0
"""Worker and beat reconnect this quickly; Celery's own waits grow to half a minute."""


class Connection(kombu.Connection):
    """A connection to Redis that retries at short intervals, however long Redis is unavailable."""

    def ensure_connection(  # type: ignore[override]  # whatever the base class takes
        self, *arguments: Any, **options: Any
    ) -> kombu.Connection:
        every = {"interval_start": REDIS_TRIED_EVERY_S, "interval_max": REDIS_TRIED_EVERY_S}
        return super().ensure_connection(*arguments, **{**every, **options})


class Amqp(AMQP):
    """Celery's AMQP with our connections."""

    Connection = Connection


def celery_url(url: str) -> str:
    """Return a Redis URL in Celery's format, which writes a unix socket as `redis+socket://`."""
    return "redis+socket://" + url.removeprefix("unix://") if url.startswith("unix://") else url


app = Celery("console", amqp=Amqp)
app.config_from_object("django.conf:settings", namespace="CELERY")


@setup_logging.connect
def keep_django_logging(loglevel: int | None = None, **_: object) -> None:
    """Keep Celery from installing its own log handlers, which don't escape lines.

    Celery's own lines use the level from its command line, because the ready message is needed.
    """
    logging.config.dictConfig(settings.LOGGING)
    if loglevel:
        logging.getLogger("celery").setLevel(loglevel)


def pipeline_schedule() -> dict[str, dict[str, Any]]:
    """Return the pipeline tasks that beat sends regularly."""
    if not settings.TREBUCHET_LAKE:
        return {}
    # A task that hasn't started when the next one is due expires.
    found = {
        f"lake: ingest {source['broker']}": {
            "task": INGEST,
            "schedule": INGEST_EVERY_S,
            "kwargs": {"broker": source["broker"]},
            "options": {"expires": INGEST_EVERY_S},
        }
        for source in settings.TREBUCHET_LAKE_SOURCES
    }
    found["lake: maintain"] = {
        "task": MAINTAIN,
        "schedule": MAINTAIN_EVERY_S,
        "options": {"expires": MAINTAIN_EVERY_S},
    }
    return found


@app.on_after_configure.connect
def limit(sender: Celery, **_: object) -> None:
    """Set the options that follow from the limits above."""
    sender.conf.update(
        broker_url=celery_url(sender.conf.broker_url),
        task_routes={name: {"queue": QUEUE} for name in PIPELINE_TASKS},
        beat_schedule=pipeline_schedule(),
        result_backend=None,
        result_accept_content=["json"],
        task_time_limit=TASK_SECONDS_MAX,
        worker_max_tasks_per_child=50,
        # A worker keeps waiting for Redis, however long Redis is unavailable.
        broker_connection_max_retries=None,
        # Redis redelivers a message that no worker acknowledged for this long.
        broker_transport_options={
            **sender.conf.broker_transport_options,
            "visibility_timeout": TASK_SECONDS_MAX + 600,
        },
    )


app.autodiscover_tasks(["console.data.pipeline", "console.data.reports", "console.data.sql"])
