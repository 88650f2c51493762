"""The report pages: contents, permissions, and missing prerequisites."""

from __future__ import annotations

import html
import io
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask
from PIL import Image

from console.celery import app, celery_url
from console.data.reports import health, schedules, tasks, views
from console.data.reports.models import ReportRun, RunState
from console.observe.alerts import pictures
from console.observe.history.access import history_store
from console.observe.history.metrics import TOPIC, Subject
from tests.console import fake_analytics

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

    from console.gateway.fakes.broker import FakeBroker

pytestmark = pytest.mark.django_db

PROGRAM = Path(__file__).with_name("fake_analytics.py")


@pytest.fixture
def all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "problems", list)


@pytest.fixture(autouse=True)
def forget(settings: Settings) -> None:
    cache.clear()
    settings.TREBUCHET_ANALYTICS_COMMAND = [sys.executable, str(PROGRAM)]


def client_of(name: str, *, staff: bool) -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_user(name, is_staff=staff))
    return client


@pytest.fixture
def admin() -> Client:
    return client_of("admin", staff=True)


@pytest.fixture
def reader() -> Client:
    return client_of("reader", staff=False)


@pytest.fixture
def schedule() -> PeriodicTask:
    hourly, _ = CrontabSchedule.objects.get_or_create(minute="0", hour="*", timezone="UTC")
    made: PeriodicTask
    made, _ = PeriodicTask.objects.get_or_create(
        name="Traffic of the last 24 hours",
        defaults={
            "task": schedules.SCHEDULED_TASK,
            "crontab": hourly,
            "kwargs": '{"report": "traffic", "parameters": {"hours": 24}}',
        },
    )
    return made


@pytest.fixture
def finished() -> ReportRun:
    rows = [
        {"topic": "orders", "minute": "2026-11-21T10:00:00Z", "messages": "5", "bytes": "500"},
        {"topic": "=cmd()", "minute": "2026-11-21T10:02:00Z", "messages": "7", "bytes": "900"},
    ]
    now = timezone.now()
    return ReportRun.objects.create(
        report="traffic",
        state=RunState.DONE,
        started_at=now,
        finished_at=now,
        result={
            "report": fake_analytics.TRAFFIC,
            "rows": rows,
            "totals": {"messages": "12", "bytes": "1400"},
            **fake_analytics.summaries(fake_analytics.TRAFFIC, rows),
        },
        result_rows=2,
    )


PAGES = ("reports:list", "reports:runs", "reports:health")


@pytest.mark.parametrize("name", PAGES)
def test_a_stranger_is_redirected_to_sign_in(name: str) -> None:
    assert Client().get(reverse(name)).status_code == 302


@pytest.mark.usefixtures("all_is_well", "schedule")
def test_the_list_shows_the_schedule_with_its_next_runs(reader: Client) -> None:
    page = reader.get(reverse("reports:list")).content.decode()

    assert "every hour, on the hour" in page
    assert "No reports have run yet" in page
    assert "Run a report" not in page


@pytest.mark.usefixtures("all_is_well")
def test_a_finished_run_shows_totals_and_rows(reader: Client, finished: ReportRun) -> None:
    page = reader.get(reverse("reports:run", args=[finished.pk])).content.decode()

    assert 'data-value="12"' in page
    assert "2026-11-21 10:02" in page
    assert "=cmd()" in page


def test_the_chart_has_zeros_between_and_every_message(reader: Client, finished: ReportRun) -> None:
    chart = reader.get(reverse("reports:chart", args=[finished.pk])).json()

    assert chart["stepSeconds"] == 60
    assert chart["step"] == "Messages per minute, in your time zone"
    assert len(chart["times"]) == 3
    assert {each["label"]: each["values"] for each in chart["series"]} == {
        "=cmd()": [0, 0, 7],
        "orders": [5, 0, 0],
    }


def test_a_csv_cell_is_never_a_formula(reader: Client, finished: ReportRun) -> None:
    answer = reader.get(reverse("reports:csv", args=[finished.pk]))

    text = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    assert text.splitlines() == [
        "topic,minute,messages,bytes",
        "orders,2026-11-21T10:00:00Z,5,500",
        "'=cmd(),2026-11-21T10:02:00Z,7,900",
    ]
    assert "attachment" in answer["Content-Disposition"]


