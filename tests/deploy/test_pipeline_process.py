"""The pipeline's process: when it runs, which process works on the lake, and its life."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from celery import Celery

from analytics.java import require_java
from console.lib.queues import INGEST, QUEUE
from console.processes import children_of
from deploy.brokers import broker_file, cluster
from deploy.machine import java, redis_server
from deploy.machine.data_directory import NotStartedError
from deploy.processes import programs
from deploy.settings import options
from tests.analytics.lake.lakes import BROKER, Lake, put_offsets
from tests.analytics.store_builder import StoreBuilder
from tests.support.processes import command_of, is_alive, status_of
from tests.support.quick_java import QUICK_SPARK
from tests.support.sources import ROOT
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEMORY_KIB = 8 * 1024**2
IDLE_SECONDS = 30
SECONDS_MAX = 240
STANDBY_KIB_MAX = 20 * 1024


def started(data: Path, *arguments: str, **environment: str) -> tuple[list[str], dict[str, str]]:
    """Return the processes in start order, with their environment."""
    parsed = options.parse(arguments, {"TREBUCHET_DATA": str(data), **environment})
    broker = broker_file.settings(broker_file.effective_file(None, data))
    own = cluster.settings(broker, parsed)
    chosen = programs.chosen(parsed, own, None, with_queue=True)
    variables = programs.variables(parsed, own, "", "spark")
    return [one.name for one in sorted(chosen, key=lambda one: one.priority)], variables


@pytest.mark.parametrize("text", ["", "false", "true", "s3://bucket/lake"])
def test_it_runs_beside_the_collector_with_and_without_a_lake(tmp_path: Path, text: str) -> None:
    names, _variables = started(tmp_path, TREBUCHET_LAKE=text)

    assert names == ["broker", "web", "collector", "pipeline", "worker", "beat"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [(None, "true"), ("", "true"), ("no", None), ("/srv/lake", "/srv/lake"), ("true", "true")],
)
def test_a_lake_is_kept_unless_it_is_disabled(
    tmp_path: Path, text: str | None, kept: str | None
) -> None:
    given = {} if text is None else {"TREBUCHET_LAKE": text}

    assert options.parse([], {"TREBUCHET_DATA": str(tmp_path), **given}).lake == kept


def test_it_keeps_the_logs_of_all_masters_but_of_no_slave(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()

    names, variables = started(tmp_path, "--brokers", "2", "--slave")

    assert names.count("pipeline") == 1
    sources = json.loads(variables["TREBUCHET_LAKE_SOURCES"])
    assert [one["broker"] for one in sources] == ["broker-a", "broker-b"]
    assert len({one["store"] for one in sources}) == 2


NO_JAVA = "java isn't on PATH"


@pytest.mark.parametrize(
    ("reason", "memory_kib", "setting", "engine"),
    [
        (None, MEMORY_KIB, "", "spark"),
        (None, java.MEMORY_KIB_MIN - 1, "", "arrow"),
        (NO_JAVA, MEMORY_KIB, "", "arrow"),
        (NO_JAVA, MEMORY_KIB, "arrow", "arrow"),
        (None, MEMORY_KIB, "arrow", "arrow"),
        (None, java.MEMORY_KIB_MIN - 1, " Spark ", "spark"),
    ],
)
def test_spark_works_on_the_lake_if_there_are_java_and_memory(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reason: str | None,
    memory_kib: int,
    setting: str,
    engine: str,
) -> None:
    monkeypatch.setattr(java, "memory", lambda: memory_kib)

    assert java.engine({java.ENGINE_VARIABLE: setting}, reason) == engine

    output = capsys.readouterr().out.splitlines()
    lacks = reason is not None or (memory_kib < java.MEMORY_KIB_MIN and not setting)
    assert len(output) == (1 if lacks else 0)
    assert all("Arrow writer" in line for line in output)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("spark", f"TREBUCHET_PIPELINE_ENGINE is spark, but {NO_JAVA}. Install Java 17"),
        ("flink", "TREBUCHET_PIPELINE_ENGINE is 'flink'; it must be spark or arrow"),
    ],
)
def test_an_engine_that_cannot_run_is_rejected(setting: str, sentence: str) -> None:
    with pytest.raises(NotStartedError, match=sentence):
        java.engine({java.ENGINE_VARIABLE: setting}, NO_JAVA)


def test_a_spark_connect_server_needs_no_local_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert java.missing() is not None

    monkeypatch.setenv("TREBUCHET_SPARK_MASTER", "sc://spark.example:15002")
    assert java.missing() is None


def test_the_limit_of_a_container_is_its_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(java, "CGROUP_LIMIT", limit)
    whole = java.memory()

    limit.write_text("max\n")
    assert java.memory() == whole
    limit.write_text(f"{512 * 1024**2}\n")
    assert java.memory() == 512 * 1024


class Pipeline:
    """Redis and the pipeline as deploy/up runs them, with a store that a test writes."""

    def __init__(self, directory: Path) -> None:
        binary = redis_server.find()
        assert binary is not None, "this test needs redis-server"
        redis = directory / "redis"
        redis.mkdir()
        self.builder = StoreBuilder(directory / "store").put_many(200)
        self.builder.write()
        self.lake = Lake(directory / "lake", self.builder.root)
        self._log = directory / "pipeline.log"
        url = redis_server.url(redis / "redis.sock")
        self._environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "PYTHONPATH": str(ROOT),
            "TREBUCHET_DATA": str(directory),
            "TREBUCHET_LAKE_SOURCES": json.dumps(
                [{"broker": BROKER, "store": str(self.builder.root), "commit_log": ""}]
            ),
            "TREBUCHET_PIPELINE_ENGINE": "spark",
            "TREBUCHET_REDIS_URL": url,
            **QUICK_SPARK,
            "TREBUCHET_SPARK_IDLE": str(IDLE_SECONDS),
        }
        self._redis = subprocess.Popen(redis_server.command(binary, redis / "redis.sock", redis))
        until(lambda: redis_server.answers(redis / "redis.sock"), "Redis to respond")
        self._queue = Celery(broker=f"redis+socket://{redis / 'redis.sock'}")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(migrate, cwd=ROOT, env=self._environment, check=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "console.data.pipeline.standby"],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        until(lambda: "standing by" in self.log, "the pipeline to stand by")

    def close(self) -> None:
        for process in (self._process, self._redis):
            if process is not None:
                process.terminate()
                process.wait(SECONDS_MAX)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        assert self._process.poll() is None, self.log
        return self._process.pid

    @property
    def is_standby(self) -> bool:
        return "console.data.pipeline.standby" in command_of(self.pid)

    def sessions(self) -> list[int]:
        """Return the process with a Spark session, if there is one."""
        return [pid for pid in children_of(self.pid) if "analytics.serve" in command_of(pid)]

    def javas(self) -> list[int]:
        return [
            pid
            for session in self.sessions()
            for pid in children_of(session)
            if "SparkSubmit" in command_of(pid)
        ]

    def send(self) -> None:
        """Send the job that ingests the log."""
        self._queue.send_task(INGEST, kwargs={"broker": BROKER}, queue=QUEUE)

    def has_all(self) -> bool:
        """Return whether each message of the log is in the lake exactly once."""
        return (self.lake.directory / "status.json").exists() and (
            self.lake.offsets() == put_offsets(self.builder)
        )


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    require_java()
    running = Pipeline(tmp_path)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.spark
def test_spark_starts_with_a_job_survives_it_and_ends_after_idle_time(
    pipeline: Pipeline,
) -> None:
    pipeline.start()
    assert (pipeline.is_standby, pipeline.sessions()) == (True, [])
    first = pipeline.pid
    pipeline.send()
    until(pipeline.has_all, "the lake to have the log", seconds=SECONDS_MAX)
    until(lambda: "succeeded" in pipeline.log, "the job's end", seconds=SECONDS_MAX)
    (session,), (java_process,) = pipeline.sessions(), pipeline.javas()
    assert not pipeline.is_standby

    # A stopped Java keeps the job until it's killed.
    os.kill(java_process, signal.SIGSTOP)
    pipeline.builder.put_many(50).write()
    pipeline.send()
    until(lambda: pipeline.log.count("received") == 2, "the next job", seconds=SECONDS_MAX)
    os.kill(java_process, signal.SIGKILL)
    until(lambda: not is_alive(session), "the session without its Java to end")
    until(lambda: "job failed job=ingest" in pipeline.log, "the log to say why")
    assert not pipeline.has_all()

    pipeline.send()
    until(pipeline.has_all, "the next job to finish the killed one's work", seconds=SECONDS_MAX)
    until(lambda: pipeline.log.count("succeeded") == 3, "the job's end", seconds=SECONDS_MAX)
    (session,) = pipeline.sessions()
    until(lambda: pipeline.is_standby, "an idle pipeline", seconds=SECONDS_MAX)
    until(lambda: not is_alive(session), "the idle session to end", seconds=SECONDS_MAX)

    assert "superuser privileges" not in pipeline.log
    assert "[queues]" not in pipeline.log
    assert pipeline.pid == first
    assert int(status_of(first)["VmRSS"].split()[0]) < STANDBY_KIB_MAX
