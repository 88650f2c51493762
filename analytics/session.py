"""The only SparkSession builder.

Spark is a guest on the broker's machine: no web page, no port beyond loopback, none that answers
whoever lacks its secret, a bounded heap, scratch files in a directory of its own that nobody else
may read, UTC everywhere.

Source: Spark 4.3 configuration and security pages ("none are secure by default").
"""

from __future__ import annotations

import functools
import logging
import os
import shlex
import socket
import subprocess
import sys
import time
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from analytics import class_archive
from analytics.errors import ReportError
from analytics.guest import JAVA_OPTIONS, is_guest
from analytics.java import require_java
from analytics.request import CONNECT_PREFIX, LOOPBACK, MASTER_DEFAULT
from analytics.sources.commitlog import CommitLogDataSource
from analytics.sources.rocketmq import RocketMqDataSource
from analytics.zygote import Zygote, launcher
from broker_core.environment import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from py4j.java_gateway import JavaGateway

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

MEMORY_DEFAULT = "1g"
# What one result may bring back to the driver; a report is a table for people, not an export.
RESULT_BYTES_MAX = 256 * 1024 * 1024
SHUFFLE_PARTITIONS = 8
CLUSTER_PREFIX = "spark://"
JOB_GROUP = "trebuchet-report"
MASTER_ANSWER_SECONDS = 5
# Both end in a sentence: nobody who asked waits longer for one.
EXECUTOR_SECONDS_MAX = 30.0
SIGHT_SECONDS_MAX = 30.0
EXECUTOR_ASKED_SECONDS = 0.2
JAVA_EXIT_SECONDS = 10
JAVA_ENDING_SECONDS = 0.5
CONNECT_PORT = 15002
SECRET_FILE_VARIABLE = "TREBUCHET_SPARK_SECRET_FILE"
JAVA_ENDED = "Spark's Java process ended in the middle of the run; the log says why."
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
        "spark.app.name": "trebuchet reports",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        "spark.driver.host": driver_host,
        "spark.driver.bindAddress": driver_host,
        "spark.driver.memory": MEMORY_DEFAULT,
        "spark.executor.memory": MEMORY_DEFAULT,
        "spark.driver.maxResultSize": str(RESULT_BYTES_MAX),
        "spark.driver.extraJavaOptions": (
            f'"-Djava.io.tmpdir={scratch}" -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError'
            f' "-Dlog4j2.configurationFile={_log_settings(scratch)}"'
            + (f" {JAVA_OPTIONS}" if is_guest() else "")
            + (f" {java_options}" if java_options else "")
        ),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.log.level": "WARN",
        **sql_settings(),
    }


