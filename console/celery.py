"""The Celery app of the console: JSON only, UTC, schedules in the database.

`celery -A console worker` and `celery -A console beat` find it here. Its broker is the Redis of
`TREBUCHET_REDIS_URL`; results live in the console's database, not in Redis.
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

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
# Django's checks are the gate's (`manage.py check`). In worker and beat they would load each page:
# more than half of their time to start, and 40 MiB.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")

# The longest a report may take; the runner ends it in order, with a sentence.
REPORT_SECONDS_MAX = 3 * 3600
# The worker's own limit stands behind it and ends a runner that hangs.
TASK_SECONDS_MAX = REPORT_SECONDS_MAX + 120
REDIS_TRIED_EVERY_S = 2.0
"""So worker and beat are back seconds after Redis is; Celery's own waits grow to half a minute."""


class Connection(kombu.Connection):
    """A connection to Redis, which is asked anew at short intervals however long it is gone."""

    def ensure_connection(  # type: ignore[override]  # whatever the base class takes
        self, *arguments: Any, **options: Any
    ) -> kombu.Connection:
        every = {"interval_start": REDIS_TRIED_EVERY_S, "interval_max": REDIS_TRIED_EVERY_S}
        return super().ensure_connection(*arguments, **{**every, **options})


class Amqp(AMQP):
    """Celery's, with connections of ours."""

    Connection = Connection


def celery_url(url: str) -> str:
    """Return a Redis URL as Celery spells it: a unix socket is `redis+socket://` there."""
    return "redis+socket://" + url.removeprefix("unix://") if url.startswith("unix://") else url


app = Celery("console", amqp=Amqp)
app.config_from_object("django.conf:settings", namespace="CELERY")


@setup_logging.connect
def log_as_the_web_process_does(loglevel: int | None = None, **_: object) -> None:
    """Keep Celery from setting up handlers of its own, whose lines are not escaped.

    Its own lines go by the level of its command line, since the one that says it is ready counts.
    """
    logging.config.dictConfig(settings.LOGGING)
    if loglevel:
        logging.getLogger("celery").setLevel(loglevel)


@app.on_after_configure.connect
def limit(sender: Celery, **_: object) -> None:
    """Add what follows from the limits above."""
    sender.conf.update(
        broker_url=celery_url(sender.conf.broker_url),
        result_backend=None,
        result_accept_content=["json"],
        task_time_limit=TASK_SECONDS_MAX,
        worker_max_tasks_per_child=50,
        # A Redis that is gone for long comes back to a worker that still waits for it.
        broker_connection_max_retries=None,
        # Redis gives a message to another worker when none acknowledged it for this long.
        broker_transport_options={
            **sender.conf.broker_transport_options,
            "visibility_timeout": TASK_SECONDS_MAX + 600,
        },
    )


app.autodiscover_tasks(["console.reports", "console.sql"])
