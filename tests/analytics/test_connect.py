"""Reports and the lake with a Spark Connect server, to which the client uploads our code."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from analytics import connect, session
from analytics.errors import ReportError
from analytics.reports.catalog import REPORTS
from analytics.request import Request
from analytics.run import sentence_of
from tests.analytics import run_report
from tests.analytics.lake.lakes import Lake, put_offsets, traffic_of
from tests.analytics.store_builder import StoreBuilder
from tests.analytics.test_spark_writer import run_ingest
from tests.support.ports import free_port
from tests.support.quick_java import QUICK_SPARK
from tests.support.sources import ROOT
from tests.support.spark_cluster import retry_slow_workers
from tests.support.spark_connect import connect_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECONDS = 600
CLIENT = ("grpc", "grpc_status", "pandas")


@pytest.fixture(scope="module")
def server(java_17: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    missing = [name for name in CLIENT if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{connect.PACKAGES} is not installed: there is no {', '.join(missing)}")
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, **QUICK_SPARK},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def report(name: str, server: str, store: Path, out: Path) -> tuple[int, list[dict[str, Any]], str]:
    arguments = (name, "--store", store, "--out", out, "--master", server)
    return retry_slow_workers(lambda: run_report.run(*arguments), lambda ended: str(ended[1]))


def keyed_store(root: Path) -> StoreBuilder:
    builder = StoreBuilder(root)
    for number in range(60):
        builder.put(properties=f"UNIQ_KEY\x01FD{number:04}\x02KEYS\x01k{number % 3} all".encode())
    return builder.put_many(60, ("bills",))


@pytest.mark.spark
def test_a_connect_server_counts_each_topic_and_each_key(server: str, tmp_path: Path) -> None:
    builder = keyed_store(tmp_path / "store")
    store = builder.write()

    for name in ("traffic", "keys"):
        code, events, errors = report(name, server, store, tmp_path / name)
        assert code == 0, errors
        assert events[-1]["event"] == "done"
    traffic, keys = (
        json.loads((tmp_path / name / "result.json").read_text()) for name in ("traffic", "keys")
    )

    counted: Counter[str] = Counter()
    for row in traffic["rows"]:
        counted[row["topic"]] += int(row["messages"])
    assert counted == Counter(one.topic for one in builder.stored)
    assert {row["key"]: int(row["messages"]) for row in keys["rows"]} == {
        "all": 60,
        "k0": 20,
        "k1": 20,
        "k2": 20,
    }
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == [
        "result.json",
        "result.parquet",
    ]


@pytest.mark.spark
def test_an_empty_store_gives_a_report_without_a_row_here_too(server: str, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store").write()

    code, events, errors = report("traffic", server, store, tmp_path / "out")

    assert code == 0, errors
    assert events[-1]["rows"] == 0


@pytest.mark.spark
def test_a_connect_server_fills_bronze_and_gold(server: str, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", file_bytes=64 * 1024).put_many(3000)
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root)

    done, text = run_ingest(server, builder, lake)

    assert (done["event"], done.get("rows"), done.get("batches")) == ("done", 3000, 1), text
    assert lake.offsets() == put_offsets(builder)
    assert lake.traffic() == traffic_of(builder.stored)


@pytest.mark.spark
def test_it_reads_the_commitlog_source_runs_our_code_and_is_cancelled(
    server: str, tmp_path: Path
) -> None:
    builder = keyed_store(tmp_path / "store")

    done = started("tests.analytics.on_connect", server, str(builder.write()), str(tmp_path))

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(found["topics"]) == sorted(one.topic for one in builder.stored)
    assert sum(keys is not None and "all" in keys for keys in found["keys"]) == 60
    assert found["has_properties"]
    assert found["made"] == ["-3", "0", "7"]
    assert found["cancelled"]


@pytest.mark.spark
def test_a_server_without_access_to_the_log_is_reported_with_advice(
    server: str, tmp_path: Path
) -> None:
    StoreBuilder(tmp_path / "store").put_many(20).write()

    # A directory for the client; missing for the server, which runs elsewhere.
    arguments = ("traffic", "--store", "/proc/self/cwd/store", "--out", tmp_path / "out")
    code, events, _ = retry_slow_workers(
        lambda: run_report.run(*arguments, "--master", server, cwd=tmp_path),
        lambda ended: str(ended[1]),
    )

    assert code == 1
    assert f"the Spark cluster at {server} doesn't see the log at" in events[-1]["message"]
    assert "or set TREBUCHET_SPARK_BROKERS" in events[-1]["message"]


@pytest.mark.parametrize(
    ("master", "address"),
    [
        ("sc://spark-1", ("spark-1", "15002")),
        ("sc://spark-1:1", ("spark-1", "1")),
        ("sc://spark-1:1/;use_ssl=true", ("spark-1", "1")),
        ("sc://[::1]", ("::1", "15002")),
        ("sc://[::1]:7/", ("::1", "7")),
    ],
)
def test_an_address_has_a_host_and_a_port(master: str, address: tuple[str, str]) -> None:
    assert session.address_of_server(master) == address


def test_an_unresponsive_server_is_named(tmp_path: Path) -> None:
    master = f"sc://127.0.0.1:{free_port()}"

    with pytest.raises(ReportError, match=r"The Spark Connect server at sc://.* doesn't respond"):
        connect.start_remote(tmp_path, master)

    nobody = SimpleNamespace(registerProgressHandler=lambda _: None)
    gone = connect.RemoteSpark(nobody, master)  # type: ignore[arg-type]
    assert gone.end_reason() == (
        f"The Spark Connect server at {master} stopped responding during the run."
    )


def test_a_token_comes_from_a_file_and_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(session.SECRET_FILE_VARIABLE, raising=False)
    assert connect.with_token("sc://spark-1") == "sc://spark-1"
    (tmp_path / "token").write_text("a;b=c/d\n")
    monkeypatch.setenv(session.SECRET_FILE_VARIABLE, str(tmp_path / "token"))

    assert connect.with_token("sc://spark-1/") == "sc://spark-1/;token=a%3Bb%3Dc%2Fd"
    assert connect.with_token("sc://spark-1:1/;use_ssl=true") == (
        "sc://spark-1:1/;use_ssl=true;token=a%3Bb%3Dc%2Fd"
    )


class Builder:
    """PySpark's builder, for sessions that fail before they exist."""

    def __init__(self, create: Callable[[], object]) -> None:
        self.create = create

    def remote(self, _: str) -> Builder:
        return self


