"""Coverage of the audit log: every change, and every attempt to sign in."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from console.accounts.models import SignedIn
from console.broker.files.models import FileVersion
from console.data.reports import health, schedules, tasks
from console.data.reports.models import ReportRun
from console.demo import services as demo_services
from console.gateway import access
from console.gateway.answers import BrokerNode, GroupConfig, Member, MessageQueue, TopicConfig
from console.gateway.outgoing import NewMessage
from console.messages.dead_letters import replaying
from console.messages.dead_letters.models import Item, Run, State
from console.messages.sending.models import HalfMessage
from console.people.audit import record
from console.people.audit.models import Entry
from tests.console.plans import token_on
from tests.console.prerequisites import (
    ACCOUNT_CHANGES,
    ACCOUNT_UNDONE,
    NAMING_UNDONE,
    accounts_world,
    second_step_data,
    sql_world,
)
from tests.console.sample_configuration import LABEL, ORDERS, TOPICS_TEXT, UNLABELLED, files_world
from tests.console.test_addresses import ALL, BY_TOKEN, url_of
from tests.support.addresses import OTHER_PAGES, PAGES
from tests.support.console_objects import make

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"
NEW_PASSWORD = "nine lives of a purple cat"
TOPIC = {
    "topic": "New",
    "broker_names": ["broker-a"],
    "write_queue_nums": 4,
    "read_queue_nums": 4,
    "perm": 6,
}
SLAVE = BrokerNode("DefaultCluster", "broker-a", 1, "127.0.0.1:10931")
ALERT_RULE: dict[str, object] = {
    "name": "urgent",
    "source": "verdict",
    "enabled": "on",
    "least": "bad",
    "broker_pattern": "*",
    "name_pattern": "*",
    "for_minutes": 2,
    "clear_minutes": 5,
    "repeat_minutes": 240,
    "group_by": "alert",
    "version": 1,
}
ALERT_CHANNEL: dict[str, object] = {
    "name": "room",
    "kind": "slack",
    "url": "https://hooks.slack.com/services/T/B/x",
}
ALERT_WINDOW: dict[str, object] = {
    "name": "night",
    "kind": "weekly",
    "weekdays": [0, 6],
    "begins_at": "02:00",
    "minutes": 60,
    "zone": "Europe/Berlin",
    "broker_pattern": "*",
    "name_pattern": "*",
}
MASKING_RULE: dict[str, object] = {
    "name": "tokens",
    "topics": "orders-*",
    "kind": "property",
    "what": "token",
}
CUSTOM_ROLE: dict[str, object] = {"name": "team", "actions": ["message.read"], "topics": "orders-*"}
SCHEDULE = {"kind": "interval", "every": 2, "period": "hours", "hours": "24", "enabled": "on"}
# Every address that accepts a POST: the form data, and the audit action.
CHANGES: dict[str, tuple[dict[str, object], str]] = {
    "accounts:join": (
        {"new_password1": NEW_PASSWORD, "new_password2": NEW_PASSWORD},
        "account.join",
    ),
    "accounts:code": ({}, "account.sign-in"),
    "accounts:second-step-codes": ({}, "account.recovery-codes"),
    "accounts:second-step-off": ({}, "account.second-step-off"),
    "accounts:second-step-set-up": ({}, "account.second-step-on"),
    "people:second-step-off": ({}, "account.second-step-off"),
    "accounts:password": (
        {"old_password": PASSWORD, "new_password1": NEW_PASSWORD, "new_password2": NEW_PASSWORD},
        "account.password",
    ),
    "accounts:session-end": ({}, "account.session-end"),
    "accounts:sessions-end": ({}, "account.sessions-end"),
    "accounts:sign-in": ({"username": "ada", "password": PASSWORD}, "account.sign-in"),
    "accounts:sign-out": ({}, "account.sign-out"),
    "alerts:channel-create": (ALERT_CHANNEL, "alert-channel.create"),
    "alerts:channel-delete": ({"name": "chat"}, "alert-channel.delete"),
    "alerts:channel-edit": (ALERT_CHANNEL, "alert-channel.update"),
    "alerts:channel-test": ({}, "alert-channel.test"),
    "alerts:preferences": ({"heartbeat_seconds": 60, "keep_days": 30}, "alert.preferences"),
    "alerts:rule-create": ({**ALERT_RULE, "name": "other"}, "alert-rule.create"),
    "alerts:rule-delete": ({"name": "urgent"}, "alert-rule.delete"),
    "alerts:rule-edit": (ALERT_RULE, "alert-rule.update"),
    "alerts:rule-switch": ({"enabled": "off"}, "alert-rule.switch"),
    "alerts:silence": ({"minutes": 60}, "alert.silence"),
    "alerts:silence-end": ({}, "alert.silence-end"),
    "alerts:silence-link": ({"minutes": 60}, "alert.silence"),
    "alerts:window-create": ({**ALERT_WINDOW, "name": "other"}, "alert-window.create"),
    "alerts:window-delete": ({"name": "night"}, "alert-window.delete"),
    "alerts:window-edit": (ALERT_WINDOW, "alert-window.update"),
    "api:token-create": (
        {"name": "pipeline", "scopes": ["topics:read"], "days": 7},
        "api-token.create",
    ),
    "api:token-delete": ({}, "api-token.delete"),
    **ACCOUNT_CHANGES,
    "clients:disconnect": ({"reason": "hangs", "groups": "shop"}, "client.disconnect"),
    "brokers:key": ({"value": "30", "seen": "20"}, "broker.configure"),
    "brokers:decide": ({"do": "commit"}, "transaction.commit"),
    "brokers:undo": ({}, "broker.configure"),
    "audit:export": ({}, "audit.export"),
    "browse:export": ({}, "message.export"),
    "browse:unmask": ({}, "message.unmask"),
    "brokers:promote": ({"name": SLAVE.address, "force": "on"}, "broker.promote"),
    "dead_letters:cancel": ({}, "dead-letter.cancel"),
    "dead_letters:discard": ({"reason": "wrong data"}, "dead-letter.discard"),
    "dead_letters:export": ({}, "dead-letter.export"),
    "dead_letters:resume": ({}, "dead-letter.resume"),
    "dead_letters:start": ({}, "dead-letter.replay"),
    "demo:start": ({}, "demo.start"),
    "demo:stop": ({}, "demo.stop"),
    "tracing:level": ({"level": "full", "minutes": "5"}, "trace.level"),
    "files:edit": (TOPICS_TEXT, "config.apply"),
    "files:import": ({**TOPICS_TEXT, "broker_names": ["broker-a"]}, "config.apply"),
    "files:restore": ({}, "config.apply"),
    "files:undo": ({}, "config.apply"),
    "groups:create": ({}, "group.create"),
    "groups:delete": ({"name": "billing"}, "group.delete"),
    "groups:edit": ({}, "group.update"),
    "groups:label": ({"owner": "team-pay"}, "group.label"),
    "groups:label-undo": ({}, "group.label"),
    "groups:undo": ({}, "group.update"),
    "masking:create": (MASKING_RULE, "masking.create"),
    "masking:delete": ({"name": "cards"}, "masking.delete"),
    "masking:edit": (MASKING_RULE, "masking.update"),
    "marks:add": ({"text": "shop 1.4.2"}, "mark.add"),
    "marks:delete": ({}, "mark.delete"),
    "marks:token-create": ({"name": "pipeline"}, "mark-token.create"),
    "marks:token-delete": ({"name": "chain"}, "mark-token.delete"),
    "offsets:apply": ({}, "offset.reset"),
    "offsets:restore": ({}, "offset.reset"),
    "overview:confirm": (
        {"broker_name": "broker-a", "address": "127.0.0.1:10911"},
        "broker.confirm",
    ),
    "people:invite": ({"name": "otto", "role": "viewer"}, "account.invite"),
    "people:remove": ({"name": "bob"}, "account.remove"),
    "people:role": ({"role": "operator"}, "account.role"),
    "people:role-create": (CUSTOM_ROLE, "role.create"),
    "people:role-delete": ({"name": "shop"}, "role.delete"),
    "people:role-edit": (CUSTOM_ROLE, "role.update"),
    "people:session-end": ({}, "account.session-end"),
    "people:sessions-end": ({}, "account.sessions-end"),
    "people:switch": ({"enabled": "off"}, "account.switch"),
    "people:withdraw": ({}, "account.withdraw"),
    "reports:cancel": ({}, "report.cancel"),
    "reports:schedule": (SCHEDULE, "schedule.update"),
    "reports:schedule-delete": ({"name": "Traffic"}, "schedule.delete"),
    "reports:schedule-new": ({**SCHEDULE, "name": "New"}, "schedule.create"),
    "reports:schedule-switch": ({"enabled": "on"}, "schedule.switch"),
    "reports:start": ({"report": "traffic", "traffic-hours": "1"}, "report.start"),
    "sql:cancel": ({}, "sql.cancel"),
    "sql:delete": ({}, "sql.delete"),
    "sql:export": ({}, "sql.export"),
    "sql:right-take": ({"grantee": "group:7"}, "account.sql"),
    "sql:rights": ({"grantee": "group:7", "scope": "some", "topics": "Ord*"}, "account.sql"),
    "sql:schedule": (SCHEDULE, "sql.schedule"),
    "sql:schedule-end": ({}, "sql.unschedule"),
    "sql:run": ({"sql": "SELECT 1"}, "sql.run"),
    "sql:save": ({"sql": "SELECT 1", "name": "one"}, "sql.save"),
    "sending:deliver": ({"member": "shop shop@1"}, "message.deliver"),
    "sending:end": ({"outcome": "commit"}, "message.end"),
    "sending:forget": ({}, "message.forget"),
    "sending:send": ({"topic": "Orders", "encoding": "text", "delay_level": 0}, "message.send"),
    "topics:create": (TOPIC, "topic.create"),
    "topics:label": ({"owner": "team-pay", "message_type": "FIFO"}, "topic.label"),
    "topics:label-undo": ({}, "topic.label"),
    "topics:purge": ({"name": "Orders"}, "topic.purge"),
    "topics:delete": ({"name": "Orders"}, "topic.delete"),
    "topics:edit": ({**TOPIC, "perm": 4}, "topic.update"),
    "topics:undo": ({}, "topic.update"),
}
# The entry 1 that each of these undoes: action, subject, before, after.
UNDONE: dict[str, tuple[str, str, object, object]] = {
    "broker_accounts:undo": ACCOUNT_UNDONE,
    **NAMING_UNDONE,
    "brokers:undo": (
        "broker.configure",
        "broker-a:0",
        {"broker-a": {"transactionCheckMax": "15"}},
        {"broker-a": {"transactionCheckMax": "20"}},
    ),
    "files:undo": (
        "config.apply",
        "broker-a · topics.json",
        {"Orders": {**ORDERS, "perm": 4}},
        {"Orders": ORDERS},
    ),
    "groups:label-undo": ("group.label", "billing", LABEL, UNLABELLED),
    "topics:label-undo": ("topic.label", "Orders", LABEL, UNLABELLED),
    "groups:undo": (
        "group.update",
        "billing",
        {"broker-a": asdict(GroupConfig("billing", retry_max_times=3))},
        {"broker-a": asdict(GroupConfig("billing"))},
    ),
    "offsets:restore": (
        "offset.reset",
        "billing · Orders",
        {"broker-a:0": "0"},
        {"broker-a:0": "1"},
    ),
    "topics:undo": (
        "topic.update",
        "Orders",
        {"broker-a": asdict(TopicConfig("Orders", 4, 4, 4))},
        {"broker-a": asdict(TopicConfig("Orders", 4, 4, 6))},
    ),
}
# The user of an action, if it isn't ada.
WHO = {"accounts:join": "nina"}
# Changes that only affect how pages look to the same user.
PERSONAL = {
    "preferences:language",
    "preferences:own",
    "preferences:place",
    "preferences:theme",
}
CONFIRMED = {"accepted": "on", "name": "broker-a"}
FROM = {"REMOTE_ADDR": "10.1.2.3"}


class FakeDemo:
    """A demo that starts and stops nothing."""

    def start(self) -> bool:
        return True

    def stop(self) -> bool:
        return True


@pytest.fixture
def world(actors, admin_account, brokers, monkeypatch, settings, tmp_path) -> dict[str, str]:
    """One of every changeable object; returns the addresses where `url_of` is wrong."""
    brokers.slaves.append(SLAVE)
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    brokers.members["shop"] = [Member("shop@1", "127.0.0.1:5", "JAVA", 407, ("broker-a",))]
    brokers.put("Orders", 0, 1_000)
    brokers.offsets["billing", "Orders", 0] = 1
    monkeypatch.setattr(demo_services, "demo_process", FakeDemo())
    monkeypatch.setattr(health, "problems", list)
    monkeypatch.setattr(tasks.run_report, "apply_async", lambda **_how: None)
    run = ReportRun.objects.create(report="traffic", parameters={})
    hourly, _ = IntervalSchedule.objects.get_or_create(every=1, period="hours")
    schedule = PeriodicTask.objects.create(
        name="Traffic", task=schedules.SCHEDULED_TASK, interval=hourly, kwargs='{"parameters": {}}'
    )
    return {
        **alerts_world(),
        **session_world(admin_account),
        **sql_world(admin_account, settings, monkeypatch, tmp_path),
        **dead_letters_world(brokers, monkeypatch),
        **accounts_world(brokers),
        "clients:disconnect": reverse("clients:disconnect", args=["shop"]) + "?client=shop@1",
        "brokers:key": reverse("brokers:key", args=["broker-a", 0, "transactionCheckMax"]),
        "audit:export": reverse("audit:export", args=["csv"]),
        "browse:export": reverse("browse:export", args=["csv"]) + "?topic=Orders",
        "browse:unmask": reverse("browse:unmask", args=["broker-a", 0, 0, "Orders"]),
        "brokers:promote": reverse("brokers:promote", args=[SLAVE.broker_name, SLAVE.broker_id]),
        "reports:cancel": reverse("reports:cancel", args=[run.pk]),
        "reports:schedule": reverse("reports:schedule", args=[schedule.pk]),
        "reports:schedule-delete": reverse("reports:schedule-delete", args=[schedule.pk]),
        "reports:schedule-switch": reverse("reports:schedule-switch", args=[schedule.pk]),
        **sending_world(),
        **files_world(),
    }


def sending_world() -> dict[str, str]:
    """Begin a transaction; return its addresses, and that of a message for a consumer."""
    queue = MessageQueue("Orders", "broker-a", 0)
    half = NewMessage(queue, b"", {}, is_half=True)
    (begun,) = access.gateway().sending.send([half]).sent
    kept = HalfMessage.objects.create(
        topic="Orders",
        broker_name="broker-a",
        queue_id=0,
        queue_offset=begun.queue_offset,
        offset_msg_id=begun.offset_msg_id,
        uniq_key=begun.uniq_key,
        by="ada",
        made_ms=1,
    )
    return {
        "brokers:decide": reverse("brokers:decide", args=["broker-a", 0, 0]),
        "sending:deliver": reverse("sending:deliver", args=["broker-a", 0, 0, "Orders"]),
        "sending:end": reverse("sending:end", args=[kept.pk]),
        "sending:forget": reverse("sending:forget", args=[kept.pk]),
    }


def dead_letters_world(brokers, monkeypatch) -> dict[str, str]:
    """Give one group a dead letter, and others a replay each; replays send nothing."""
    monkeypatch.setattr(replaying, "launch", lambda _run: None)
    brokers.add_topic("%RETRY%billing", queue_nums=1)
    brokers.give_up("billing", "Orders", 1_000)
    kept = {"action": "replay", "target": "retry", "rate": 1, "total": 1}
    running = Run.objects.create(group="audit", **kept)
    stopped = Run.objects.create(group="export", state=State.STOPPED, **kept)
    place = {"broker_name": "broker-a", "queue_id": 0, "queue_offset": 0, "commit_log_offset": 0}
    Item.objects.create(run=stopped, group="export", **place)
    return {
        "dead_letters:cancel": reverse("dead_letters:cancel", args=[running.pk]),
        "dead_letters:export": reverse("dead_letters:export", args=["billing", "csv"]),
        "dead_letters:resume": reverse("dead_letters:resume", args=[stopped.pk]),
    }


def session_world(account) -> dict[str, str]:
    """Create an ended session of the administrator; return the addresses that end it."""
    now = timezone.now()
    row = SignedIn.objects.create(user=account, session_key="gone", since=now, seen_at=now)
    return {
        "accounts:session-end": reverse("accounts:session-end", args=[row.pk]),
        "people:session-end": reverse("people:session-end", args=[account.pk, row.pk]),
    }


def alerts_world() -> dict[str, str]:
    """Create an alert with its rule, a channel, a silence and a window; return their addresses."""
    made = make()
    found = {
        **{f"alerts:rule-{word}": made["rule"] for word in ("edit", "switch", "delete")},
        **{f"alerts:channel-{word}": made["channel"] for word in ("edit", "test", "delete")},
        **{f"alerts:window-{word}": made["window"] for word in ("edit", "delete")},
        **{
            f"people:{word}": made["person"]
            for word in ("detail", "role", "switch", "remove", "sessions-end", "second-step-off")
        },
        "people:withdraw": made["invitation"],
        **{f"masking:{word}": made["mask"] for word in ("edit", "delete")},
        **{f"people:role-{word}": made["role"] for word in ("edit", "delete")},
        "accounts:join": made["join"],
        "marks:delete": made["mark"],
        "marks:token-delete": made["mark_token"],
        "api:token-delete": made["api_token"],
        "alerts:silence": made["alert"],
        "alerts:silence-end": made["silence"],
        "alerts:silence-link": made["token"],
    }
    return {name: reverse(name, args=[each]) for name, each in found.items()}


def form_of(client: Client, url: str) -> dict[str, str]:
    """Return the fields of a page's form as shown."""
    html = client.get(url).content.decode()
    found = re.findall(r'name="(\w+)"[^>]*? value="([^"]*)"', html)
    return dict(found)


