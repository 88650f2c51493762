"""Redis keys of the pipeline's worker.

Standard library only, to keep `standby` at a dozen megabytes.
"""

from __future__ import annotations

QUEUE = "pipeline"
# Set every few seconds by the process that waits for jobs or runs one.
ALIVE_KEY = "trebuchet:pipeline"
ALIVE_SECONDS = 20
# Celery's key for tasks that were taken but not acknowledged.
UNACKNOWLEDGED_KEY = "unacked_index"
