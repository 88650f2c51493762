"""The lake with Spark's workers as its hands: `python -m analytics.lake_on_spark run`, or `ingest`.

The batches, their commits and their guards are those of analytics.lake. Tasks of Spark write the
parts of a batch, on this machine or on a cluster whose workers see both the store and the lake;
this process commits what they wrote. A task that is done twice leaves files that nobody names.

The session starts with the process and stays warm. `TREBUCHET_SPARK_MASTER` says where, as for
reports; without a cluster the lake's own process is as good, and needs no Java.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.errors import ReportError
from analytics.guest import is_guest, step_back
from analytics.lake import __main__ as command
from analytics.lake.parts import write_part
from analytics.session import LOOPBACK, MASTER_DEFAULT, start_spark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark import SparkContext

    from analytics.lake.parts import WriteTask, WrittenPart
    from analytics.store.plan import Split

SPLIT_BYTES = 16 * 1024 * 1024
WORKING = frozenset({"run", "ingest"})


class SparkExecutor:
    """Writes the parts of a batch as tasks of Spark."""

    split_bytes = SPLIT_BYTES

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def write(self, task: WriteTask, parts: Sequence[Split]) -> list[WrittenPart]:
        """Return what became of each part.

        Raises:
            PySparkException: a task failed as often as Spark tries.
        """
        if not parts:
            return []
        shares = [[part] for part in parts]
        tasks = self._context.parallelize(shares, len(shares))
        return list(tasks.map(functools.partial(write_part, task)).collect())


def main(arguments: Sequence[str]) -> int:
    # Spark leaves no secret in the environment of this process.
    environment = dict(os.environ)
    if not WORKING & set(arguments[:1]) or "--help" in arguments:
        return command.main(arguments, environment)
    if is_guest(environment):
        step_back()
    scratch = Path(tempfile.mkdtemp(prefix="lake-spark-"))
    try:
        spark = start_spark(
            scratch,
            master=environment.get("TREBUCHET_SPARK_MASTER") or MASTER_DEFAULT,
            driver_host=environment.get("TREBUCHET_SPARK_DRIVER_HOST") or LOOPBACK,
        )
        try:
            executor = SparkExecutor(spark.session.sparkContext)
            return command.main(arguments, environment, executor)
        finally:
            spark.stop()
    except ReportError as error:
        print(f"python -m analytics.lake_on_spark: {error}", file=sys.stderr)  # noqa: T201
        return command.EXIT_REFUSED
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