def data_of(name: str, url: str, client: Client) -> dict[str, object]:
    data, _action = CHANGES[name]
    if "second-step" in name or name == "accounts:code":
        return second_step_data(name, client)
    if name in UNDONE:
        action, subject, before, after = UNDONE[name]
        Entry.objects.create(
            pk=1, action=action, subject=subject, before=before, after=after, outcome="done"
        )
    elif name.startswith("groups:") and not data:
        new = form_of(client, reverse("groups:create"))
        data = {**new, "group": "new", "broker_names": ["broker-a"], "retry_max_times": 3}
    if name == "files:edit":
        client.get(url)
        data = {**data, "base": FileVersion.objects.latest("pk").pk}
    if name == "files:restore":
        return {**CONFIRMED, "token": token_on(client.get(url))}
    if name in {
        "topics:create",
        "topics:edit",
        "groups:create",
        "groups:edit",
        "broker_accounts:create",
        "broker_accounts:edit",
        "broker_accounts:white",
        "brokers:key",
        "brokers:kv-put",
        "files:edit",
        "files:import",
    }:
        return {"token": token_on(client.post(url, data)), **CONFIRMED}
    if name in {"offsets:apply", "dead_letters:start"}:
        query = {"group": "billing", "topic": "Orders", "mode": "earliest"}
        address = reverse("offsets:preview")
        if name == "dead_letters:start":
            query = {"target": "retry", "rate": "1"}
            address = reverse("dead_letters:preview", args=["billing"])
        html = client.get(address, query).content.decode()
        found = re.search(r'name="token" value="([^"]+)"', html)
        assert found
        return {"token": found[1]}
    return data


