"""Scheduled queries: one run per time, with its owner's permissions; alerts while rows return."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import PeriodicTask
from kombu.exceptions import OperationalError

from console.data.reports import schedules
from console.data.sql import runs, scheduled, tasks
from console.data.sql.models import RUN_MS_MAX, QueryRun, SavedQuery
from console.data.sql.runs import new_run, run_of
from console.lib.moment import now_ms
from console.observe.alerts.models import Alert, Message, Rule
from console.observe.alerts.preview import preview
from console.observe.history.access import history_store
from tests.console.observe.alerts.support import FIRST_MS, Rounds, channel, outbox_messages

pytestmark = pytest.mark.django_db

MORNING = datetime(2026, 11, 20, 6, 0, 10, tzinfo=UTC)
COUNTED = "SELECT topic, count(*) AS sent FROM bronze.messages GROUP BY topic ORDER BY topic"
HOURLY = {"enabled": "on", "catch_up": "on", "kind": "interval", "every": 1, "period": "hours"}


@pytest.fixture
def rita(db, settings, tmp_path):
    """An analyst with access to orders."""
    settings.TREBUCHET_DATA, settings.TREBUCHET_LAKE = tmp_path, str(tmp_path / "lake")
    made = get_user_model().objects.create_user("rita")
    call_command("allow_sql", "rita", topics=["ord*"], stdout=io.StringIO())
    return made


@pytest.fixture
def query(rita) -> SavedQuery:
    return SavedQuery.objects.create(owner=rita, name="orders", sql=COUNTED)


def scheduled_at(query: SavedQuery, cron: str = "0 6 * * *", *, catch_up=True) -> PeriodicTask:
    schedule = scheduled.new_schedule(query)
    schedules.set_cron(schedule, cron, "UTC")
    if not catch_up:
        schedule.kwargs = schedule.kwargs.replace("true", "false")
        schedule.save()
    return PeriodicTask.objects.get(pk=schedule.pk)


def sent(schedule: PeriodicTask) -> None:
    """Let a worker process beat's tasks."""
    tasks.run_scheduled_query.apply(kwargs=schedules.arguments(schedule), throw=True)


@pytest.fixture
def asked_nothing(monkeypatch):
    """Runs finish at once, without rows."""
    monkeypatch.setattr(
        scheduled, "perform", lambda run, _zone: scheduled.finish(run, QueryRun.State.DONE, "")
    )


def test_a_run_has_its_owners_permissions_and_its_rows_are_kept(
    query, rita, lake, settings
) -> None:
    settings.TREBUCHET_LAKE = str(lake)

    sent(scheduled_at(query))

    found = query.runs.get()
    assert (found.state, found.rows, found.sentence) == ("done", 1, "")
    run = run_of(str(found.run_id))
    assert run is not None
    assert list(run.rows()) == [["orders", 20]]
    assert (run.topics, run.scheduled) == (("ord*",), query.pk)
    client = Client()
    client.force_login(rita)
    html = client.get(reverse("sql:schedule", args=[query.pk])).content.decode()
    assert reverse("sql:result", args=[found.run_id]) in html
    assert "Next runs" in html


def test_a_result_is_sent_with_table_and_picture_if_it_has_rows(
    query, lake, settings, monkeypatch
) -> None:
    settings.TREBUCHET_LAKE = str(lake)
    call_command("allow_sql", "rita", stdout=io.StringIO())
    schedule = scheduled_at(query)
    room = channel()
    schedule.kwargs = json.dumps({**schedules.arguments(schedule), "channels": [room.pk]})
    schedule.save()

    sent(schedule)
    SavedQuery.objects.update(sql=f"{COUNTED} LIMIT 0")
    monkeypatch.setattr(timezone, "now", lambda: MORNING)
    sent(schedule)

    content = Message.objects.get().content
    assert query.runs.count() == 2
    assert (content["status"], content["name"], content["summary"]) == (
        *("result", "orders", "2 rows"),
    )
    assert content["rows"] == [["bills", "10"], ["orders", "20"]]
    assert content["path"] == reverse("sql:result", args=[query.runs.last().run_id])
    assert [each["type"] for each in content["picture"]["shapes"]].count("Box") == 2


