"""Alerts, channels, windows, reports and their schedules by the API."""

from __future__ import annotations

import pytest
from django_celery_beat.models import PeriodicTask

from console.data.reports import health, tasks
from console.data.reports.models import ReportRun
from console.observe.alerts.models import Alert, Channel, Message, Rule, Silence, Window
from console.people.audit.models import Entry
from tests.support.console_objects import make

pytestmark = pytest.mark.django_db

RULE = {"name": "late", "source": "verdict", "least": "bad"}
WINDOW = {
    "name": "nightly",
    "kind": "weekly",
    "weekdays": [0, 6],
    "begins_at": "02:00",
    "minutes": 60,
    "zone": "Europe/Berlin",
}


@pytest.fixture
def made(brokers, admin_account) -> dict[str, int | str]:
    return make()


@pytest.fixture
def ready(monkeypatch) -> None:
    """Reports that can be queued without being run."""
    monkeypatch.setattr(health, "problems", list)
    monkeypatch.setattr(tasks.run_report, "apply_async", lambda **_how: None)


def last_action() -> str:
    return Entry.objects.order_by("-pk")[0].action


def test_a_rule_is_created_changed_switched_and_deleted(programs, made) -> None:
    rule = programs.admin.post("/alert-rules", RULE)
    assert rule.status_code == 200, rule.content
    path = f"/alert-rules/{rule.json()['id']}"

    changed = programs.admin.patch(path, {"for_minutes": 7, "channels": [made["channel"]]}).json()
    off = programs.admin.patch(path, {"enabled": False}).json()
    plan = programs.admin.delete(f"{path}?dry_run=true").json()

    assert (changed["values"]["for_minutes"], changed["version"]) == (7, 2)
    assert changed["values"]["channels"] == ["chat"]
    assert (off["values"]["enabled"], off["values"]["for_minutes"]) == (False, 7)
    assert off["values"]["channels"] == ["chat"]
    assert plan["dry_run"] is True
    assert programs.admin.delete(path).status_code == 200
    assert not Rule.objects.filter(name="late").exists()
    assert last_action() == "alert-rule.delete"


def test_a_rule_is_tried_on_the_history_and_not_saved(programs, made) -> None:
    body = {**RULE, "name": "x"}

    response = programs.admin.post("/alert-rule-previews", body)

    assert response.status_code == 200, response.content
    assert response.json()["count"] == 0
    assert not Rule.objects.filter(name="x").exists()


def test_a_channels_secret_is_shown_once(programs, made) -> None:
    body = {"name": "hook", "kind": "webhook", "url": "https://example.com/hook"}

    channel = programs.admin.post("/alert-channels", body)
    assert channel.status_code == 200, channel.content
    path = f"/alert-channels/{channel.json()['id']}"
    tested = programs.admin.post(f"{path}/test")

    kept = Channel.objects.get(name="hook")
    assert channel.json()["secret"] == kept.secret != ""
    assert kept.secret not in programs.admin.get("/alert-channels").content.decode()
    assert tested.status_code == 200
    assert Message.objects.filter(channel=kept).count() == 1
    assert programs.admin.get(f"{path}/log").json()["items"][0]["state"] == "waiting"
    assert programs.admin.delete(path).status_code == 200


def test_an_alert_is_silenced_and_heard_again(programs, made) -> None:
    silence = programs.operator.post(f"/alerts/{made['alert']}/silence", {"minutes": 30}).json()
    bad = programs.operator.post(f"/alerts/{made['alert']}/silence", {"minutes": 31})

    assert Alert.objects.get(pk=made["alert"]).muted == Alert.Muted.SILENCE
    assert bad.status_code == 422
    assert programs.operator.delete(f"/silences/{silence['id']}").status_code == 200
    assert Alert.objects.get(pk=made["alert"]).muted == ""
    assert not Silence.objects.filter(pk=silence["id"]).exists()


def test_a_window_is_created_changed_and_deleted(programs, made) -> None:
    window = programs.operator.post("/maintenance-windows", WINDOW)
    assert window.status_code == 200, window.content
    path = f"/maintenance-windows/{window.json()['id']}"

    changed = programs.operator.patch(path, {"minutes": 90}).json()

    assert (changed["minutes"], changed["weekdays"], changed["begins"]) == (90, [0, 6], "02:00")
    assert programs.operator.delete(path).status_code == 200
    assert not Window.objects.filter(name="nightly").exists()


def test_preferences_change_by_name(programs, made) -> None:
    changed = programs.admin.patch("/alert-preferences", {"keep_days": 30})

    assert changed.status_code == 200, changed.content
    assert changed.json()["keep_days"] == 30


def test_a_report_is_started_and_cancelled(programs, ready) -> None:
    body = {"report": "traffic", "parameters": {"hours": 6}}

    run = programs.operator.post("/report-runs", body)
    assert run.status_code == 200, run.content
    cancelled = programs.operator.post(f"/report-runs/{run.json()['id']}/cancel")

    assert (run.json()["parameters"]["hours"], run.json()["state"]) == (6, "queued")
    assert cancelled.status_code == 200
    assert programs.reader.get(f"/report-runs/{run.json()['id']}").json()["state"] == "cancelled"
    assert programs.operator.post("/report-runs", {"report": "x"}).status_code == 422
    wrong = {"report": "traffic", "parameters": {"days": 1}}
    assert programs.operator.post("/report-runs", wrong).status_code == 422
    assert ReportRun.objects.count() == 1


def test_a_schedule_is_created_changed_switched_and_deleted(programs, ready) -> None:
    body = {"report": "traffic", "name": "mornings", "cron": "30 6 * * 1-5"}

    schedule = programs.operator.post("/report-schedules", body)
    assert schedule.status_code == 200, schedule.content
    path = f"/report-schedules/{schedule.json()['id']}"
    off = programs.operator.patch(path, {"enabled": False, "parameters": {"hours": 6}}).json()

    assert (off["values"]["enabled"], off["values"]["cron"]) == (False, "30 6 * * 1-5")
    assert off["values"]["parameters"]["hours"] == 6
    assert programs.operator.delete(path).status_code == 200
    assert not PeriodicTask.objects.filter(name="mornings").exists()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/alert-rules", RULE),
        ("/alert-channels", {"name": "x", "kind": "slack"}),
        ("/maintenance-windows", WINDOW),
        ("/report-runs", {"report": "traffic"}),
        ("/report-schedules", {"report": "traffic", "name": "x"}),
    ],
)
def test_a_viewer_may_not_create_them(path, body, programs, made) -> None:
    assert programs.reader.post(path, body).status_code == 403
    assert not Entry.objects.exclude(outcome="refused").exists()