def test_the_list_of_changes_is_complete(actors, admin_account, world) -> None:
    takes_post = set()
    for name, parameters in ALL:
        actors.admin.force_login(admin_account)  # one of them signs out
        url = world.get(name) or url_of(name, parameters)
        if actors.admin.post(url).status_code != 405:
            takes_post.add(name)

    assert takes_post == set(CHANGES) | PERSONAL | BY_TOKEN


def test_every_page_is_tested_in_a_browser(actors, admin_account, world) -> None:
    """PAGES has every whole page, because tests/browser opens those in it."""
    assert set(PAGES) <= {name for name, _ in ALL}
    forgotten = []
    for name, parameters in ALL:
        actors.admin.force_login(admin_account)
        answer = actors.admin.get(world.get(name) or url_of(name, parameters))
        is_html = answer.headers.get("content-type", "").startswith("text/html")
        is_page = answer.status_code == 200 and is_html and b"<html" in answer.getvalue()
        if is_page and name not in PAGES:
            forgotten.append(name)

    assert set(forgotten) <= OTHER_PAGES


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_change_is_recorded_with_its_user_and_address(name, actors, world) -> None:
    url = world.get(name) or url_of(name, dict(ALL)[name])
    client = actors.stranger if name == "accounts:sign-in" else actors.admin

    client.post(url, data_of(name, url, client), **FROM)

    entry = Entry.objects.exclude(pk=1).get() if name in UNDONE else Entry.objects.get()
    assert entry.action == CHANGES[name][1]
    assert (entry.outcome, entry.actor_name, entry.address) == (
        "done",
        WHO.get(name, "ada"),
        "10.1.2.3",
    )


