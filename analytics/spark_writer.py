"""SparkWriter: Spark tasks do a lake's heavy work; this process commits the files they wrote.

A task decodes a range of the log, or runs a query, and writes Parquet with pyarrow. Tasks run on
this machine, or on a cluster whose workers see both the store and the lake. A task that runs twice
leaves unreferenced files.
"""

from __future__ import annotations

import functools
import json
import logging
import socket
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from analytics.errors import LakeError, ReportError, sentence_in
from analytics.frames import LakeReading, each, frame_of
from analytics.lake.files import PREFIX, FileWriter, WrittenFile
from analytics.lake.parsing import write_parsed
from analytics.lake.parts import Unread, WrittenPart, write_part
from analytics.lake.writer import BATCH_BYTES, GIVEN, SPARK
from analytics.request import MASTER_DEFAULT
from analytics.session import Spark, is_local, require_executor
from analytics.store.fingerprint import fingerprint_before
from analytics.store.plan import SPLIT_BYTES_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from analytics.engine import Engine
    from analytics.lake.parsing import ParseTask
    from analytics.lake.parts import WriteTask
    from analytics.lake.place import LakePlace
    from analytics.lake.rewriting import LakeFile
    from analytics.lake.tables import LakeTable
    from analytics.lake.writer import Query
    from analytics.store.plan import Split

logger = logging.getLogger(__name__)

TOKEN_PREFIX = ".seen-"
# Small, so that every worker of a cluster gets tasks. On one machine, one task writes one file per
# batch.
SPLIT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sight:
    """Evidence that a worker sees the same lake and log as this process.

    Attributes:
        token: a file in the lake; None for a lake in S3, whose URI is unambiguous.
        offset: an offset of the log.
        fingerprint: the hash of the bytes before that offset.
    """

    token: Path | None
    offset: int
    fingerprint: int | None

    @classmethod
    @contextmanager
    def of(cls, task: WriteTask, parts: Sequence[Split]) -> Iterator[Sight]:
        """Return the evidence of this process; the token exists until the block ends."""
        offset = max(part.commit_log_to for part in parts)
        fingerprint = fingerprint_before(task.reader().files(), offset)
        if not task.place.is_local:
            yield cls(None, offset, fingerprint)
            return
        with tempfile.NamedTemporaryFile(dir=task.place.uri, prefix=TOKEN_PREFIX) as token:
            yield cls(Path(token.name), offset, fingerprint)

    def require(self, task: WriteTask) -> None:
        """Raise LakeError if this machine sees another lake or log."""
        here = f"The machine {socket.gethostname()} doesn't see"
        advice = "Share it with every worker of the Spark cluster under the same path"
        if self.token is not None and not self.token.exists():
            raise LakeError(f"{here} the lake {task.place.uri}. {advice}.")
        try:
            files = task.reader().files()
        except ReportError:
            files = []
        if fingerprint_before(files, self.offset) != self.fingerprint:
            raise LakeError(
                f"{here} the store at {task.store}. {advice}, or keep the lake on the broker's "
                "machine and read the brokers with the source `rocketmq` on the cluster."
            )


