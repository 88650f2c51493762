"""Schedules are created, changed and deleted on a page; each of their times gets one run."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from console.data.reports import health, runner, schedules, tasks
from console.data.reports.forms import ScheduleForm
from console.data.reports.models import LOST_SENTENCE, QUEUED_SECONDS_MAX, ReportRun, RunState
from console.observe.alerts.models import Channel, Message
from console.observe.alerts.pictures import Line, Words, picture_from_json

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

pytestmark = pytest.mark.django_db

PROGRAM = Path(__file__).with_name("fake_analytics.py")
BERLIN = "Europe/Berlin"
NEW = {
    "name": "Every morning",
    "enabled": "on",
    "catch_up": "on",
    "kind": "cron",
    "cron": "30 6 * * 1-5",
    "timezone": BERLIN,
    "traffic-hours": "6",
    "traffic-topic": "orders",
}


@pytest.fixture(autouse=True)
def program(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache.clear()
    settings.TREBUCHET_DATA = tmp_path
    settings.TREBUCHET_ANALYTICS_COMMAND = [sys.executable, str(PROGRAM)]
    monkeypatch.setattr(health, "problems", list)
    PeriodicTask.objects.filter(task=schedules.SCHEDULED_TASK).delete()


@pytest.fixture
def admin() -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_user("admin", is_staff=True))
    return client


def cron_of(text: str, zone: str = "UTC", **arguments: Any) -> PeriodicTask:
    schedule = PeriodicTask(
        name=f"{text} {zone}",
        task=schedules.SCHEDULED_TASK,
        kwargs=json.dumps({"report": "traffic", **arguments}),
    )
    schedules.set_cron(schedule, text, zone)
    return PeriodicTask.objects.get(pk=schedule.pk)


def make(client: Client, **given: str) -> Any:
    return client.post(reverse("reports:schedule-new", args=["traffic"]), NEW | given)


def test_a_schedule_is_created_in_the_users_time_zone(admin: Client) -> None:
    assert make(admin).status_code == 302

    (schedule,) = schedules.all_schedules()
    assert schedule.name == "Every morning"
    assert schedules.arguments(schedule) == {
        "report": "traffic",
        "catch_up": True,
        "channels": [],
        "parameters": {"hours": 6, "topic": "orders"},
    }
    assert schedules.in_words(schedule).endswith("(Europe/Berlin)")
    friday = datetime(2026, 10, 23, 12, 0, tzinfo=UTC)
    assert [f"{when:%d %H:%M}" for when in schedules.next_runs(schedule, friday, 3)] == [
        # The clocks went back on Sunday.
        *("26 05:30", "27 05:30", "28 05:30")
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"name": " "}, "Enter a name."),
        ({"name": "Taken"}, "Another schedule already has this name."),
        ({"timezone": "Mars/Olympus"}, "Select a valid choice"),
        ({"cron": "61 * * * *"}, "isn&#x27;t a valid minute"),
        ({"traffic-hours": "7"}, "Select a valid choice"),
    ],
)
def test_an_invalid_schedule_is_rejected_with_an_explanation(
    admin: Client, given: dict[str, str], sentence: str
) -> None:
    PeriodicTask.objects.create(
        name="Taken", task="another", crontab=CrontabSchedule.objects.create(minute="7")
    )

    answer = make(admin, **given)

    assert answer.status_code == 422
    assert sentence in answer.content.decode()
    assert not schedules.all_schedules()


def test_a_missing_report_has_no_schedule(admin: Client) -> None:
    address = reverse("reports:schedule-new", args=["gossip"])

    assert admin.get(address).status_code == 404


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_read_only_user_creates_and_deletes_none(method: str) -> None:
    reader = Client()
    reader.force_login(get_user_model().objects.create_user("reader"))
    schedule = cron_of("0 6 * * *")

    ask = getattr(reader, method)
    made = ask(reverse("reports:schedule-new", args=["traffic"]))
    deleted = ask(reverse("reports:schedule-delete", args=[schedule.pk]))

    assert (made.status_code, deleted.status_code) == (403, 403)
    assert schedules.all_schedules().count() == 1


def test_a_schedule_is_shown_with_its_next_five_times_and_deleted(admin: Client) -> None:
    schedule = cron_of("0 6 * * *", BERLIN, catch_up=False)
    run = ReportRun.objects.create(report="traffic", schedule=schedule)

    page = admin.get(reverse("reports:schedule", args=[schedule.pk])).content.decode()
    delete = reverse("reports:schedule-delete", args=[schedule.pk])
    html = admin.get(delete).content.decode()
    assert admin.post(delete, {"name": "another"}).status_code == 422
    assert schedules.all_schedules().exists()
    admin.post(delete, {"name": schedule.name})

    assert f"Delete schedule {schedule.name}?" in html
    assert f'href="{delete}" data-danger' in page
    assert page.partition('id="report-next"')[2].partition("</ol>")[0].count("<li>") == 5
    assert '<option value="Europe/Berlin" selected>' in page
    assert 'name="catch_up"' in page
    assert not schedules.all_schedules()
    run.refresh_from_db()
    assert run.schedule is None


def test_a_time_zone_with_an_old_name_stays_until_another_is_chosen() -> None:
    old = ScheduleForm(initial={"timezone": "US/Eastern"})
    new = ScheduleForm(initial={"timezone": "UTC"})

    assert '<option value="US/Eastern" selected>US/Eastern</option>' in str(old["timezone"])
    assert "US/Eastern" not in str(new["timezone"])


def test_the_same_time_has_one_slot_however_late_it_runs() -> None:
    schedule = cron_of("30 6 * * *", BERLIN)
    due = datetime(2026, 11, 20, 5, 30, tzinfo=UTC)

    slots = {schedules.slot(schedule, due + timedelta(minutes=late)) for late in (0, 3, 700)}

    assert slots == {f"{schedule.pk}@2026-11-20T06:30 Europe/Berlin"}
    assert schedules.slot(schedule, due - timedelta(seconds=1)) not in slots


def test_a_time_that_clocks_repeat_has_one_slot() -> None:
    schedule = cron_of("30 2 * * *", BERLIN)
    first = datetime(2026, 10, 25, 0, 30, 5, tzinfo=UTC)

    assert schedules.slot(schedule, first) == schedules.slot(schedule, first + timedelta(hours=1))


def test_each_hour_has_its_own_slot_when_the_clocks_change() -> None:
    schedule = cron_of("0 * * * *", BERLIN)
    midnight = datetime(2026, 10, 24, 22, 0, 5, tzinfo=UTC)

    slots = {schedules.slot(schedule, midnight + timedelta(hours=hour)) for hour in range(25)}

    assert len(slots) == 25


@pytest.mark.parametrize(
    ("text", "due"),
    [("0 6 * * *", "2026-11-20T06:00"), ("0 0 1 1 *", "2026-01-01T00:00")],
)
def test_the_last_time_is_found_however_long_ago_it_is(text: str, due: str) -> None:
    found = schedules.due_at(cron_of(text), datetime(2026, 11, 20, 17, 0, tzinfo=UTC))

    assert f"{found:%Y-%m-%dT%H:%M}" == due


@pytest.mark.parametrize(("catch_up", "runs"), [(True, 1), (False, 0)])
def test_a_missed_time_is_caught_up_if_the_schedule_says_so(
    monkeypatch: pytest.MonkeyPatch, catch_up: bool, runs: int
) -> None:
    schedule = cron_of("0 6 * * *", catch_up=catch_up)
    monkeypatch.setattr(tasks, "perform", lambda run, worker: None)
    monkeypatch.setattr(timezone, "now", lambda: datetime(2026, 11, 20, 9, 0, tzinfo=UTC))

    for _ in range(2):
        tasks.run_scheduled_report.apply(
            kwargs=schedules.arguments(schedule), headers={"periodic_task_name": schedule.name}
        )

    assert ReportRun.objects.filter(schedule=schedule).count() == runs


def lost_run(schedule: PeriodicTask, failure: str = LOST_SENTENCE, **fields: Any) -> ReportRun:
    return ReportRun.objects.create(
        report="traffic",
        parameters={"hours": 6},
        schedule=schedule,
        state=RunState.FAILED,
        failure=failure,
        slot=f"{schedule.pk}@2026-11-20T06:00",
        **fields,
    )


@pytest.mark.parametrize("failure", [LOST_SENTENCE, tasks.STOPPED_SENTENCE])
def test_a_scheduled_run_whose_worker_died_is_repeated_once(
    monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    queued: list[int] = []
    monkeypatch.setattr(tasks.run_report, "apply_async", lambda args, **_: queued.extend(args))
    lost = lost_run(cron_of("0 6 * * *"), failure)

    assert [tasks.requeue_lost_runs() for _ in range(2)] == [1, 0]

    (again,) = ReportRun.objects.exclude(pk=lost.pk)
    assert (again.report, again.parameters, again.schedule) == (
        lost.report,
        lost.parameters,
        lost.schedule,
    )
    assert queued == [again.pk]
    again.move(RunState.FAILED, among=(RunState.QUEUED,), failure=failure)
    assert tasks.requeue_lost_runs() == 0


def test_other_failures_and_cancelled_runs_are_not_repeated() -> None:
    schedule = cron_of("0 6 * * *")
    lost_run(schedule, "There is no lake.")
    off = cron_of("0 7 * * *")
    lost_run(off)
    PeriodicTask.objects.filter(pk=off.pk).update(enabled=False)
    long_ago = timezone.now() - timedelta(seconds=QUEUED_SECONDS_MAX + 60)
    lost_run(cron_of("0 8 * * *"), created_at=long_ago)
    # The time has passed, and the run must not be caught up.
    late = timezone.now() - timedelta(seconds=2 * schedules.LATE_S)
    lost_run(cron_of(f"{late.minute} {late.hour} * * *", catch_up=False))
    ReportRun.objects.create(report="traffic", state=RunState.FAILED, failure=LOST_SENTENCE)

    assert tasks.requeue_lost_runs() == 0


def test_a_second_runs_findings_are_sent_as_the_firsts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = Channel.objects.create(name="room", kind="slack", url="https://example.com/x")
    lost_run(cron_of("0 6 * * *", channels=[room.pk]))
    monkeypatch.setattr(
        tasks.run_report, "apply_async", lambda args, **_: tasks.run_report.apply(args)
    )

    assert tasks.requeue_lost_runs() == 1

    assert ReportRun.objects.filter(state=RunState.DONE).count() == 1
    assert Message.objects.get().content["status"] == "result"


def test_a_result_is_sent_with_its_summary_table_and_picture() -> None:
    room = Channel.objects.create(name="room", kind="slack", url="https://example.com/x")
    schedule = cron_of("0 6 * * *", channels=[room.pk, 99])

    tasks.run_scheduled_report.apply(
        kwargs=schedules.arguments(schedule), headers={"periodic_task_name": schedule.name}
    )

    run = ReportRun.objects.get()
    content = Message.objects.get().content
    assert run.state == RunState.DONE
    assert content["status"] == "result"
    assert content["path"] == reverse("reports:run", args=[run.pk])
    assert content["columns"]
    assert content["rows"]
    assert all(len(row) == len(content["columns"]) for row in content["rows"])
    picture = picture_from_json(content["picture"])
    assert picture is not None
    # The points of the chart are all there, below the report's title.
    times = (run.result or {})["chart"]["times"]
    assert any(isinstance(each, Line) and len(each.points) == len(times) for each in picture.shapes)
    title = next(each.text for each in picture.shapes if isinstance(each, Words))
    assert title == "Traffic by topic and minute"


def test_a_runs_parquet_file_is_kept_and_the_oldest_are_removed(
    admin: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "PARQUET_KEPT", 2)
    runs = [ReportRun.objects.create(report="traffic", state=RunState.DONE) for _ in range(3)]
    for run in runs:
        made = tmp_path / "result.parquet"
        made.write_bytes(b"PAR1 %d" % run.pk)
        runner.keep_parquet(run.pk, made)

    answers = [admin.get(reverse("reports:parquet", args=[run.pk])) for run in runs]

    assert [answer.status_code for answer in answers] == [404, 200, 200]
    content = b"".join(answers[2].streaming_content)  # type: ignore[attr-defined]
    for answer in answers:
        answer.close()
    assert content == b"PAR1 %d" % runs[2].pk
    assert f"traffic-{runs[2].pk}.parquet" in answers[2]["Content-Disposition"]


def test_an_unstorable_parquet_file_loses_no_result(tmp_path: Path) -> None:
    runner.keep_parquet(1, tmp_path / "absent")

    assert not runner.parquet_path(1).exists()


def test_the_list_shows_available_reports_and_their_last_run(admin: Client) -> None:
    last = ReportRun.objects.create(report="traffic", state=RunState.FAILED)

    page = admin.get(reverse("reports:list")).content.decode()

    catalog = page.partition('id="report-catalog"')[2].partition("</ul>")[0]
    assert "How many messages did each topic store?" in catalog
    assert reverse("reports:run", args=[last.pk]) in catalog
    assert catalog.count("Not run yet") == 1
    assert 'data-start-report="handovers"' in catalog
    assert reverse("reports:schedule-new", args=["handovers"]) in catalog