def test_a_report_that_cannot_be_queued_is_a_failure(actors, world, monkeypatch) -> None:
    def refuse(**_how: object) -> None:
        raise OSError("Redis is down")

    monkeypatch.setattr(tasks.run_report, "apply_async", refuse)

    actors.admin.post(reverse("reports:start"), {"report": "traffic", "traffic-hours": "1"})

    entry = Entry.objects.get()
    assert (entry.outcome, entry.after) == ("failed", {"hours": 1})
    assert "Redis is down" in entry.remark


def test_a_schedules_change_shows_the_former_values(actors, world) -> None:
    actors.admin.post(world["reports:schedule"], SCHEDULE)

    entry = Entry.objects.get()
    assert (entry.before["every"], entry.after["every"]) == (1, 2)


def test_a_command_run_on_the_machine_is_audited(monkeypatch) -> None:
    monkeypatch.delenv("TREBUCHET_ACCOUNT_PASSWORD", raising=False)

    call_command("add_account", "rita", stdout=StringIO())

    entry = Entry.objects.get()
    assert (entry.action, entry.subject) == ("account.create", "rita")
    assert entry.actor_name.startswith("command line")


def guess(username: str = "ada", address: str = "10.1.2.3"):
    form = {"username": username, "password": "wrong"}
    return Client().post(reverse("accounts:sign-in"), form, REMOTE_ADDR=address)


