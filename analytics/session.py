"""Builds the SparkSession; no other module does.

Spark must not disturb or expose the broker's machine: it has no web page, no port beyond loopback,
no port without a secret, a bounded heap, a private directory for scratch files, and UTC everywhere.
The operator's settings file overrides these settings.

Source: Spark 4.3 configuration and security pages.
"""

from __future__ import annotations

import itertools
import logging
import os
import shlex
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from analytics.class_archive import WRITING_SECONDS_MAX, ClassArchive
from analytics.errors import ReportError
from analytics.java import require_java
from analytics.low_priority import JAVA_OPTIONS, is_low_priority
from analytics.request import CONNECT_PREFIX, LOOPBACK, MASTER_DEFAULT
from analytics.spark_conf import settings_of_operator
from broker_core.environment import without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from py4j.java_gateway import JavaGateway

logger = logging.getLogger(__name__)

MEMORY_DEFAULT = "1g"
# Limit for one result on the driver; a report is a table for people, not an export.
RESULT_BYTES_MAX = 256 * 1024 * 1024
SHUFFLE_PARTITIONS = 8
CLUSTER_PREFIX = "spark://"
JOB_GROUP = "trebuchet"
MASTER_ANSWER_SECONDS = 5
# When either time is up, the run fails with a sentence for the person who is waiting.
EXECUTOR_SECONDS_MAX = 30.0
SIGHT_SECONDS_MAX = 30.0
EXECUTOR_POLL_SECONDS = 0.2
JAVA_EXIT_SECONDS = 10
JAVA_ENDING_SECONDS = 0.5
CONNECT_PORT = 15002
SECRET_FILE_VARIABLE = "TREBUCHET_SPARK_SECRET_FILE"
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
JAVA_ENDED = "Spark's Java process ended during the run. See the log for the reason."
_NO_EMPTY_RELATION = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
_ROOT = Path(__file__).resolve().parent.parent
_SHIPPED_PACKAGES = ("analytics", "broker_core")

_LOG_SETTINGS = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC} %p %c{1}: %m%n%ex{short}
# It warns on every machine that no native Hadoop library is there; reports use none.
logger.hadoop.name = org.apache.hadoop.util.NativeCodeLoader
logger.hadoop.level = error
"""


def settings(
    scratch: Path,
    *,
    master: str = MASTER_DEFAULT,
    driver_host: str = LOOPBACK,
    java_options: str = "",
) -> dict[str, str]:
    """Return all settings of a session; `scratch` holds all its files."""
    return {
        "spark.master": master,
        "spark.app.name": "trebuchet",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        "spark.driver.host": driver_host,
        "spark.driver.bindAddress": driver_host,
        "spark.driver.memory": MEMORY_DEFAULT,
        "spark.executor.memory": MEMORY_DEFAULT,
        "spark.driver.maxResultSize": str(RESULT_BYTES_MAX),
        DRIVER_OPTIONS: (
            f'"-Djava.io.tmpdir={scratch}" -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError'
            f' "-Dlog4j2.configurationFile={_log_settings(scratch)}"'
            + (f" {JAVA_OPTIONS}" if is_low_priority() else "")
            + (f" {java_options}" if java_options else "")
        ),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.log.level": "WARN",
        # A session lives for days, so limit its memory of finished work.
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "200",
        "spark.ui.retainedTasks": "2000",
        "spark.sql.ui.retainedExecutions": "20",
        **sql_settings(),
    }


def sql_settings() -> dict[str, str]:
    """Return the settings that affect a report's numbers; they are per session."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        # This rule drops stages that read no row, and with them their observations.
        "spark.sql.adaptive.optimizer.excludedRules": _NO_EMPTY_RELATION,
    }


def authentication(master: str) -> dict[str, str]:
    """Return the settings for authentication between the driver and its peers.

    Without a cluster, the JVM generates a secret that never leaves it. With a cluster, the secret
    is the first line of the file that the environment names; without a file, the cluster must not
    require a secret.

    Raises:
        ReportError: the file isn't readable, or is empty.
    """
    known = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    if is_local(master):
        return known
    shared = secret()
    if not shared:
        return {}
    return known | {
        "spark.authenticate.secret": shared,
        "spark.io.encryption.enabled": "true",
    }