class SparkWriter:
    """A `Writer` that runs Spark tasks."""

    name = SPARK

    def __init__(self, spark: Engine, master: str = MASTER_DEFAULT) -> None:
        self._spark = spark
        self._master = master
        self._width = 1 if is_local(master) else max(1, spark.width())

    @property
    def batch_bytes(self) -> int:
        return BATCH_BYTES * self._width

    @property
    def split_bytes(self) -> int:
        return SPLIT_BYTES_DEFAULT if self._width == 1 else SPLIT_BYTES

    def parts(self, task: WriteTask, splits: Sequence[Split]) -> list[WrittenPart]:
        if not splits:
            return []
        shares = [splits] if self._width == 1 else [[split] for split in splits]
        with self._working("ingest"):
            if is_local(self._master):
                return self._described_parts(task, None, shares)
            with Sight.of(task, splits) as sight:
                return self._described_parts(task, sight, shares)

    def _described_parts(
        self, task: WriteTask, sight: Sight | None, shares: Sequence[Sequence[Split]]
    ) -> list[WrittenPart]:
        work = functools.partial(_write_described, task, sight)
        return [described_part(text) for text in each(self._spark.session, work, shares)]

    def rows(
        self, place: LakePlace, query: Query, target: LakeTable, prefix: str = PREFIX
    ) -> list[WrittenFile]:
        with self._working(f"write {target.name}"):
            # A single task writes, so that a day has one file.
            rows = self._computed(place, query).coalesce(1)
            if query.ordered_by:
                rows = rows.sortWithinPartitions(*query.ordered_by)
            write = functools.partial(_write_rows, place, target, prefix)
            described = rows.mapInArrow(write, "file string").toArrow()
        return [WrittenFile(**json.loads(text)) for text in described["file"].to_pylist()]

    def parsed(self, task: ParseTask, files: Sequence[LakeFile]) -> dict[str, list[WrittenFile]]:
        with self._working("write silver"):
            # A single task writes, so that a day has one file.
            work = functools.partial(_write_parsed_described, task)
            (text,) = each(self._spark.session, work, [files])
        return {
            name: [WrittenFile(**file) for file in written]
            for name, written in json.loads(text).items()
        }

    def table(self, place: LakePlace, query: Query, schema: pa.Schema) -> pa.Table:
        with self._working(f"read {query.table.name}"):
            return self._computed(place, query).toArrow().cast(schema)

    def _computed(self, place: LakePlace, query: Query) -> DataFrame:
        readings = [LakeReading(place, query.table, (file,), query.schema) for file in query.files]
        rows = frame_of(self._spark.session, readings, from_arrow_schema(query.schema))
        rows.createOrReplaceTempView(GIVEN)
        return self._spark.session.sql(query.text)

    @contextmanager
    def _working(self, title: str) -> Iterator[None]:
        """Raise ReportError if no worker accepts the work, or a task failed too often."""
        try:
            if isinstance(self._spark, Spark):
                require_executor(self._spark, self._master)
            self._spark.begin(title)
            yield
        except (PySparkException, Py4JError, OSError, EOFError, pa.ArrowException) as error:
            # The last three are raised when the Java process ends.
            logger.exception("Spark failed")
            sentence = sentence_in(str(error)) or self._spark.end_reason()
            raise LakeError(
                sentence or "Spark couldn't write to the lake. See the log for the reason."
            ) from error


def write_seen(task: WriteTask, sight: Sight, splits: Sequence[Split]) -> WrittenPart:
    """Write a part like `write_part`, after checking that this machine sees both lake and log.

    Raises:
        LakeError: this machine sees a different lake or log.
    """
    sight.require(task)
    return write_part(task, splits)


def _write_described(task: WriteTask, sight: Sight | None, splits: Sequence[Split]) -> str:
    """Write a part and return its description as JSON. Runs in a worker."""
    part = write_part(task, splits) if sight is None else write_seen(task, sight, splits)
    return json.dumps(asdict(part))


def _write_parsed_described(task: ParseTask, files: Sequence[LakeFile]) -> str:
    """Write files of silver and return their description as JSON. Runs in a worker."""
    written = write_parsed(task, files)
    return json.dumps({name: [asdict(file) for file in each] for name, each in written.items()})


def described_part(text: str) -> WrittenPart:
    """Return the part that `_write_described` describes."""
    described = json.loads(text)
    return WrittenPart(
        [WrittenFile(**file) for file in described["files"]],
        [WrittenFile(**file) for file in described["events"]],
        [Unread(**unread) for unread in described["unread"]],
    )


def _write_rows(
    place: LakePlace, table: LakeTable, prefix: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write rows to files of a table and yield their descriptions. Runs in a worker."""
    with FileWriter(place, table, prefix) as writer:
        for batch in batches:
            writer.write(batch.select(table.schema.names).cast(table.schema))
    described = [json.dumps(asdict(file)) for file in writer.written]
    yield pa.RecordBatch.from_arrays([pa.array(described, pa.string())], names=["file"])