def test_a_failed_sign_in_is_recorded(admin_account) -> None:
    guess()

    entry = Entry.objects.get()
    assert (entry.action, entry.subject, entry.outcome) == ("account.sign-in", "ada", "refused")
    assert (entry.actor_name, entry.address) == ("", "10.1.2.3")
    assert entry.remark == "Wrong name or password."


def test_an_unknown_name_is_not_recorded(admin_account) -> None:
    guess(username="my-password-typed-too-early")

    entry = Entry.objects.get()
    assert entry.subject == "(no account with this name)"


def test_failed_sign_ins_of_one_kind_are_counted_in_one_entry(admin_account, actors) -> None:
    for number in range(20):
        guess(address=f"10.1.2.{number}")

    wrong, locked = Entry.objects.order_by("id")
    assert (wrong.times, locked.times) == (5, 15)
    assert wrong.address == "10.1.2.0/24"
    assert locked.remark.startswith("Too many failed attempts")
    assert "15 times" in actors.admin.get(reverse("audit:list")).content.decode()


def test_a_later_hour_has_its_own_entry(admin_account, monkeypatch) -> None:
    guess()
    later = timezone.now() + timedelta(hours=1)
    monkeypatch.setattr(timezone, "now", lambda: later)
    guess()

    assert [entry.times for entry in Entry.objects.all()] == [1, 1]