def sql_settings() -> dict[str, str]:
    """Return the settings that make a report's numbers; each session may have its own of these."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        # It drops a whole stage that read no row, and with it what was to be observed there.
        "spark.sql.adaptive.optimizer.excludedRules": _NO_EMPTY_RELATION,
    }


def authentication(master: str) -> dict[str, str]:
    """Return the settings by which the driver and whoever it talks to know each other.

    Without a cluster, nobody needs the secret: the JVM makes one that never leaves it. With one,
    it is the first line of the file that the environment names; without such a file the cluster
    asks for none.

    Raises:
        ReportError: the file that the environment names cannot be read, or is empty.
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
    """Return the first line of the file that the environment names, "" where it names none.

    Raises:
        ReportError: the file cannot be read, or is empty.
    """
    secret_file = os.environ.get(SECRET_FILE_VARIABLE, "")
    if not secret_file:
        return ""
    try:
        lines = Path(secret_file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(
            f"The Spark secret cannot be read from {secret_file}, which {SECRET_FILE_VARIABLE} "
            "names: it must be a text file that this user may read."
        ) from error
    if not lines or not lines[0].strip():
        raise ReportError(f"{secret_file}, which {SECRET_FILE_VARIABLE} names, is empty.")
    return lines[0].strip()


def is_local(master: str) -> bool:
    """Return whether Spark works in its own Java process, not in a cluster."""
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Return whether Spark is a Spark Connect server, whose Java process is not ours."""
    return master.startswith(CONNECT_PREFIX)


def require_master(master: str) -> None:
    """Check that a master, or a server, accepts connections: Spark itself would try for minutes.

    Raises:
        ReportError: none of the addresses answers.
    """
    if is_connect(master):
        if not answers(*address_of_server(master)):
            raise ReportError(
                f"The Spark Connect server does not answer at {master}: is it running there?"
            )
        return
    if not master.startswith(CLUSTER_PREFIX):
        return
    addresses = master.removeprefix(CLUSTER_PREFIX).split(",")
    for address in addresses:
        host, _, port = address.rpartition(":")
        if answers(host.strip("[]"), port, MASTER_ANSWER_SECONDS / len(addresses)):
            return
    raise ReportError(f"The Spark master does not answer at {master}: is it running there?")


def address_of_server(master: str) -> tuple[str, str]:
    """Return host and port of a Spark Connect server, `sc://host:port/;name=value`."""
    address = master.removeprefix(CONNECT_PREFIX).partition("/")[0]
    host, colon, port = address.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = address, str(CONNECT_PORT)
    return host.strip("[]"), port


def answers(host: str, port: str, seconds: float = MASTER_ANSWER_SECONDS) -> bool:
    """Return whether something accepts connections there within so many seconds."""
    try:
        socket.create_connection((host, int(port or 0)), seconds).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


def require_executor(spark: Spark, master: str) -> None:
    """Wait until a cluster's worker has an executor for us: Spark itself would wait for ever.

    Raises:
        ReportError: none came within EXECUTOR_SECONDS_MAX.
    """
    if not master.startswith(CLUSTER_PREFIX):
        return
    give_up = time.monotonic() + EXECUTOR_SECONDS_MAX
    while not spark.executors():
        if time.monotonic() > give_up:
            raise ReportError(
                f"No worker of the Spark cluster at {master} took the work within "
                f"{EXECUTOR_SECONDS_MAX:.0f} s: it needs one with a free core and "
                f"{MEMORY_DEFAULT} of memory."
            )
        time.sleep(EXECUTOR_ASKED_SECONDS)


class Spark:
    """A running Spark with its Java process; one in the life of a Python process.

    Attributes:
        session: what frames are read by.
    """

    def __init__(self, session: SparkSession, gateway: JavaGateway, master: str) -> None:
        self.session = session
        self._master = master
        self._gateway = gateway
        self._java: subprocess.Popen[bytes] = gateway.proc

    @property
    def java_pid(self) -> int:
        return self._java.pid

    def begin(self, title: str) -> None:
        """Say what this thread asks for from now on, so that `cancel` ends it."""
        self.session.sparkContext.setJobGroup(JOB_GROUP, title, interruptOnCancel=True)

    def cancel(self) -> None:
        """End what runs; what has not begun yet is not reached."""
        try:
            self.session.sparkContext.cancelJobGroup(JOB_GROUP)
        except (Py4JError, OSError):
            # A signal to the whole process group ends the Java process, too.
            logger.info("Spark is gone already")

    def width(self) -> int:
        return self.session.sparkContext.defaultParallelism

    def each(self, work: Callable[[Item], str], items: Sequence[Item]) -> list[str]:
        """Return what `work` says of each of the items, one task for each.

        Raises:
            PySparkException, Py4JError: Spark failed, or was cancelled.
        """
        return list(self.session.sparkContext.parallelize(items, len(items)).map(work).collect())

    @contextmanager
    def watched(self, *, tells_rows: bool) -> Iterator[Callable[[], tuple[int, int]]]:
        """Give what tells of the first stage of the jobs to come: tasks done, and rows read."""
        yield functools.partial(self._first_stage, frozenset(self._jobs()), tells_rows)

    def _first_stage(self, before: frozenset[int], tells_rows: bool) -> tuple[int, int]:
        tracker = self.session.sparkContext.statusTracker()
        stages = [
            stage
            for job in set(self._jobs()) - before
            if (info := tracker.getJobInfo(job)) is not None
            for stage in info.stageIds
        ]
        if not stages or (first := tracker.getStageInfo(min(stages))) is None:
            return 0, 0
        return first.numCompletedTasks, self._records_read(min(stages)) if tells_rows else 0

    def _jobs(self) -> list[int]:
        return list(self.session.sparkContext.statusTracker().getJobIdsForGroup(JOB_GROUP))

    def _records_read(self, stage_id: int) -> int:
        """Return how many records a stage has read so far; Spark's status tracker lacks them."""
        context = self._gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
        return int(context.statusStore().lastStageAttempt(stage_id).inputRecords())

    def executors(self) -> int:
        """Return how many processes of a cluster's workers are ready for tasks.

        Raises:
            Py4JError: Spark is gone.
        """
        context = self._gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
        return int(context.getExecutorMemoryStatus().size()) - 1  # the driver counts itself

    def close(self) -> None:
        """End Spark; of one that nobody else has a part in, the Java process holds nothing."""
        if is_local(self._master):
            # A second sooner than in order, and its scratch files go with the run.
            self._java.kill()
            self._java.wait()
        else:
            self.stop()

    def stop(self, seconds: float = JAVA_EXIT_SECONDS) -> None:
        """Stop Spark and wait for its Java process to end, so that its files can be removed."""
        try:
            self.session.stop()
            self._gateway.shutdown()
        except (Py4JError, OSError):
            logger.info("Spark's Java process was gone before it was stopped")
        if self._java.stdin is not None:
            self._java.stdin.close()  # the Java side lives as long as this pipe
        try:
            self._java.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            logger.warning("Spark's Java process did not end in %d s: killed", seconds)
            self._java.kill()
            self._java.wait()

    def why_gone(self) -> str:
        """Return a sentence if the Java process is gone, after giving it a moment to go, or ""."""
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
    java_options: str | None = None,
    zygote: Zygote | None = None,
) -> Spark:
    """Start Spark with our data sources registered; blocks for seconds.

    `scratch` must exist, belong to this run only, and be removed by the caller afterwards. Without
    `java_options`, Java takes the archive of Spark's classes where there is one. The Python workers
    of a Spark on this machine are forked from the `zygote`.

    Raises:
        ReportError: no usable Java, no master that answers, or a secret that cannot be read.
    """
    java = require_java()
    require_master(master)
    scratch.chmod(0o700)
    classes = class_archive.directory()
    _prepare_environment(scratch, authentication(master), classes)
    python = str(_python_in(scratch, zygote)) if is_local(master) else sys.executable
    os.environ["PYSPARK_PYTHON"] = python
    if java_options is None:
        java_options = class_archive.options_for(classes, java)
    wanted = settings(
        scratch, master=master, driver_host=driver_host, java_options=java_options
    ) | dict(more or {})
    conf = SparkConf(loadDefaults=False).setAll(list(wanted.items()))
    gateway: JavaGateway = launch_gateway(conf)  # type: ignore[no-untyped-call]  # PySpark's
    context = SparkContext(conf=conf, gateway=gateway)
    session = SparkSession(context)
    if not is_local(master):
        context.addPyFile(str(packed_code(scratch)))
    for source in (CommitLogDataSource, RocketMqDataSource):
        session.dataSource.register(source)
    return Spark(session, gateway, master)