def test_missing_packages_are_named_with_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create() -> object:
        raise ImportError("grpcio >= 1.48.1 must be installed")

    monkeypatch.setattr(session, "require_master", lambda _: None)
    monkeypatch.setattr(connect, "SparkSession", SimpleNamespace(builder=Builder(create)))

    with pytest.raises(ReportError, match=r"pip install .*deploy/requirements-connect\.lock"):
        connect.start_remote(tmp_path, "sc://spark-1")
    assert (ROOT / connect.PACKAGES).is_file()


class Refusing:
    """A session that rejects every setting."""

    def __init__(self, text: str) -> None:
        self._said = text
        self.is_stopped = False
        self.conf = self
        self.client = self
        self.release_session_on_close = True

    def set_retry_policies(self, _: object) -> None:
        pass

    def registerProgressHandler(self, _: object) -> None:  # noqa: N802 - Spark's name
        pass

    def set(self, _: str, __: str) -> None:
        raise PySparkException(self._said)

    def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "StatusCode.UNAUTHENTICATED: no",
            "refused access. Put its token in the first line of the file that",
        ),
        (
            "StatusCode.UNIMPLEMENTED: what?",
            "Check that a Spark Connect server of the right version",
        ),
    ],
)
def test_a_server_that_accepts_no_session_is_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    refusing = Refusing(text)
    monkeypatch.setattr(session, "require_master", lambda _: None)
    monkeypatch.setattr(connect, "limit_retries", lambda _: None)
    builder = Builder(lambda: refusing)
    monkeypatch.setattr(connect, "SparkSession", SimpleNamespace(builder=builder))

    with pytest.raises(ReportError, match=sentence):
        connect.start_remote(tmp_path, f"sc://127.0.0.1:{free_port()}")

    assert refusing.is_stopped


def test_progress_is_each_stages_last_report_from_the_server() -> None:
    stages = connect.Stages()
    first, second = (
        SimpleNamespace(stage_id=stage, num_completed_tasks=done)
        for stage, done in ((4, 3), (5, 0))
    )

    assert stages.tasks == {}
    stages([second, first], 1, None, done=False)
    # The last call may not know the number of stages.
    stages(None, 0, None, done=True)
    assert stages.tasks == {4: 3, 5: 0}
    stages.clear()
    assert stages.tasks == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] 3.12",
            "at sc://h run a different Python version than this machine",
        ),
        ("ModuleNotFoundError: No module named 'msgspec'", "Install pyarrow, numpy and msgspec"),
    ],
)
def test_missing_prerequisites_of_workers_are_reported_in_one_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    request = Request(REPORTS["traffic"], tmp_path, tmp_path, master="sc://h")

    assert sentence in sentence_of(PySparkException(text), request)
