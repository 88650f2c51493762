"""RemoteSpark: a client of a Spark Connect server, `sc://host:port`.

The server has its own Java process, so this machine needs no Java. The server's operator sets
memory, ports and access, and other clients can share the server. Each session uploads Trebuchet's
code for the Python workers and sets the options that affect a report's numbers.

Source: Spark 4.3, "Spark Connect Overview" and the connection string of its client.
"""

from __future__ import annotations

import logging
import os
import urllib.parse
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analytics import session as own
from analytics.errors import ReportError

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

PACKAGES = "deploy/requirements-connect.lock"
# A server doesn't report how many tasks it runs at a time.
WIDTH = 4
# Retries a broken connection for about ten seconds instead of Spark's ten minutes.
TRIES_MAX = 5
TRY_AGAIN_MS_MAX = 5_000
# These variables would make PySpark connect elsewhere or send a foreign token.
_FOREIGN = frozenset(
    {
        *("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_MASTER"),
        *("PYSPARK_REMOTE_INIT_CONF_LEN", "SPARK_CONNECT_AUTHENTICATE_TOKEN"),
    }
)


class RemoteSpark:
    """A session in a Spark Connect server. Doesn't affect other sessions.

    Attributes:
        session: the Spark session that reads frames.
    """

    def __init__(self, session: SparkSession, master: str) -> None:
        self.session = session
        self._master = master
        self._stages = Stages()
        session.registerProgressHandler(self._stages)  # type: ignore[arg-type]  # a callable

    def begin(self, title: str) -> None:
        """Name the next step; the server's page shows it as a tag."""
        self._stages.clear()
        self.session.clearTags()
        self.session.addTag(title.replace(",", " "))

    def cancel(self) -> None:
        """Cancel everything that this session runs."""
        with suppress(PySparkException, OSError):  # the server may have stopped
            self.session.interruptAll()

    def width(self) -> int:
        return WIDTH

    def about(self) -> dict[str, Any]:
        """Return the session's ID, and the stages and tasks that the server reported."""
        tasks = self._stages.tasks
        return {
            "application_id": self.session.session_id,  # type: ignore[attr-defined]
            "stages": len(tasks),
            "tasks": sum(tasks.values()),
        }

    def first_stage_tasks(self) -> int:
        tasks = self._stages.tasks
        return tasks[min(tasks)] if tasks else 0

    def end_reason(self) -> str:
        if own.answers(*own.address_of_server(self._master)):
            return ""
        return f"The Spark Connect server at {self._master} stopped responding during the run."

    def close_in_order(self) -> None:
        self.close()

    def close(self) -> None:
        """Release the session; the server keeps running."""
        if self.end_reason():
            # The server is unreachable, and PySpark would retry the release for a long time.
            self.session.release_session_on_close = False  # type: ignore[attr-defined]
        self.session.stop()


class Stages:
    """The server's latest report of each stage; PySpark calls it in the waiting thread.

    Attributes:
        tasks: number of finished tasks, by stage number.
    """

    def __init__(self) -> None:
        self.tasks: dict[int, int] = {}

    def clear(self) -> None:
        self.tasks = {}

    def __call__(
        self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        completed = {stage.stage_id: stage.num_completed_tasks for stage in stages or ()}
        self.tasks = self.tasks | completed


def start_remote(scratch: Path, master: str) -> RemoteSpark:
    """Open a session in a Spark Connect server, with Trebuchet's code and data sources.

    Raises:
        ReportError: the client's packages aren't installed, the server doesn't respond or refuses
            access, or the secret isn't readable.
    """
    own.require_master(master)
    for name in _FOREIGN & os.environ.keys():
        del os.environ[name]
    try:
        session = SparkSession.builder.remote(with_token(master)).create()
        limit_retries(session)
    except ImportError as error:
        raise ReportError(
            "Spark Connect needs packages that aren't installed. Run `pip install "
            f"--require-hashes -r {PACKAGES}` in the virtual environment; deploy/up does this "
            "if TREBUCHET_SPARK_MASTER begins with sc://."
        ) from error
    spark = RemoteSpark(session, master)
    try:
        for name, value in own.sql_settings().items():
            session.conf.set(name, value)
        session.addArtifacts(str(own.packed_code(scratch)), pyfile=True)
    except Exception as error:
        spark.close()
        logger.exception("Spark Connect session refused")
        raise ReportError(_why_refused(str(error), master)) from error
    return spark


def _why_refused(text: str, master: str) -> str:
    if "UNAUTHENTICATED" in text or "PERMISSION_DENIED" in text:
        return (
            f"The Spark Connect server at {master} refused access. Put its token in the first line "
            f"of the file that {own.SECRET_FILE_VARIABLE} names."
        )
    return (
        f"Couldn't open a session at {master}. Check that a Spark Connect server of the right "
        "version is running there; see the log for the reason."
    )


def with_token(master: str) -> str:
    """Return the address including the secret; pass it only to PySpark."""
    token = own.secret()
    if not token:
        return master
    joint = ";" if "/;" in master else "/;"
    return f"{master.rstrip('/')}{joint}token={urllib.parse.quote(token, safe='')}"


def limit_retries(session: SparkSession) -> None:
    """Limit a session's retries of a broken connection to seconds.

    Raises:
        ImportError: the client's packages aren't installed.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    policy = DefaultPolicy(max_retries=TRIES_MAX, max_backoff=TRY_AGAIN_MS_MAX)
    session.client.set_retry_policies([policy])