def secret() -> str:
    """Return the first line of the file that the environment names, or "".

    Raises:
        ReportError: the file isn't readable, or is empty.
    """
    secret_file = os.environ.get(SECRET_FILE_VARIABLE, "")
    if not secret_file:
        return ""
    try:
        lines = Path(secret_file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(
            f"The Spark secret can't be read from {secret_file}, which {SECRET_FILE_VARIABLE} "
            "names. It must be a text file that this user can read."
        ) from error
    if not lines or not lines[0].strip():
        raise ReportError(f"{secret_file}, which {SECRET_FILE_VARIABLE} names, is empty.")
    return lines[0].strip()


def is_local(master: str) -> bool:
    """Return whether Spark runs tasks in its own Java process, not in a cluster."""
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Return whether Spark is a Spark Connect server, which has its own Java process."""
    return master.startswith(CONNECT_PREFIX)


def require_master(master: str) -> None:
    """Check that a master or server accepts connections, because Spark would retry for minutes.

    Raises:
        ReportError: no address accepts connections.
    """
    if is_connect(master):
        if not answers(*address_of_server(master)):
            raise ReportError(
                f"The Spark Connect server at {master} doesn't respond. Check that it's running."
            )
        return
    if not master.startswith(CLUSTER_PREFIX):
        return
    addresses = master.removeprefix(CLUSTER_PREFIX).split(",")
    for address in addresses:
        host, _, port = address.rpartition(":")
        if answers(host.strip("[]"), port, MASTER_ANSWER_SECONDS / len(addresses)):
            return
    raise ReportError(f"The Spark master at {master} doesn't respond. Check that it's running.")


def address_of_server(master: str) -> tuple[str, str]:
    """Return host and port of a Spark Connect server, `sc://host:port/;name=value`."""
    address = master.removeprefix(CONNECT_PREFIX).partition("/")[0]
    host, colon, port = address.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = address, str(CONNECT_PORT)
    return host.strip("[]"), port


def answers(host: str, port: str, seconds: float = MASTER_ANSWER_SECONDS) -> bool:
    """Return whether an address accepts connections within some seconds."""
    try:
        socket.create_connection((host, int(port or 0)), seconds).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


def require_executor(spark: Spark, master: str) -> None:
    """Wait until a cluster's worker starts an executor, because Spark would wait forever.

    Raises:
        ReportError: no executor started within EXECUTOR_SECONDS_MAX.
    """
    if not master.startswith(CLUSTER_PREFIX):
        return
    give_up = time.monotonic() + EXECUTOR_SECONDS_MAX
    while not spark.executors():
        if time.monotonic() > give_up:
            raise ReportError(
                f"No worker of the Spark cluster at {master} accepted work within "
                f"{EXECUTOR_SECONDS_MAX:.0f} s. Reports need a worker with a free core and "
                f"{MEMORY_DEFAULT} of memory."
            )
        time.sleep(EXECUTOR_POLL_SECONDS)


class Spark:
    """A running Spark with its Java process; at most one in a Python process's lifetime.

    Attributes:
        session: the Spark session that reads frames.
    """

    def __init__(
        self,
        session: SparkSession,
        gateway: JavaGateway,
        master: str,
        archive: ClassArchive | None = None,
    ) -> None:
        self.session = session
        self._master = master
        self._gateway = gateway
        self._java: subprocess.Popen[bytes] = gateway.proc
        self._archive = archive
        self._groups = map(f"{JOB_GROUP}-{{}}".format, itertools.count())
        self._group = next(self._groups)

    @property
    def java_pid(self) -> int:
        return self._java.pid

    def begin(self, title: str) -> None:
        """Name this thread's next work, so that `cancel` can cancel it."""
        self._group = next(self._groups)
        self.session.sparkContext.setJobGroup(self._group, title, interruptOnCancel=True)

    def cancel(self) -> None:
        """Cancel running work; work that hasn't started yet isn't affected."""
        try:
            self.session.sparkContext.cancelJobGroup(self._group)
        except (Py4JError, OSError):
            # A signal to the whole process group also ends the Java process.
            logger.info("cancel ignored, Spark has ended")

    def width(self) -> int:
        return self.session.sparkContext.defaultParallelism

    def about(self) -> dict[str, Any]:
        """Return the application ID, and the stages and tasks finished since `begin`."""
        done = [each.numCompletedTasks for each in self._stages() if each.numCompletedTasks]
        application = self.session.sparkContext.applicationId
        return {"application_id": application, "stages": len(done), "tasks": sum(done)}

    def first_stage_tasks(self) -> int:
        """Return how many tasks of the first stage since `begin` are done."""
        return next((each.numCompletedTasks for each in self._stages()), 0)

    def _stages(self) -> list[Any]:
        tracker = self.session.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        numbers = sorted({number for job in jobs if job is not None for number in job.stageIds})
        found = [tracker.getStageInfo(number) for number in numbers]
        return [each for each in found if each is not None]

    def executors(self) -> int:
        """Return how many executors of a cluster are ready for tasks.

        Raises:
            Py4JError: Spark has ended.
        """
        context = self._gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
        return int(context.getExecutorMemoryStatus().size()) - 1  # the count includes the driver

    def close(self) -> None:
        """End Spark. A local Java process is killed, because it has no state."""
        if is_local(self._master):
            # A second faster than a normal stop; the run's scratch files are removed anyway.
            self._java.kill()
            self._java.wait()
        else:
            self.stop()

    def close_in_order(self) -> None:
        """Stop Spark normally, giving Java the time to write its class archive."""
        self.stop(WRITING_SECONDS_MAX)
        if self._archive is not None:
            self._archive.keep()

    def stop(self, seconds: float = JAVA_EXIT_SECONDS) -> None:
        """Stop Spark and wait for its Java process to end, so that its files can be removed."""
        try:
            self.session.stop()
            self._gateway.shutdown()
        except (Py4JError, OSError):
            logger.info("Spark ended before it was stopped")
        if self._java.stdin is not None:
            self._java.stdin.close()  # Java exits when this pipe closes
        try:
            self._java.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            logger.warning("Spark killed, it didn't stop in time seconds=%d", seconds)
            self._java.kill()
            self._java.wait()

    def has_ended(self) -> bool:
        """Return whether the Java process has ended."""
        return self._java.poll() is not None

    def end_reason(self) -> str:
        """Return a sentence if the Java process has ended, or ""; wait briefly for it to end."""
        try:
            self._java.wait(timeout=JAVA_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            return ""
        return JAVA_ENDED


def start_spark(
    scratch: Path,
    *,
    master: str = MASTER_DEFAULT,
    driver_host: str = LOOPBACK,
    more: Mapping[str, str] | None = None,
) -> Spark:
    """Start Spark; blocks for seconds.

    `scratch` must exist, belong to this run only, and be removed by the caller afterwards.

    Raises:
        ReportError: Java is missing, the master doesn't respond, or a settings or secret file isn't
            usable.
    """
    java = require_java()
    require_master(master)
    own = settings_of_operator()
    scratch.chmod(0o700)
    archive = ClassArchive.of(java)
    _prepare_environment(scratch, own | authentication(master), archive)
    python = str(_python_in(scratch)) if is_local(master) else sys.executable
    os.environ["PYSPARK_PYTHON"] = python
    wanted = settings(
        scratch,
        master=master,
        driver_host=driver_host,
        java_options=" ".join(
            filter(None, [archive.options if archive else "", own.get(DRIVER_OPTIONS, "")])
        ),
    ) | dict(more or {})
    conf = SparkConf(loadDefaults=False).setAll(
        [
            (name, value)
            for name, value in wanted.items()
            if name not in own.keys() - {DRIVER_OPTIONS}
        ]
    )
    gateway: JavaGateway = launch_gateway(conf)  # type: ignore[no-untyped-call]  # PySpark's
    context = SparkContext(conf=conf, gateway=gateway)
    session = SparkSession(context)
    if not is_local(master):
        context.addPyFile(str(packed_code(scratch)))
    return Spark(session, gateway, master, archive)


def _log_settings(scratch: Path) -> Path:
    return scratch / "settings" / "log4j2.properties"


def _prepare_environment(
    scratch: Path, hidden: Mapping[str, str], archive: ClassArchive | None
) -> None:
    """Set Java's and the workers' environment, without secrets or other Spark installations.

    `hidden` are settings that must not appear on the command line of the Java process.
    """
    log_settings = _log_settings(scratch)
    log_settings.parent.mkdir(mode=0o700, exist_ok=True)
    log_settings.write_text(_LOG_SETTINGS)
    # In a file, because any user can read the arguments of the Java process.
    properties = log_settings.parent / "spark.properties"
    properties.touch(mode=0o600)
    properties.write_text("".join(f"{key} {value}\n" for key, value in hidden.items()))
    # An empty directory on the class path: a class archive requires the same class path.
    conf = scratch / "conf" if archive is None else archive.conf
    conf.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = without_secrets(os.environ)
    foreign = {"SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_MASTER"}
    for name in [name for name in os.environ if name in foreign or name not in kept]:
        del os.environ[name]
    paths = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ |= {
        "SPARK_CONF_DIR": str(conf),
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {shlex.quote(str(properties))} pyspark-shell",
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(scratch),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
    }


def _python_in(scratch: Path) -> Path:
    """Return a Python for Spark's workers that imports the installed PySpark.

    Spark puts its own copy of PySpark first on their path: a zip without compiled modules, which
    each worker would take more than a second to compile.
    """
    python = scratch / "settings" / "python"
    path = shlex.quote(os.environ["PYTHONPATH"])
    python.write_text(
        f'#!/bin/sh\nexport PYTHONPATH={path}\nexec {shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o700)
    return python


def packed_code(scratch: Path) -> Path:
    """Return a zip of Trebuchet's packages for a cluster's executors, which have no checkout."""
    target = scratch / "trebuchet_code.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in _SHIPPED_PACKAGES:
            for path in sorted((_ROOT / package).rglob("*.py")):
                packed.write(path, path.relative_to(_ROOT))
    return target