def test_only_administrators_choose_who_is_sent_results(query, rita, admin_account) -> None:
    address, room = reverse("sql:schedule", args=[query.pk]), channel()
    SavedQuery.objects.update(is_shared=True)
    owner, admin = Client(), Client()
    owner.force_login(rita)
    admin.force_login(admin_account)

    owner.post(address, {**HOURLY, "channels": [room.pk]})
    assert schedules.channels_of(scheduled.schedule_of(query)) == []
    admin.post(address, {**HOURLY, "channels": [room.pk]})
    owner.post(address, HOURLY)

    assert schedules.channels_of(scheduled.schedule_of(query)) == [room.pk]
    assert room.name in admin.get(address).content.decode()
    assert room.name not in owner.get(address).content.decode()


def test_a_failed_query_is_a_run_that_explains_why(query, lake, settings) -> None:
    settings.TREBUCHET_LAKE = str(lake)
    SavedQuery.objects.update(sql="SELECT nothing FROM bronze.messages")

    sent(scheduled_at(query))

    found = query.runs.get()
    assert found.state == "failed"
    assert "nothing" in found.sentence


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [("the right", "rita, who owns this query"), ("the lake", "This appliance has no lake")],
)
def test_a_user_whose_permission_was_revoked_gets_no_answer(
    query, settings, lost, sentence
) -> None:
    if lost == "the lake":
        settings.TREBUCHET_LAKE = ""
    else:
        call_command("allow_sql", "rita", is_revoked=True, stdout=io.StringIO())

    sent(scheduled_at(query))

    found = query.runs.get()
    assert (found.state, found.run_id) == ("failed", None)
    assert sentence in found.sentence


def test_a_scheduled_time_has_one_run_however_often_it_is_sent(
    query, asked_nothing, monkeypatch
) -> None:
    schedule = scheduled_at(query)
    for minutes in (0, 1, 24 * 60):
        now = MORNING + timedelta(minutes=minutes)
        monkeypatch.setattr(timezone, "now", lambda now=now: now)
        sent(schedule)

    assert [run.slot.partition("@")[2] for run in query.runs.all()] == [
        "2026-11-21T06:00 UTC",
        "2026-11-20T06:00 UTC",
    ]


@pytest.mark.parametrize(("catch_up", "count"), [(True, 1), (False, 0)])
def test_a_missed_time_is_caught_up_if_the_schedule_says_so(
    query, asked_nothing, monkeypatch, catch_up, count
) -> None:
    schedule = scheduled_at(query, catch_up=catch_up)
    monkeypatch.setattr(timezone, "now", lambda: MORNING + timedelta(hours=3))

    sent(schedule)

    assert query.runs.count() == count


def test_a_schedule_skips_its_times_during_a_run_but_not_during_a_lost_one(
    query, asked_nothing
) -> None:
    now = now_ms()
    going = QueryRun.objects.create(query=query, slot="x", began_ms=now)
    schedule = scheduled_at(query)

    sent(schedule)
    assert query.runs.count() == 1

    QueryRun.objects.filter(pk=going.pk).update(began_ms=now - RUN_MS_MAX - 1)
    sent(schedule)
    assert query.runs.count() == 2
    going.refresh_from_db()
    assert going.shown_state == "failed"
    assert "worker stopped" in going.shown_sentence


def lost_at(query: SavedQuery, schedule: PeriodicTask, now: datetime) -> QueryRun:
    """Return a started run for this time, whose worker was killed."""
    began_ms = int(now.timestamp() * 1_000)
    return QueryRun.objects.create(
        query=query, slot=schedules.slot(schedule, now), began_ms=began_ms
    )


@pytest.fixture
def one_connection(monkeypatch) -> None:
    """An in-memory database disappears with its connection."""
    monkeypatch.setattr(tasks, "connections", SimpleNamespace(close_all=lambda: None))


@pytest.fixture
def queued(monkeypatch, one_connection) -> list[int]:
    """The lost runs that are queued, in place of Redis."""
    found: list[int] = []
    monkeypatch.setattr(
        tasks.run_lost_query, "apply_async", lambda args, **_options: found.append(args[0])
    )
    return found