def _log_settings(scratch: Path) -> Path:
    return scratch / "settings" / "log4j2.properties"


def _prepare_environment(scratch: Path, secrets: Mapping[str, str], classes: Path | None) -> None:
    """Set what Java and the Python workers inherit: nothing of another Spark, no secret."""
    log_settings = _log_settings(scratch)
    log_settings.parent.mkdir(mode=0o700, exist_ok=True)
    log_settings.write_text(_LOG_SETTINGS)
    # By file: other settings travel in the arguments of the Java process, which anyone may read.
    properties = log_settings.parent / "spark.properties"
    properties.touch(mode=0o600)
    properties.write_text("".join(f"{key} {value}\n" for key, value in secrets.items()))
    # It is on the class path, and nothing in it: an archive of classes fits no other.
    conf = scratch / "conf" if classes is None else class_archive.conf_in(classes)
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


def _python_in(scratch: Path, zygote: Zygote | None) -> Path:
    """Return a Python for Spark's workers that finds PySpark where we found it.

    Spark puts its own copy of PySpark before everything on their path: a zip without compiled
    modules, which each worker would compile again, for a second and more.
    """
    directory = scratch / "settings"
    lines = "#!/bin/sh\n" + f"export PYTHONPATH={shlex.quote(os.environ['PYTHONPATH'])}\n"
    if zygote is not None:
        try:
            zygote.listen(directory)
            lines += launcher(sys.executable, directory)
        except OSError as error:
            logger.warning("Spark's Python workers start one by one: %s", error.strerror)
    python = directory / "python"
    python.write_text(lines + f'exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o700)
    return python


def packed_code(scratch: Path) -> Path:
    """Return a zip of our packages: the executors of a cluster have no checkout."""
    target = scratch / "trebuchet_code.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in _SHIPPED_PACKAGES:
            for path in sorted((_ROOT / package).rglob("*.py")):
                packed.write(path, path.relative_to(_ROOT))
    return target
