from __future__ import annotations

import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from analytics import session
from analytics.errors import ReportError
from broker_core.environment import is_secret
from tests.analytics import run_report
from tests.analytics.store_builder import StoreBuilder
from tests.support import spark_stranger as stranger
from tests.support.ports import free_port
from tests.support.processes import command_of, environment_of, listening
from tests.support.spark_cluster import retry_slow_workers

if TYPE_CHECKING:
    from analytics.session import Spark
    from tests.support.spark_cluster import SparkCluster

SPARK_HOME = Path(pyspark.__file__).parent


def test_a_session_has_no_web_ui_no_outside_port_and_a_limited_heap(tmp_path: Path) -> None:
    found = session.settings(tmp_path)

    assert found["spark.ui.enabled"] == "false"
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.driver.memory"] == found["spark.executor.memory"] == "1g"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.master"] == "local[1]"


def test_a_secret_is_only_sent_to_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    monkeypatch.setenv(session.SECRET_FILE_VARIABLE, str(tmp_path / "secret"))

    cluster = session.authentication("spark://127.0.0.1:7077")
    local = session.authentication("local[*]")

    assert cluster["spark.authenticate"] == local["spark.authenticate"] == "true"
    assert cluster["spark.authenticate.secret"] == "s3cret"
    assert "s3cret" not in local.values()


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_an_unusable_secret_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "secret").write_text(content)
    monkeypatch.setenv(session.SECRET_FILE_VARIABLE, str(tmp_path / "secret"))

    with pytest.raises(ReportError, match=session.SECRET_FILE_VARIABLE):
        session.authentication("spark://127.0.0.1:7077")


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "127.0.0.1", "[::1]:{port},h:99999"])
def test_an_unresponsive_master_is_named(address: str) -> None:
    master = f"spark://{address.format(port=free_port())}"

    with pytest.raises(ReportError, match=r"The Spark master at spark://.* doesn't respond"):
        session.require_master(master)


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        session.require_master(f"spark://127.0.0.1:{free_port()},127.0.0.1:{port}")


@pytest.mark.spark
def test_a_running_session_listens_only_on_loopback(running_spark: Spark) -> None:
    addresses = {address for address, _ in listening(running_spark.java_pid)}

    assert addresses
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.spark
def test_a_process_without_the_secret_gets_nothing_from_its_ports(running_spark: Spark) -> None:
    # Java's ports, and those of this process, to which Java reports sums of tasks.
    java, python = listening(running_spark.java_pid), listening(os.getpid())
    with ThreadPoolExecutor(len(java)) as threads:
        # Silent ports are waited for in parallel.
        ports = sorted({port for _, port in java})
        found = threads.map(lambda port: stranger.ask(port, stranger.GATEWAY_CALL), ports)
    refusals = dict(zip(ports, found, strict=True))

    # py4j's gateway rejects with a message; the driver's RPC and its block manager can't parse it.
    gateway = [port for port, answer in refusals.items() if answer]
    assert [refusals[port][:2] for port in gateway] == [b"!x"]
    others = refusals.keys() - gateway
    # These two, and leftovers from the streams of earlier tests.
    assert len(others) >= 2
    with ThreadPoolExecutor(len(others)) as threads:
        answers = [
            threads.submit(stranger.ask, port, request)
            for port in others
            for request in (stranger.for_blocks(), stranger.to_the_driver(port))
        ]
    assert not [one for one in answers if stranger.is_answer(one.result())]
    assert python
    for _, port in python:
        assert stranger.ask(port, 1_000 * b"x") == b""


@pytest.mark.spark
def test_javas_secrets_are_neither_on_its_command_line_nor_in_its_environment(
    running_spark: Spark,
) -> None:
    conf = dict(running_spark.session.sparkContext.getConf().getAll())
    command = command_of(running_spark.java_pid)
    variables = [one.partition("=") for one in environment_of(running_spark.java_pid).splitlines()]

    assert conf["spark.authenticate"] == "true"
    assert "spark.authenticate.secret" not in conf
    assert "SparkSubmit" in command
    assert "secret" not in command.lower()
    assert variables
    assert not [name for name, _, value in variables if is_secret(name, value)]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_its_files_are_separate() -> None:
    scratch = Path(os.environ["SPARK_LOCAL_DIRS"])

    assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
    assert stat.S_IMODE((scratch / "settings").stat().st_mode) == 0o700
    assert stat.S_IMODE((scratch / "settings" / "spark.properties").stat().st_mode) == 0o600


@pytest.mark.spark
def test_a_standalone_cluster_gives_the_same_report(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(300)

    arguments = ("--store", builder.write(), "--out", tmp_path / "out")
    environment = {**os.environ, session.SECRET_FILE_VARIABLE: str(spark_cluster.secret)}

    code, events, errors = retry_slow_workers(
        lambda: run_report.run(
            "traffic", *arguments, "--master", spark_cluster.master, environment=environment
        ),
        lambda ended: str(ended[1]),
    )

    assert code == 0, errors
    assert events[-1]["totals"]["messages"] == "300"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "result.json",
        "result.parquet",
    ]