def test_a_run_lost_with_its_worker_is_repeated_once_and_notifies_the_same_channels(
    query, asked_nothing, queued, monkeypatch
) -> None:
    schedule = scheduled_at(query)
    arguments = {**schedules.arguments(schedule), "channels": [7], "only_rows": False}
    PeriodicTask.objects.filter(pk=schedule.pk).update(kwargs=json.dumps(arguments))
    lost = lost_at(query, schedule, MORNING)
    reports: list[list[int]] = []
    monkeypatch.setattr(
        tasks, "queue_result", lambda channels, _result: reports.append(list(channels))
    )
    clock = {"now": MORNING + timedelta(milliseconds=RUN_MS_MAX)}
    monkeypatch.setattr(timezone, "now", lambda: clock["now"])
    monkeypatch.setattr("console.data.sql.models.now_ms", lambda: clock["now"].timestamp() * 1_000)

    tasks.look_for_lost()
    assert queued == [], "it may still be working"
    clock["now"] += timedelta(seconds=1)
    tasks.look_for_lost()
    tasks.look_for_lost()
    assert queued == [lost.pk, lost.pk]
    for number in queued:
        tasks.run_lost_query.apply(args=(number,), throw=True)
    tasks.look_for_lost()

    assert [(run.slot, run.state) for run in query.runs.all()] == [
        (f"{lost.slot} again", "done"),
        (lost.slot, "running"),
    ]
    assert reports == [[7]]
    assert len(queued) == 2


@pytest.mark.parametrize("why", ["switched off", "too late", "lost twice", "long ago"])
def test_a_lost_run_is_not_repeated(query, queued, monkeypatch, why) -> None:
    schedule = scheduled_at(query, catch_up=why != "too late")
    lost = lost_at(query, schedule, MORNING)
    after = timedelta(minutes=10)
    if why == "switched off":
        PeriodicTask.objects.update(enabled=False)
    elif why == "lost twice":
        QueryRun.objects.filter(pk=lost.pk).update(slot=f"{lost.slot} again")
    elif why == "long ago":
        after = timedelta(days=2)
    monkeypatch.setattr(timezone, "now", lambda: MORNING + after)

    tasks.look_for_lost()

    assert queued == []


