"""Run queries until there is no data left, however slow the machine is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# Spark gives a Python process of a stream ten seconds to start, which can't be configured.
TOO_SLOW = "Python worker failed to connect back"
ATTEMPTS = 20


def drained(stream: DataStreamWriter, *target: str) -> StreamingQuery:
    """Run a query with a checkpoint over all available data; retry if it couldn't start."""
    for _ in range(ATTEMPTS):
        query = stream.trigger(availableNow=True).start(*target)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if TOO_SLOW not in str(error):
                raise
        else:
            return query
    raise AssertionError(f"no Python process of the stream started in {ATTEMPTS} attempts")
