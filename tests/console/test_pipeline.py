"""The pipeline's session, its jobs and its worker: start, end and cost."""

from __future__ import annotations

import os
import signal
import socketserver
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.core.cache import cache
from django.urls import reverse

from analytics.java import require_java
from analytics.lake.jobs import LakeJobs
from analytics.lake.writer import ArrowWriter
from console.celery import INGEST_EVERY_S, app, pipeline_schedule
from console.data.pipeline import news, standby, tasks as pipeline_tasks, worker
from console.data.pipeline.session import Session, session
from console.data.pipeline.tasks import ingest, maintain
from console.data.reports import tasks
from console.data.reports.models import ReportRun, RunState
from console.data.sql.scheduled import QUERY_TASK
from console.lib.moment import now_ms
from console.lib.queues import ALIVE_KEY, INGEST, MAINTAIN, QUEUE, UNACKNOWLEDGED_KEY
from console.processes import children_of, start_ticks
from tests.analytics.lake.lakes import Lake, put_offsets
from tests.analytics.store_builder import StoreBuilder
from tests.support.processes import command_of
from tests.support.quick_java import QUICK_SPARK
from tests.support.sources import ROOT
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.test import Client
    from pytest_django.fixtures import Settings

PROGRAM = Path(__file__).with_name("fake_analytics.py")
COMMAND = [sys.executable, str(PROGRAM)]
BROKER = "broker-a"
SECONDS_MAX = 240


@pytest.fixture
def builder(settings: Settings, tmp_path: Path) -> Iterator[StoreBuilder]:
    cache.clear()
    builder = StoreBuilder(tmp_path / "store")
    for number in range(300):
        builder.put("orders", store_timestamp=now_ms() - 3_600_000 + number)
    builder.write()
    settings.TREBUCHET_DATA = tmp_path
    settings.TREBUCHET_STORE = builder.root
    settings.TREBUCHET_LAKE = str(tmp_path / "lake")
    settings.TREBUCHET_LAKE_SOURCES = [
        {"broker": BROKER, "store": str(builder.root), "commit_log": ""}
    ]
    yield builder
    session.end()