def test_an_unreachable_redis_is_queried_again_the_next_time(
    query, one_connection, monkeypatch, caplog
) -> None:
    lost_at(query, scheduled_at(query), MORNING)
    monkeypatch.setattr(timezone, "now", lambda: MORNING + timedelta(minutes=10))

    def refused(**_options: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(tasks.run_lost_query, "apply_async", refused)

    tasks.look_for_lost()

    assert "lost queries not queued, will retry error=connection refused" in caplog.text


def test_a_worker_looks_for_lost_queries_as_long_as_it_lives() -> None:
    repeated: list[tuple[float, object]] = []
    timer = SimpleNamespace(call_repeatedly=lambda *arguments: repeated.append(arguments))

    tasks.on_worker_ready(sender=SimpleNamespace(timer=timer))

    assert repeated == [(tasks.LOST_CHECK_S, tasks.look_for_lost)]


def test_the_newest_runs_and_rows_of_each_schedule_are_kept(
    query, asked_nothing, monkeypatch
) -> None:
    monkeypatch.setattr(scheduled, "RUNS_KEPT", 2)
    monkeypatch.setattr(runs, "SCHEDULED_KEPT", 1)
    for number in range(4):
        QueryRun.objects.create(query=query, slot=str(number), began_ms=1, state="done")
    made = [new_run("SELECT 1", "UTC", 1, "rita", None, each) for each in (0, 0, 7, 7, 8)]
    for run in made:
        run.make()

    scheduled.forget_old_runs(query)
    runs.forget_old()

    assert [run.slot for run in query.runs.all()] == ["3", "2"]
    kept = [run.scheduled for run in made if run_of(run.id) is not None]
    assert sorted(kept) == [0, 0, 7, 8]


def test_a_deleted_query_no_longer_runs(query, rita, asked_nothing) -> None:
    schedule = scheduled_at(query)
    client = Client()
    client.force_login(rita)
    client.post(reverse("sql:delete", args=[query.pk]))
    assert not PeriodicTask.objects.filter(pk=schedule.pk).exists()

    # A task that was sent before.
    sent(schedule)
    assert not QueryRun.objects.exists()


def test_a_schedule_can_only_be_created_on_its_page_by_the_owner(query, rita) -> None:
    address = reverse("sql:schedule", args=[query.pk])
    SavedQuery.objects.update(is_shared=True)
    other = get_user_model().objects.create_user("olga")
    call_command("allow_sql", "olga", stdout=io.StringIO())
    owner, stranger = Client(), Client()
    owner.force_login(rita)
    stranger.force_login(other)

    wrong = owner.post(address, {**HOURLY, "kind": "cron", "cron": "61 * * * *"})
    made = owner.post(address, HOURLY, follow=True).content.decode()

    assert wrong.status_code == 422
    assert "isn&#x27;t a valid minute" in wrong.content.decode()
    assert "every hour" in made
    assert made.count("<li>") >= 5
    assert stranger.get(address).status_code == 404
    assert stranger.post(address, HOURLY).status_code == 404
    owner.post(reverse("sql:schedule-end", args=[query.pk]))
    assert scheduled.schedule_of(query) is None


def ran(query: SavedQuery, rounds: Rounds, rows: int, state: str = "done") -> None:
    QueryRun.objects.create(
        query=query,
        slot=str(rounds.now_ms),
        state=state,
        rows=rows,
        began_ms=rounds.now_ms,
        ended_ms=rounds.now_ms,
    )


@pytest.fixture
def rounds(brokers) -> Rounds:
    return Rounds(history_store())


def test_an_alert_fires_when_rows_are_returned_and_resolves_without_rows(query, rounds) -> None:
    schedule = scheduled.new_schedule(query)
    schedules.set_interval(schedule, 2, "minutes")
    rule = Rule.objects.create(
        name="late", source="query", query=query, for_minutes=0, clear_minutes=1, repeat_minutes=0
    )
    rule.channels.add(channel())

    ran(query, rounds, 0)
    rounds.pass_minute()
    assert not Alert.objects.exists()

    ran(query, rounds, 3)
    rounds.pass_minute()
    alert = Alert.objects.get()
    assert (alert.state, alert.name, alert.evidence) == ("firing", "orders", {"rows": 3})
    ran(query, rounds, 0, "failed")
    rounds.pass_minutes([None] * 6)
    assert Alert.objects.get().state == "firing"

    ran(query, rounds, 0)
    rounds.pass_minutes([None, None, None])
    assert Alert.objects.get().state == "resolved"
    assert outbox_messages() == [("firing", 1, 0), ("resolved", 0, 1)]
    assert preview(rounds.store, rule, rounds.now_ms).fired != []


def test_a_run_that_is_too_old_is_not_the_current_one(query, rounds) -> None:
    schedule = scheduled.new_schedule(query)
    schedules.set_interval(schedule, 1, "minutes")
    ran(query, rounds, 3)
    began = datetime.fromtimestamp(FIRST_MS / 1_000, UTC)

    assert scheduled.current_run(query, began + timedelta(minutes=1)) is not None
    assert scheduled.current_run(query, began + timedelta(minutes=8)) is None

    schedules.set_cron(schedule, "0 6 * * *")
    tomorrow = began + timedelta(days=1)
    due = tomorrow.replace(hour=6, minute=0)
    assert scheduled.current_run(query, due - timedelta(minutes=1)) is not None
    assert scheduled.current_run(query, due + timedelta(minutes=6)) is None
    schedule.enabled = False
    schedule.save()
    assert scheduled.current_run(query, due - timedelta(minutes=1)) is None


def test_a_rule_about_a_query_is_created_from_its_page(query, admin_account) -> None:
    client = Client()
    client.force_login(admin_account)
    address = f"{reverse('alerts:rule-create')}?query={query.pk}"
    given = {
        "name": "late",
        "source": "query",
        "enabled": "on",
        "broker_pattern": "*",
        "name_pattern": "*",
        "for_minutes": 0,
        "clear_minutes": 0,
        "repeat_minutes": 0,
        "group_by": "alert",
        "query": query.pk,
        "version": 1,
    }
    assert client.post(address, given).status_code == 422

    scheduled_at(query)

    assert f'<option value="{query.pk}" selected>' in client.get(address).content.decode()
    assert client.post(address, given).status_code == 302
    assert Rule.objects.get().query == query
    assert "orders returned rows" in client.get(reverse("alerts:rules")).content.decode()