def test_a_flood_from_everywhere_writes_a_bounded_number_of_entries(
    admin_account, monkeypatch
) -> None:
    monkeypatch.setattr(record, "REFUSALS_AN_HOUR_MAX", 10)

    for number in range(50):
        guess(username=f"name{number}", address=f"10.{number}.0.1")

    assert Entry.objects.count() == 11
    rest = Entry.objects.get(address="")
    assert rest.times == 40
    assert rest.remark == "Too many different values to list."


def test_old_rejections_are_deleted_but_changes_are_not(
    admin_account, actors, world, monkeypatch
) -> None:
    monkeypatch.setattr(record, "REFUSALS_KEPT", 5)
    actors.admin.post(reverse("topics:delete", args=["Orders"]), {"name": "Orders"})

    for number in range(20):
        guess(address=f"10.{number}.0.1")

    assert Entry.objects.filter(outcome="refused").count() == 5
    assert Entry.objects.filter(action="topic.delete").count() == 1


def test_a_read_only_users_attempt_at_a_change_is_recorded(actors, world) -> None:
    for _ in range(3):
        actors.reader.post(reverse("topics:delete", args=["Orders"]), {"name": "Orders"}, **FROM)

    entry = Entry.objects.get()
    assert (entry.action, entry.subject) == ("access.refused", "POST topics:delete")
    assert (entry.actor_name, entry.address, entry.times) == ("rita", "10.1.2.3", 3)


def test_a_form_from_another_site_is_audited(actors, world) -> None:
    actors.admin.handler.enforce_csrf_checks = True

    actors.admin.post(reverse("topics:delete", args=["Orders"]), {"name": "Orders"})

    entry = Entry.objects.get()
    assert (entry.action, entry.actor_name) == ("form.refused", "ada")
    assert "CSRF" in entry.remark


def test_guesses_at_the_old_password_are_recorded(actors) -> None:
    form = {"old_password": "x", "new_password1": NEW_PASSWORD, "new_password2": NEW_PASSWORD}

    for _ in range(7):
        actors.reader.post(reverse("accounts:password"), form)

    assert sorted(Entry.objects.values_list("action", "actor_name", "times")) == [
        ("account.password", "rita", 2),
        ("account.password", "rita", 5),
    ]