@pytest.fixture
def lake(builder: StoreBuilder, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", builder.root)


@pytest.fixture
def fake(settings: Settings, builder: StoreBuilder) -> None:
    settings.TREBUCHET_ANALYTICS_COMMAND = COMMAND


def is_wanted(task: str = INGEST) -> bool:
    return news.is_wanted(task, {"broker": BROKER}, now_ms())


def test_beat_sends_nothing_before_there_is_work(builder: StoreBuilder, lake: Lake) -> None:
    jobs = LakeJobs(lake.place, ArrowWriter)
    first = is_wanted()
    jobs.ingest(lake.source)
    idle = is_wanted()
    builder.put_many(3).write()
    new = is_wanted()
    jobs.ingest(lake.source)

    assert (first, idle, new, is_wanted()) == (True, False, True, False)


def test_a_newly_sampled_hour_is_news(lake: Lake, tmp_path: Path) -> None:
    LakeJobs(lake.place, ArrowWriter).ingest(lake.source)
    folder = tmp_path / "samples"
    folder.mkdir()
    before = is_wanted()
    hour = folder / "2026-11-21T09Z.jsonl.gz"
    hour.touch()
    later = now_ms() / 1000 + 60
    os.utime(hour, (later, later))

    assert (before, is_wanted()) == (False, True)


def test_maintenance_follows_batches_and_days(
    builder: StoreBuilder, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = LakeJobs(lake.place, ArrowWriter)
    jobs.ingest(lake.source)
    after_batch = is_wanted(MAINTAIN)
    jobs.maintain()
    tidy = is_wanted(MAINTAIN)
    tomorrow = news.is_wanted(MAINTAIN, {}, now_ms() + 86_400_000)

    assert (after_batch, tidy, tomorrow) == (True, False, True)


def test_a_broken_lake_is_left_alone_for_minutes(lake: Lake) -> None:
    jobs = LakeJobs(lake.place, ArrowWriter)
    jobs.ingest(lake.source)
    StoreBuilder(lake.source.store).put_many(900, ("other",)).write()
    with pytest.raises(Exception, match="rebuild"):
        jobs.ingest(lake.source)

    assert not is_wanted()
    later = now_ms() + news.ERROR_PAUSE_MS + 1000
    assert news.is_wanted(INGEST, {"broker": BROKER}, later)


def test_without_a_lake_no_lake_jobs_are_sent_but_reports_are(
    settings: Settings, builder: StoreBuilder
) -> None:
    settings.TREBUCHET_LAKE = ""

    assert not is_wanted()
    assert is_wanted("console.reports.run_scheduled_report")
    assert pipeline_schedule() == {}


def test_each_log_is_ingested_every_minute_and_all_use_one_queue(
    settings: Settings, builder: StoreBuilder
) -> None:
    settings.TREBUCHET_LAKE_SOURCES = [
        {"broker": name, "store": "/a", "commit_log": ""} for name in ("broker-a", "broker-b")
    ]

    schedule = pipeline_schedule()

    assert sorted(schedule) == ["lake: ingest broker-a", "lake: ingest broker-b", "lake: maintain"]
    assert INGEST_EVERY_S <= 60
    routes = app.conf.task_routes
    of_pipeline = {ingest.name, maintain.name, tasks.run_report.name}
    assert all(routes[name] == {"queue": QUEUE} for name in of_pipeline)
    assert routes.keys() >= {tasks.run_scheduled_report.name}
    assert QUERY_TASK not in routes


@pytest.mark.usefixtures("fake")
def test_lake_jobs_and_reports_share_one_session() -> None:
    ingest.run(BROKER)
    first = session.pid
    maintain.run()

    assert first is not None
    assert session.pid == first
    assert not session.is_warm


@pytest.mark.usefixtures("fake")
def test_a_session_ends_with_its_starter() -> None:
    """A killed worker can't report anything; the end of the pipe does."""
    code = (
        "import django, os, time; django.setup()\n"
        "from console.data.pipeline.session import session\n"
        f"context = session.job({COMMAND!r}, ['lake', 'maintain'])\n"
        "context.__enter__()\n"
        "print(session.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert start_ticks(pid) is not None
        owner.kill()

        until(lambda: start_ticks(pid) is None, "the session's end")


def test_a_program_that_cannot_be_started_is_one_log_line(
    settings: Settings, builder: StoreBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    settings.TREBUCHET_ANALYTICS_COMMAND = ["/nonexistent/program"]

    ingest.run(BROKER)

    assert "/nonexistent/program couldn't be started: No such file" in caplog.text


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_log_far_behind_has_one_job_in_the_queue(
    builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    done: list[list[str]] = []
    sent: list[dict[str, object]] = []
    monkeypatch.setattr(pipeline_tasks, "monotonic", clock)
    monkeypatch.setattr(pipeline_tasks, "rests", pipeline_tasks.Continuations())
    monkeypatch.setattr(pipeline_tasks, "run_job", done.append)
    for task in (ingest, maintain):
        monkeypatch.setattr(task, "apply_async", lambda **given: sent.append(given["kwargs"]))

    for _ in range(3):
        ingest.run(BROKER)
        maintain.run()
    assert ([words[0] for words in done], sent) == (
        ["ingest", "maintain"],
        [{"broker": BROKER, "is_rest": True}, {"is_rest": True}],
    )
    ingest.run(**sent[0])
    ingest.run(BROKER)
    assert len(done) == len(sent) == 3
    # A lost or expired rest isn't waited for.
    clock.now += pipeline_tasks.EXPIRES_SECONDS
    ingest.run(BROKER)
    assert len(done) == len(sent) == 4


@pytest.mark.parametrize(("is_warm", "limit"), [(True, 900), (False, 60)])
def test_an_idle_worker_ends_itself_after_a_while(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, is_warm: bool, limit: int
) -> None:
    clock, signals = Clock(), []
    fresh = Session()
    monkeypatch.setattr(worker, "monotonic", clock)
    monkeypatch.setattr(worker, "session", fresh)
    monkeypatch.setattr(worker, "refresh_alive_key", lambda: None)
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))
    fresh.ended_at, fresh.is_warm = clock.now, is_warm
    idle = worker.Idle()

    clock.now += limit - 1
    idle.look()
    fresh.is_busy = True
    clock.now += 10
    idle.look()
    assert signals == []
    fresh.is_busy = False
    idle.look()
    idle.look()

    assert signals == [(os.getpid(), signal.SIGTERM)]
    assert idle.has_arrived


class FakeRedis(socketserver.ThreadingTCPServer):
    """Answers the standby's commands from a table, and records them."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.lengths = {QUEUE: 0, UNACKNOWLEDGED_KEY: 0}
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while head := self.rfile.readline():
                    words = []
                    for _ in range(int(head[1:])):
                        size = int(self.rfile.readline()[1:])
                        words.append(self.rfile.read(size + 2)[:-2].decode())
                    server.requests.append(words)
                    self.wfile.write(server.answer(words))

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def answer(self, words: list[str]) -> bytes:
        if words[0] in ("LLEN", "ZCARD"):
            return b":%d\r\n" % self.lengths[words[1]]
        if words[:1] == ["AUTH"] and words[-1] != "pa:ss":
            return b"-WRONGPASS invalid\r\n"
        return b"+OK\r\n"

    @property
    def url(self) -> str:
        return f"redis://:pa%3Ass@127.0.0.1:{self.server_address[1]}/3"


@pytest.fixture
def redis() -> Iterator[FakeRedis]:
    with FakeRedis() as server:
        yield server
        server.shutdown()


def test_the_standby_waits_for_a_job_and_reports_its_presence(redis: FakeRedis) -> None:
    waiting = threading.Thread(
        target=standby.wait_for_job, args=(redis.url,), kwargs={"after_work": False}
    )
    waiting.start()
    until(lambda: ["LLEN", QUEUE] in redis.requests, "the standby to query Redis")
    assert waiting.is_alive()
    redis.lengths[QUEUE] = 1
    waiting.join(SECONDS_MAX)

    assert not waiting.is_alive()
    assert redis.requests[:2] == [["AUTH", "pa:ss"], ["SELECT", "3"]]
    assert redis.requests[3][:3] == ["SET", ALIVE_KEY, "standby"]


def test_jobs_of_a_killed_worker_wake_the_next_one_once(redis: FakeRedis) -> None:
    redis.lengths[UNACKNOWLEDGED_KEY] = 1

    standby.wait_for_job(redis.url, after_work=False)

    assert ["LLEN", QUEUE] not in redis.requests


def test_a_missing_redis_is_waited_for(
    redis: FakeRedis, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        redis.lengths[QUEUE] = 1

    monkeypatch.setattr("console.data.pipeline.standby.time.sleep", sleep)
    urls = iter(["redis://127.0.0.1:1/0", redis.url])
    real = standby.Redis
    monkeypatch.setattr(standby, "Redis", lambda _: real(next(urls)))

    standby.wait_for_job("redis://ignored", after_work=True)

    assert waited == [standby.RETRY_SECONDS]
    assert (
        "WARNING console.data.pipeline.worker: pipeline waits for Redis" in capsys.readouterr().err
    )


def test_the_standby_finds_redis_like_the_console(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("redis://:a@b/1\n")

    assert standby.url_of({}) == "redis://127.0.0.1:6379/0"
    assert standby.url_of({"TREBUCHET_REDIS_URL": "unix:///a"}) == "unix:///a"
    assert standby.url_of({"TREBUCHET_REDIS_URL_FILE": str(secret)}) == "redis://:a@b/1"


def test_a_waiting_pipeline_uses_less_than_twenty_megabytes(redis: FakeRedis) -> None:
    environment = {**os.environ, "TREBUCHET_REDIS_URL": redis.url, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", "console.data.pipeline.standby"], cwd=ROOT, env=environment
    ) as process:
        until(lambda: ["LLEN", QUEUE] in redis.requests, "the standby to query Redis")
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.terminate()

    (resident,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    assert int(resident) < 20 * 1024
    assert process.returncode == 0


def run_of(**parameters: object) -> ReportRun:
    run = ReportRun.objects.create(report="traffic", parameters=parameters)
    tasks.perform(run, worker="test")
    run.refresh_from_db()
    return run


def javas() -> list[int]:
    """Return the Java process of the session."""
    assert session.pid is not None
    return [pid for pid in children_of(session.pid) if "SparkSubmit" in command_of(pid)]


@pytest.mark.usefixtures("fake")
@pytest.mark.django_db(transaction=True)
def test_no_job_is_sent_to_a_program_that_is_about_to_exit() -> None:
    lost = run_of(topic="ends")
    pid = session.pid
    ingest.run(BROKER)
    run = run_of(topic="orders")

    assert (lost.state, lost.failure, pid) == (RunState.FAILED, "Java is gone.", None)
    assert (run.state, run.failure) == (RunState.DONE, "")


@pytest.mark.spark
@pytest.mark.django_db(transaction=True)
def test_one_session_ingests_and_reports_and_only_loses_a_job_when_its_java_dies(
    builder: StoreBuilder,
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    admin_client: Client,
) -> None:
    require_java()
    for name, value in QUICK_SPARK.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TREBUCHET_PIPELINE_ENGINE", "spark")

    ingest.run(BROKER)
    assert lake.offsets() == put_offsets(builder)
    first = session.pid
    run = run_of(hours=2)

    assert (run.state, run.failure) == (RunState.DONE, "")
    assert run.result is not None
    engine = run.result["engine"]
    assert engine["reads"] == "gold.traffic_minute"
    assert run.result["totals"]["messages"] == engine["rows"] == "300"
    assert session.pid == first
    assert session.is_warm
    page = admin_client.get(reverse("reports:run", args=[run.pk])).content.decode()
    assert "the lake table gold.traffic_minute" in page
    assert f"Spark application {engine['application_id']}. Stages: {engine['stages']}." in page
    assert admin_client.get(reverse("reports:png", args=[run.pk])).status_code == 200

    # A death while idle fails no job.
    (java,) = javas()
    os.kill(java, signal.SIGKILL)
    until(lambda: session.pid is None, "the session to notice", seconds=SECONDS_MAX)
    again = run_of(hours=2)
    assert (again.state, again.failure) == (RunState.DONE, "")
    assert again.result is not None
    assert again.result["rows"] == run.result["rows"]
    assert session.pid not in (None, first)