def test_the_chart_can_be_downloaded_as_a_picture(reader: Client, finished: ReportRun) -> None:
    address = reverse("reports:png", args=[finished.pk])
    page = reader.get(reverse("reports:run", args=[finished.pk])).content.decode()

    answer = reader.get(address)

    assert f'href="{address}"' in page
    assert answer["Content-Type"] == "image/png"
    assert answer["Content-Disposition"] == f'attachment; filename="traffic-{finished.pk}.png"'
    with Image.open(io.BytesIO(answer.content)) as image:
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 24) or ()}
        assert image.width == 2 * pictures.WIDTH
    # A line for each of the two topics.
    assert {(0x4F, 0x55, 0xD6), (0xC2, 0x57, 0x0C)} <= colours


def test_a_result_without_a_chart_has_no_picture(reader: Client, finished: ReportRun) -> None:
    result = {**(finished.result or {}), "chart": {"times": [], "series": []}}
    ReportRun.objects.filter(pk=finished.pk).update(result=result)
    page = reader.get(reverse("reports:run", args=[finished.pk])).content.decode()

    assert reader.get(reverse("reports:png", args=[finished.pk])).status_code == 404
    assert "/png/" not in page


@pytest.mark.usefixtures("all_is_well")
def test_starting_a_report_puts_it_in_the_queue(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(tasks.run_report, "apply_async", lambda **how: sent.append(how))

    answer = admin.post(
        reverse("reports:start"),
        {"report": "traffic", "traffic-hours": "24", "traffic-topic": " orders "},
    )

    run = ReportRun.objects.get()
    assert answer.headers["Location"] == reverse("reports:run", args=[run.pk])
    assert run.parameters == {"hours": 24, "topic": "orders"}
    assert sent[0]["args"] == (run.pk,)
    assert sent[0]["retry"] is False


@pytest.mark.usefixtures("all_is_well")
def test_a_report_about_a_nonexistent_topic_is_rejected(
    admin: Client, schedule: PeriodicTask, brokers: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks.run_report, "apply_async", lambda **_: None)
    brokers.add_topic("orders")
    history_store().subject_ids([Subject(TOPIC, "broker-a", "deleted")], 1)
    words = "The topic “ordres” doesn&#x27;t exist. Check its spelling."

    def start(topic: str) -> str:
        fields = {"report": "traffic", "traffic-topic": topic}
        return admin.post(reverse("reports:start"), fields, follow=True).content.decode()

    assert words in start("ordres")
    assert not ReportRun.objects.exists()
    for topic in ("orders", "deleted", "RMQ_SYS_TRACE_TOPIC"):
        start(topic)
    assert ReportRun.objects.count() == 3
    page = admin.post(
        reverse("reports:schedule", args=[schedule.pk]),
        {"name": "x", "kind": "cron", "cron": "0 * * * *", "traffic-topic": "ordres"},
    )
    assert words in page.content.decode()


@pytest.mark.parametrize("name", ["start", "cancel", "schedule-switch", "schedule"])
def test_a_read_only_user_changes_nothing(
    reader: Client, name: str, finished: ReportRun, schedule: PeriodicTask
) -> None:
    arguments = {
        "start": [],
        "cancel": [finished.pk],
        "schedule-switch": [schedule.pk],
        "schedule": [schedule.pk],
    }[name]

    assert reader.post(reverse(f"reports:{name}", args=arguments)).status_code == 403


def test_without_redis_the_page_explains_it_and_starts_nothing(
    admin: Client, settings: Settings
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    settings.TREBUCHET_REDIS_URL = f"redis://:secret@127.0.0.1:{port}/0"

    page = admin.get(reverse("reports:list")).content.decode()
    admin.post(reverse("reports:start"), {"report": "traffic", "traffic-hours": "24"})

    assert f"Redis at 127.0.0.1:{port} isn&#x27;t responding. Reports can&#x27;t start" in page
    assert "secret" not in page
    assert not ReportRun.objects.exists()


def test_a_redis_lost_between_check_and_queue_fails_the_run(
    admin: Client, monkeypatch: pytest.MonkeyPatch, all_is_well: None
) -> None:
    def refuse(**_: Any) -> None:
        raise ConnectionRefusedError("connection refused")

    monkeypatch.setattr(tasks.run_report, "apply_async", refuse)

    admin.post(reverse("reports:start"), {"report": "traffic", "traffic-hours": "24"})

    assert "Couldn't queue the report" in ReportRun.objects.get().failure


def test_an_unmet_requirement_is_reported_with_the_command(
    reader: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "redis_responds", lambda _: True)
    monkeypatch.setattr(health, "worker_responds", lambda: True)
    monkeypatch.delenv("ORACLE", raising=False)

    page = reader.get(reverse("reports:list")).content.decode()

    assert "No oracle answers." in page
    assert "<code>delphi --ask</code>" in page


def test_a_missing_worker_is_reported(reader: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "redis_responds", lambda _: True)
    monkeypatch.setattr(health, "pipeline_responds", lambda: False)
    monkeypatch.setenv("ORACLE", "1")

    page = reader.get(reverse("reports:health")).content.decode()

    assert "The pipeline worker isn't running. Reports stay queued" in html.unescape(page)


def test_the_progress_fragment_reloads_the_page_once_the_run_has_ended(
    reader: Client, finished: ReportRun, all_is_well: None
) -> None:
    working = ReportRun.objects.create(
        report="traffic",
        state=RunState.RUNNING,
        stage="counting",
        progress_done=3,
        progress_total=8,
        started_at=timezone.now(),
        heartbeat_at=timezone.now(),
    )

    still = reader.get(reverse("reports:progress", args=[working.pk]))
    ended = reader.get(reverse("reports:progress", args=[finished.pk]))

    assert "HX-Refresh" not in still.headers
    assert 'max="8" value="3"' in still.content.decode()
    assert ended.headers["HX-Refresh"] == "true"


def test_cancelling_a_waiting_run_removes_it_from_the_queue(admin: Client) -> None:
    run = ReportRun.objects.create(report="traffic")

    admin.post(reverse("reports:cancel", args=[run.pk]))

    run.refresh_from_db()
    assert run.state == RunState.CANCELLED


def test_cancelling_an_active_run_notifies_its_worker(admin: Client) -> None:
    run = ReportRun.objects.create(
        report="traffic", state=RunState.RUNNING, heartbeat_at=timezone.now()
    )

    admin.post(reverse("reports:cancel", args=[run.pk]))

    run.refresh_from_db()
    assert (run.state, run.cancel_requested) == (RunState.RUNNING, True)


def test_a_schedule_is_changed_to_an_interval_and_back(
    admin: Client, schedule: PeriodicTask
) -> None:
    address = reverse("reports:schedule", args=[schedule.pk])
    common = {"traffic-hours": "6", "traffic-topic": "", "enabled": "on"}

    admin.post(address, {**common, "kind": "interval", "every": "15", "period": "minutes"})
    schedule.refresh_from_db()
    assert schedules.in_words(schedule) == "every 15 minutes"
    assert schedules.arguments(schedule)["parameters"] == {"hours": 6}

    admin.post(address, {**common, "kind": "cron", "cron": "30  6 * * *"})
    schedule.refresh_from_db()
    assert schedules.expression(schedule.crontab) == "30 6 * * *"
    assert schedule.interval is None


@pytest.mark.parametrize("cron", ["", "* * *", "61 * * * *", "a * * * *", "0 0 0 * *"])
def test_an_invalid_cron_expression_is_rejected(
    admin: Client, schedule: PeriodicTask, cron: str
) -> None:
    answer = admin.post(
        reverse("reports:schedule", args=[schedule.pk]), {"kind": "cron", "cron": cron}
    )

    assert answer.status_code == 422
    assert "field__error" in answer.content.decode()


def test_a_schedule_can_be_switched_off_and_on(admin: Client, schedule: PeriodicTask) -> None:
    address = reverse("reports:schedule-switch", args=[schedule.pk])

    admin.post(address, {"enabled": "off"})
    schedule.refresh_from_db()
    assert not schedule.enabled
    admin.post(address, {"enabled": "on"})
    schedule.refresh_from_db()
    assert schedule.enabled


def test_celery_accepts_only_json_and_stores_no_results() -> None:
    assert app.conf.accept_content == ["json"]
    assert app.conf.task_serializer == app.conf.result_serializer == "json"
    assert app.conf.result_backend is None
    assert app.conf.timezone == "UTC"


def test_a_unix_sockets_url_has_celerys_form() -> None:
    assert celery_url("unix:///run/redis.sock?db=1") == "redis+socket:///run/redis.sock?db=1"
    assert health.redis_address("unix:///run/redis.sock") == "/run/redis.sock"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (60, "per minute"),
        (1800, "per 30 minutes"),
        (3600, "per hour"),
        (86_400, "per day"),
        (604_800, "per 7 days"),
        (5, "per 5 seconds"),
    ],
)
def test_a_charts_step_is_described_in_words(seconds: int, words: str) -> None:
    assert views.per_step(seconds) == words
