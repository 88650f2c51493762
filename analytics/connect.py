"""RemoteSpark: a guest in a Spark Connect server, `sc://host:port`.

The server's Java process is not ours: no Java is needed here, its operator decides over memory,
ports and who may come in, and others may work in it. What we bring is in a session of our own:
our code, for its Python workers, and the settings that make a report's numbers.

Source: Spark 4.3, "Spark Connect Overview" and the connection string of its client.
"""

from __future__ import annotations

import functools
import logging
import os
import urllib.parse
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analytics import session as own
from analytics.errors import ReportError
from analytics.sources.commitlog import CommitLogDataSource
from analytics.sources.rocketmq import RocketMqDataSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

PACKAGES = "deploy/requirements-connect.lock"
# A server does not tell its guests how many tasks it runs at a time.
WIDTH = 4
# A connection that breaks is tried again for about ten seconds, not for Spark's ten minutes.
TRIES_MAX = 5
TRY_AGAIN_MS_MAX = 5_000
_RESULT = "number bigint, result string"
# By these PySpark would go elsewhere than to the master, or show a token that is not its.
_FOREIGN = frozenset(
    {
        *("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_MASTER"),
        *("PYSPARK_REMOTE_INIT_CONF_LEN", "SPARK_CONNECT_AUTHENTICATE_TOKEN"),
    }
)


class RemoteSpark:
    """A session in a Spark Connect server; others are not touched by it.

    Attributes:
        session: what frames are read by.
    """

    def __init__(self, session: SparkSession, master: str) -> None:
        self.session = session
        self._master = master

    def begin(self, title: str) -> None:
        """Say what comes next: the server's page shows it as a tag."""
        self.session.clearTags()
        self.session.addTag(title.replace(",", " "))

    def cancel(self) -> None:
        """End what this session runs."""
        with suppress(PySparkException, OSError):  # the server may be gone
            self.session.interruptAll()

    def width(self) -> int:
        return WIDTH

    def each(self, work: Callable[[Item], str], items: Sequence[Item]) -> list[str]:
        """Return what `work` says of each of the items, one task for each.

        Raises:
            PySparkException: the server failed, or was cancelled.
        """
        count = len(items)
        numbers = self.session.range(0, count, 1, count)
        made = numbers.mapInArrow(functools.partial(_made, work, list(items)), _RESULT).toArrow()
        results = dict(zip(made["number"].to_pylist(), made["result"].to_pylist(), strict=True))
        return [results[number] for number in range(count)]

    @contextmanager
    def watched(self, *, tells_rows: bool) -> Iterator[Callable[[], tuple[int, int]]]:
        """Give what tells of the first stage of the query to come.

        A server tells of tasks and of bytes, not of rows: those are 0, with `tells_rows`, too.
        """
        stages = Stages()
        self.session.registerProgressHandler(stages)  # type: ignore[arg-type]  # by its call
        try:
            yield stages.first
        finally:
            self.session.removeProgressHandler(stages)  # type: ignore[arg-type]

    def why_gone(self) -> str:
        if own.answers(*own.address_of_server(self._master)):
            return ""
        return f"The Spark Connect server at {self._master} went away in the middle of the run."

    def close(self) -> None:
        """Give back the session; the server goes on."""
        if self.why_gone():
            # Nobody is there to say good-bye to, and PySpark would try for long.
            self.session.release_session_on_close = False  # type: ignore[attr-defined]
        self.session.stop()


class Stages:
    """What the server told last of a query's stages: PySpark calls it in the thread that waits."""

    def __init__(self) -> None:
        self._first = (0, 0)

    def __call__(
        self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        told = [(stage.stage_id, stage.num_completed_tasks) for stage in stages or ()]
        if told:
            self._first = (min(told)[1], 0)

    def first(self) -> tuple[int, int]:
        """Return how many tasks of the first stage are done, and no rows."""
        return self._first


def start_remote(scratch: Path, master: str) -> RemoteSpark:
    """Begin a session in a Spark Connect server, with our code and our data sources.

    Raises:
        ReportError: the client's packages are not installed, the server does not answer or does not
            let us in, or the secret cannot be read.
    """
    own.require_master(master)
    for name in _FOREIGN & os.environ.keys():
        del os.environ[name]
    try:
        session = SparkSession.builder.remote(with_token(master)).create()
        be_impatient(session)
    except ImportError as error:
        raise ReportError(
            "Spark Connect needs packages that are not installed here: "
            f"`pip install --require-hashes -r {PACKAGES}` in the virtual environment, which "
            "deploy/up does by itself where TREBUCHET_SPARK_MASTER begins with sc://."
        ) from error
    spark = RemoteSpark(session, master)
    try:
        for name, value in own.sql_settings().items():
            session.conf.set(name, value)
        session.addArtifacts(str(own.packed_code(scratch)), pyfile=True)
        for source in (CommitLogDataSource, RocketMqDataSource):
            session.dataSource.register(source)
    except Exception as error:
        spark.close()
        logger.exception("the Spark Connect server did not take our session")
        raise ReportError(_why_refused(str(error), master)) from error
    return spark


def _why_refused(text: str, master: str) -> str:
    if "UNAUTHENTICATED" in text or "PERMISSION_DENIED" in text:
        return (
            f"The Spark Connect server at {master} does not let us in: the first line of the file "
            f"that {own.SECRET_FILE_VARIABLE} names must be its token."
        )
    return (
        f"What answers at {master} is no Spark Connect server of this version that takes our "
        "session; the log says why."
    )


def with_token(master: str) -> str:
    """Return the address with the secret in it, which is for PySpark only."""
    token = own.secret()
    if not token:
        return master
    joint = ";" if "/;" in master else "/;"
    return f"{master.rstrip('/')}{joint}token={urllib.parse.quote(token, safe='')}"


def be_impatient(session: SparkSession) -> None:
    """Have a session try a broken connection for seconds only.

    Raises:
        ImportError: the client's packages are not installed.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    policy = DefaultPolicy(max_retries=TRIES_MAX, max_backoff=TRY_AGAIN_MS_MAX)
    session.client.set_retry_policies([policy])


def _made(
    work: Callable[[Any], str], items: Sequence[Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield what `work` makes of the items whose numbers come. Runs in a worker."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int64()), pa.array([work(items[number])], pa.string())],
                names=["number", "result"],
            )
