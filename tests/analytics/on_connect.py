"""Run work in a Spark Connect server: `python -m tests.analytics.on_connect MASTER STORE SCRATCH`.

A separate process, because PySpark treats a process as a client forever once it has been one.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from pyspark.errors import PySparkException

from analytics.engine import start_engine
from analytics.frames import each
from analytics.request import LOOPBACK
from analytics.sources.commitlog import CommitLogDataSource

# Longer than any wait, so that an earlier end means cancellation.
ASLEEP_SECONDS = 600


def main(master: str, store: str, scratch: str) -> None:
    spark = start_engine(Path(scratch), master=master, driver_host=LOOPBACK)
    spark.session.dataSource.register(CommitLogDataSource)
    messages = spark.session.read.format("commitlog").load(store)
    rows = messages.select("topic", "keys", "properties").toArrow().to_pylist()
    keys = [row["keys"] for row in rows]
    made = each(spark.session, str, [-3, 0, 7])

    spark.begin("sleeping, for long")
    ended = threading.Event()
    canceller = threading.Thread(target=_cancel_until, args=(spark.cancel, ended))
    canceller.start()
    cancelled = ""
    try:
        each(spark.session, asleep, [ASLEEP_SECONDS])
    except PySparkException as error:
        cancelled = str(error)
    ended.set()
    canceller.join()
    spark.close()
    found = {
        "topics": [row["topic"] for row in rows],
        "keys": keys,
        "has_properties": all(row["properties"] is not None for row in rows),
        "made": made,
        "cancelled": cancelled,
    }
    sys.stdout.write(json.dumps(found))


def asleep(seconds: int) -> str:
    time.sleep(seconds)
    return "awake"


def _cancel_until(cancel: object, ended: threading.Event) -> None:
    assert callable(cancel)
    # Cancelling before the server has the query does nothing.
    while not ended.wait(0.5):
        cancel()


if __name__ == "__main__":
    main(*sys.argv[1:])
