"""The queue and tasks of the pipeline's worker, and its Redis keys.

Standard library only, to keep `standby` at a dozen megabytes.
"""

from __future__ import annotations

QUEUE = "pipeline"
# Names of tasks, also for queues and schedules that already contain them.
INGEST, MAINTAIN = "console.pipeline.ingest", "console.pipeline.maintain"
# Set every few seconds by the process that waits for jobs or runs one.
ALIVE_KEY = "trebuchet:pipeline"
ALIVE_SECONDS = 20
# Celery's key for tasks that were taken but not acknowledged.
UNACKNOWLEDGED_KEY = "unacked_index"
