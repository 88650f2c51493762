"""The lake with Spark's workers as its hands: `python -m analytics.lake_on_spark run`, or `ingest`.

The batches, their commits and their guards are those of analytics.lake. Tasks of Spark write the
parts of a batch, on this machine or on a cluster whose workers see both the store and the lake;
this process commits what they wrote. A task that is done twice leaves files that nobody names.

The session starts with the process and stays warm. `TREBUCHET_SPARK_MASTER` says where, as for
reports; without a cluster the lake's own process is as good, and needs no Java.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import shutil
import socket
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from analytics.engine import start_engine
from analytics.errors import LakeError, ReportError, sentence_in
from analytics.guest import is_guest, step_back
from analytics.lake import __main__ as command
from analytics.lake.files import WrittenFile
from analytics.lake.parts import Unread, WrittenPart, write_part
from analytics.request import LOOPBACK, MASTER_DEFAULT
from analytics.session import Spark, require_executor
from analytics.store.fingerprint import fingerprint_before

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analytics.engine import Engine
    from analytics.lake.parts import WriteTask
    from analytics.store.plan import Split

logger = logging.getLogger(__name__)

TOKEN_PREFIX = ".seen-"
SPLIT_BYTES = 16 * 1024 * 1024
WORKING = frozenset({"run", "ingest"})


@dataclass(frozen=True, slots=True)
class Sight:
    """What a worker must see before it writes: this lake, and this log.

    Attributes:
        token: a file in the lake; None for a lake in S3, which has no second one of its name.
        offset: an offset of the log.
        fingerprint: of the bytes before it.
    """

    token: Path | None
    offset: int
    fingerprint: int | None

    @classmethod
    @contextmanager
    def of(cls, task: WriteTask, parts: Sequence[Split]) -> Iterator[Sight]:
        """Return what this process sees; the token is there until the block ends."""
        offset = max(part.commit_log_to for part in parts)
        fingerprint = fingerprint_before(task.reader().files(), offset)
        if not task.place.is_local:
            yield cls(None, offset, fingerprint)
            return
        with tempfile.NamedTemporaryFile(dir=task.place.uri, prefix=TOKEN_PREFIX) as token:
            yield cls(Path(token.name), offset, fingerprint)

    def require(self, task: WriteTask) -> None:
        """Raises LakeError where this machine sees something else."""
        here = f"The machine {socket.gethostname()} does not see"
        each = "each worker of a Spark cluster needs it, shared, under the same path"
        if self.token is not None and not self.token.exists():
            raise LakeError(f"{here} the lake {task.place.uri}: {each}.")
        try:
            files = task.reader().files()
        except ReportError:
            files = []
        if fingerprint_before(files, self.offset) != self.fingerprint:
            raise LakeError(
                f"{here} the store at {task.store}: {each}. Without that, keep the lake where the "
                "store is, and read the brokers with the source `rocketmq` on the cluster."
            )


def write_seen(task: WriteTask, sight: Sight, parts: Sequence[Split]) -> WrittenPart:
    """Do what `write_part` does, on a machine that sees both lake and log.

    Raises:
        LakeError: it does not.
    """
    sight.require(task)
    return write_part(task, parts)


def write_told(task: WriteTask, sight: Sight, parts: Sequence[Split]) -> str:
    """Do what `write_seen` does, and say it as JSON. Runs in a worker."""
    return json.dumps(asdict(write_seen(task, sight, parts)))


def part_told(text: str) -> WrittenPart:
    """Return what `write_told` said."""
    told = json.loads(text)
    files = [WrittenFile(**file) for file in told["files"]]
    return WrittenPart(files, [Unread(**unread) for unread in told["unread"]])


class SparkExecutor:
    """Writes the parts of a batch as tasks of Spark."""

    split_bytes = SPLIT_BYTES

    def __init__(self, spark: Engine, master: str = MASTER_DEFAULT) -> None:
        self._spark = spark
        self._master = master

    def write(self, task: WriteTask, parts: Sequence[Split]) -> list[WrittenPart]:
        """Return what became of each part.

        Raises:
            ReportError: no worker takes the work, or a task failed as often as Spark tries.
        """
        if not parts:
            return []
        shares = [[part] for part in parts]
        try:
            _require_workers(self._spark, self._master)
            with Sight.of(task, parts) as sight:
                told = self._spark.each(functools.partial(write_told, task, sight), shares)
                return [part_told(text) for text in told]
        except (PySparkException, Py4JError) as error:
            logger.exception("Spark failed")
            said = sentence_in(str(error)) or "Spark could not write the batch; the log says why."
            raise LakeError(said) from error


def _require_workers(spark: Engine, master: str) -> None:
    if isinstance(spark, Spark):
        require_executor(spark, master)


def main(arguments: Sequence[str]) -> int:
    # Spark leaves no secret in the environment of this process.
    environment = dict(os.environ)
    if not WORKING & set(arguments[:1]) or "--help" in arguments:
        return command.main(arguments, environment)
    if is_guest(environment):
        step_back()
    scratch = Path(tempfile.mkdtemp(prefix="lake-spark-"))
    try:
        master = environment.get("TREBUCHET_SPARK_MASTER") or MASTER_DEFAULT
        spark = start_engine(
            scratch,
            master=master,
            driver_host=environment.get("TREBUCHET_SPARK_DRIVER_HOST") or LOOPBACK,
        )
        try:
            _require_workers(spark, master)
            executor = SparkExecutor(spark, master)
            return command.main(arguments, environment, executor)
        finally:
            spark.close()
    except ReportError as error:
        print(f"python -m analytics.lake_on_spark: {error}", file=sys.stderr)  # noqa: T201
        return command.EXIT_REFUSED
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
