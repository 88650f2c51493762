from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import stat
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from analytics import session
from analytics.errors import ReportError
from tests.analytics import run_report
from tests.analytics.store_builder import StoreBuilder
from tests.support.ports import accepts, free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SPARK_HOME = Path(pyspark.__file__).parent


def test_a_session_has_no_page_no_outside_port_and_a_bounded_heap(tmp_path: Path) -> None:
    found = session.settings(tmp_path)

    assert found["spark.ui.enabled"] == "false"
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.driver.memory"] == found["spark.executor.memory"] == "1g"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.master"] == "local[*]"


def test_a_secret_goes_to_clusters_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    monkeypatch.setenv(session.SECRET_FILE_VARIABLE, str(tmp_path / "secret"))

    cluster = session.cluster_secrets("spark://127.0.0.1:7077")

    assert cluster["spark.authenticate"] == "true"
    assert cluster["spark.authenticate.secret"] == "s3cret"
    assert session.cluster_secrets("local[*]") == {}


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_a_secret_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "secret").write_text(content)
    monkeypatch.setenv(session.SECRET_FILE_VARIABLE, str(tmp_path / "secret"))

    with pytest.raises(ReportError, match=session.SECRET_FILE_VARIABLE):
        session.cluster_secrets("spark://127.0.0.1:7077")


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "127.0.0.1", "[::1]:{port},h:99999"])
def test_a_master_that_does_not_answer_is_named(address: str) -> None:
    master = f"spark://{address.format(port=free_port())}"

    with pytest.raises(ReportError, match="The Spark master does not answer at spark://"):
        session.require_master(master)


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        session.require_master(f"spark://127.0.0.1:{free_port()},127.0.0.1:{port}")


@pytest.mark.spark
def test_a_running_session_listens_on_loopback_only(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    listening = _listening_addresses(gateway.proc.pid)

    assert listening
    assert listening <= {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.spark
def test_its_files_are_its_own(spark: SparkSession) -> None:
    scratch = Path(os.environ["SPARK_LOCAL_DIRS"])

    assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
    assert stat.S_IMODE((scratch / "conf").stat().st_mode) == 0o700


@pytest.mark.spark
def test_a_standalone_cluster_gives_the_same_report(java_17: Path, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(300)
    secret = tmp_path / "secret"
    secret.write_text(secrets.token_hex(16))
    secret.chmod(0o600)
    with _standalone_cluster(tmp_path, secret) as master:
        code, events, errors = run_report.run(
            "traffic",
            *("--store", builder.write(), "--out", tmp_path / "out", "--master", master),
            environment={**os.environ, session.SECRET_FILE_VARIABLE: str(secret)},
        )

    assert code == 0, errors
    assert events[-1]["messages"] == "300"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "result.json",
        "result.parquet",
    ]


@contextmanager
def _standalone_cluster(directory: Path, secret: Path) -> Iterator[str]:
    """Run a master and a worker of Spark's own, as an operator would elsewhere."""
    port = free_port()
    settings = directory / "cluster.conf"
    settings.write_text(
        f"spark.authenticate true\nspark.authenticate.secret {secret.read_text()}\n"
        "spark.network.crypto.enabled true\nspark.ui.enabled false\n"
    )
    common = ("--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(settings))
    master = f"spark://127.0.0.1:{port}"
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.append(_daemon(directory, "master.Master", "--port", str(port), *common))
        until(lambda: accepts(port), "Spark's master", seconds=60)
        work = ("--work-dir", str(directory / "work"), "--cores", "1", "--memory", "1g")
        processes.append(_daemon(directory, "worker.Worker", *work, *common, master))
        yield master
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)


def _daemon(directory: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {
        key: value
        for key, value in os.environ.items()
        if not re.match("SPARK_|PYSPARK_|PYTHONPATH", key)
    }
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        return subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            cwd=directory,
            env={**environment, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def _listening_addresses(pid: int) -> set[str]:
    """Return the local addresses, as the kernel writes them, that a process listens on."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.add(fields[1].rpartition(":")[0])
    return found
