"""The only SparkSession builder.

Spark as a guest on the broker's machine: no web page, no port beyond loopback, a bounded heap, its
scratch files in a directory of their own that nobody else may read, UTC everywhere.

Source: Spark 4.3 configuration and security pages ("none are secure by default").
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from analytics.commitlog_source import CommitLogDataSource
from analytics.errors import ReportError
from analytics.java import require_java

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
MEMORY_DEFAULT = "1g"
MASTER_DEFAULT = "local[*]"
# What one result may bring back to the driver; a report is a table for people, not an export.
RESULT_BYTES_MAX = 256 * 1024 * 1024
SHUFFLE_PARTITIONS = 8
CLUSTER_PREFIX = "spark://"
MASTER_ANSWER_SECONDS = 5
JAVA_EXIT_SECONDS = 10
JAVA_ENDING_SECONDS = 0.5
SECRET_FILE_VARIABLE = "TREBUCHET_SPARK_SECRET_FILE"
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
# Says on every machine that no native Hadoop library is there; reports use none.
logger.hadoop.name = org.apache.hadoop.util.NativeCodeLoader
logger.hadoop.level = error
"""


def settings(
    scratch: Path, *, master: str = MASTER_DEFAULT, driver_host: str = LOOPBACK
) -> dict[str, str]:
    """Return every Spark setting a session gets; `scratch` holds all its files."""
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
        ),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        # The commitlog source prunes files and rows itself; Spark refuses that otherwise.
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.log.level": "WARN",
    }


def cluster_secrets(master: str) -> dict[str, str]:
    """Return what a cluster that asks for a secret needs; the secret is the file's first line.

    Raises:
        ReportError: the file that the environment names cannot be read, or is empty.
    """
    secret_file = os.environ.get(SECRET_FILE_VARIABLE, "")
    if not secret_file or master.startswith("local"):
        return {}
    try:
        lines = Path(secret_file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(
            f"The Spark secret cannot be read from {secret_file}, which {SECRET_FILE_VARIABLE} "
            "names: it must be a text file that this user may read."
        ) from error
    if not lines or not lines[0].strip():
        raise ReportError(f"{secret_file}, which {SECRET_FILE_VARIABLE} names, is empty.")
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": lines[0].strip(),
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
    }


def require_master(master: str) -> None:
    """See that a cluster's master accepts connections: Spark itself would try for minutes.

    Raises:
        ReportError: none of the addresses answers.
    """
    if not master.startswith(CLUSTER_PREFIX):
        return
    for address in master.removeprefix(CLUSTER_PREFIX).split(","):
        host, _, port = address.rpartition(":")
        try:
            connection = (host.strip("[]"), int(port or 0))
            socket.create_connection(connection, MASTER_ANSWER_SECONDS).close()
        except (OSError, ValueError, OverflowError):
            continue
        return
    raise ReportError(f"The Spark master does not answer at {master}: is it running there?")


def build_session(
    scratch: Path,
    *,
    master: str = MASTER_DEFAULT,
    driver_host: str = LOOPBACK,
    more: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark with the commitlog source registered; blocks for seconds.

    `scratch` must exist, belong to this run only, and be removed by the caller afterwards.

    Raises:
        ReportError: no usable Java, no master that answers, or a secret that cannot be read.
    """
    require_java()
    require_master(master)
    scratch.chmod(0o700)
    _prepare_environment(scratch, cluster_secrets(master))
    builder = SparkSession.builder
    wanted = settings(scratch, master=master, driver_host=driver_host) | dict(more or {})
    for key, value in wanted.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if not master.startswith("local"):
        session.sparkContext.addPyFile(str(_packed_code(scratch)))
    session.dataSource.register(CommitLogDataSource)
    return session


def stop_session(session: SparkSession) -> None:
    """Stop Spark and see its Java process end, so that its files can be removed."""
    gateway = session.sparkContext._gateway
    process = _java_process(session)
    try:
        session.stop()
        if gateway is not None:
            gateway.shutdown()
    except (Py4JError, OSError):
        logger.info("Spark's Java process was gone before it was stopped")
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is None:
        return
    if process.stdin is not None:
        process.stdin.close()  # the Java side lives as long as this pipe
    try:
        process.wait(timeout=JAVA_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        logger.warning("Spark's Java process did not end in %d s: killed", JAVA_EXIT_SECONDS)
        process.kill()
        process.wait()


def java_has_ended(session: SparkSession) -> bool:
    """Tell whether Spark's Java process is gone, giving it a moment to go."""
    process = _java_process(session)
    if process is None:
        return False
    try:
        process.wait(timeout=JAVA_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _java_process(session: SparkSession) -> subprocess.Popen[bytes] | None:
    return getattr(session.sparkContext._gateway, "proc", None)


def _prepare_environment(scratch: Path, secrets: Mapping[str, str]) -> None:
    """Set what Java and the Python workers inherit; no other Spark's settings leak in."""
    conf = scratch / "conf"
    conf.mkdir(mode=0o700, exist_ok=True)
    (conf / "log4j2.properties").write_text(_LOG_SETTINGS)
    # By file: other settings travel in the arguments of the Java process, which anyone may read.
    defaults = conf / "spark-defaults.conf"
    defaults.touch(mode=0o600)
    defaults.write_text("".join(f"{key} {value}\n" for key, value in secrets.items()))
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_MASTER"):
        os.environ.pop(name, None)
    paths = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ |= {
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(scratch),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
    }


def _packed_code(scratch: Path) -> Path:
    """Return a zip of our packages: the executors of a cluster have no checkout."""
    target = scratch / "trebuchet_code.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in _SHIPPED_PACKAGES:
            for path in sorted((_ROOT / package).rglob("*.py")):
                packed.write(path, path.relative_to(_ROOT))
    return target
